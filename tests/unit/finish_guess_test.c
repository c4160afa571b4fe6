/* Intervals hold about as often as they are meant to, for costs that scatter, drift and jump; and what does not hold is
 * counted as such. */
#include "run/finish_guess.h"
#include "support/check.h"

enum { PROMPTS = 600, PASSES = 12, ROWS = 64 };

static uint64_t state_of_draws;

static double draw(void)
{
    state_of_draws = state_of_draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state_of_draws >> 33) / 2147483648.0;
}

/* What a row of pass `pass` of prompt `prompt` takes, in ns. */
typedef double cost_fn(int prompt, int pass);

static double steady(int prompt, int pass)
{
    (void)prompt;
    (void)pass;
    return 1e6;
}
static double scattered(int prompt, int pass)
{
    (void)prompt;
    (void)pass;
    return 1e6 * (0.5 + draw());
}
static double growing(int prompt, int pass) /* with the context */
{
    (void)prompt;
    return 1e6 * (1 + pass * 0.15) * (0.9 + 0.2 * draw());
}
static double jumping(int prompt, int pass) /* somebody else uses the disk for a while */
{
    (void)pass;
    return (prompt / 50 % 2 ? 3e6 : 1e6) * (0.9 + 0.2 * draw());
}

static double share_held(cost_fn *cost, struct finish_guess *guess)
{
    *guess = (struct finish_guess){0};
    state_of_draws = 7;
    for (int prompt = 0; prompt < PROMPTS; prompt++) {
        struct finish_interval first;
        int64_t ns = 0;
        bool is_made = finish_guess_ask(guess, PASSES * ROWS, &first);
        for (int pass = 0; pass < PASSES; pass++) {
            int64_t took = (int64_t)(cost(prompt, pass) * ROWS);
            finish_guess_add(guess, ROWS, took);
            ns += took;
        }
        if (is_made) finish_guess_judge(guess, &first, ns);
    }
    assert_int_equal(guess->n_judged, PROMPTS - 1);
    return (double)guess->n_held / (double)guess->n_judged;
}

static void intervals_hold_as_often_as_they_should(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        cost_fn *cost;
    } cases[] = {{"steady", steady}, {"scattered", scattered}, {"growing", growing}, {"jumping", jumping}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct finish_guess guess;
        struct finish_interval interval;
        double share = share_held(cases[i].cost, &guess);
        assert_true(finish_guess_ask(&guess, 1000, &interval));
        print_message("%-9s: %.1f %% of %llu intervals held; the next reaches from %.2f to %.2f s\n", cases[i].name,
                      100 * share, (unsigned long long)guess.n_judged, (double)interval.low_ns / 1e9,
                      (double)interval.high_ns / 1e9);
        assert_true(share >= 0.9);
        assert_true(interval.high_ns < 20 * interval.low_ns); /* or anything would hold */
    }
}

static void what_does_not_hold_is_counted(void **state)
{
    (void)state;
    struct finish_guess guess = {0};
    struct finish_interval interval;
    assert_false(finish_guess_ask(&guess, 10, &interval));
    finish_guess_add(&guess, 10, 1000);
    assert_true(finish_guess_ask(&guess, 10, &interval));
    int64_t high = interval.high_ns;
    assert_true(interval.low_ns < 1000 && high > 1000);
    finish_guess_judge(&guess, &interval, high + 1);
    finish_guess_judge(&guess, &interval, interval.low_ns - 1);
    finish_guess_judge(&guess, &interval, 1000);
    assert_int_equal(guess.n_judged, 3);
    assert_int_equal(guess.n_held, 1);
    assert_true(finish_guess_ask(&guess, 10, &interval));
    assert_true(interval.high_ns > high); /* it learned */
    finish_guess_add(&guess, 0, 1000);    /* a pass without rows says nothing */
    assert_int_equal(guess.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_hold_as_often_as_they_should),
        cmocka_unit_test(what_does_not_hold_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
