/* The sampler against a slow reference that sorts every row in full and sums in long double. */
#include "run/sampler.h"

#include "base/philox.h"
#include "run/random.h"
#include "support/check.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

/* Numbers of a test: key and counter, so that a failure can be found again. */
struct numbers {
    uint64_t key, next;
};

static double unit(struct numbers *numbers)
{
    return philox_unit(numbers->key, numbers->next++);
}
static uint32_t below(struct numbers *numbers, uint32_t n)
{
    return (uint32_t)(unit(numbers) * n);
}

static double normal(struct numbers *numbers)
{
    double r = sqrt(-2 * log(1 - unit(numbers)));
    return r * cos(6.283185307179586 * unit(numbers));
}

/* Everything that one call needs, with neutral values. */
struct bench {
    struct alloc alloc;
    struct err err;
    struct sampler sampler;
    struct history history;
    struct sampling params;
    struct sampler_rules rules;
    struct sampler_input input;
    float *logits;
};

static void bench_init(struct bench *bench, uint32_t n_logits, uint32_t n_tokens)
{
    memset(bench, 0, sizeof *bench);
    assert_true(sampler_init(&bench->sampler, &bench->alloc, n_logits, n_tokens, &bench->err));
    assert_true(history_reserve(&bench->history, &bench->alloc, 4096, &bench->err));
    bench->logits = alloc_get_array(&bench->alloc, n_logits, sizeof(float), &bench->err);
    assert_non_null(bench->logits);
    bench->params = sampling_built_in();
    bench->rules = (struct sampler_rules){.sampling = &bench->params, .key = random_key_from_seed(1)};
    bench->input = (struct sampler_input){.logits = bench->logits, .history = &bench->history};
}

static void bench_fini(struct bench *bench)
{
    sampler_fini(&bench->sampler);
    sampler_fini(&bench->sampler);
    history_fini(&bench->history);
    alloc_put(&bench->alloc, bench->logits);
    assert_int_equal(bench->alloc.live, 0);
}

static uint32_t pick(struct bench *bench)
{
    struct sampled sampled;
    if (!sampler_pick(&bench->sampler, &bench->rules, &bench->input, &sampled, &bench->err))
        fail_msg("%s", bench->err.text);
    return sampled.id;
}

/* ---- the reference ---- */

struct candidate {
    uint32_t id;
    float logit;
    long double weight;
};

static int by_logit_then_id(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t count_of(const uint32_t *ids, uint32_t n, uint32_t id)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += ids[i] == id;
    return count;
}

/* One id at a time and one rule after the other, in the words of the definition. */
static float reference_logit(const struct bench *bench, uint32_t id)
{
    const struct sampling *params = &bench->params;
    const struct history *history = &bench->history;
    float z = bench->logits[id];
    uint32_t t = history->n - history->n_prompt;
    bool is_short = t < params->min_tokens;
    if (count_of(bench->rules.banned, bench->rules.n_banned, id)) return -INFINITY;
    if ((is_short || params->ignore_eos) && count_of(bench->rules.eos, bench->rules.n_eos, id)) return -INFINITY;
    for (size_t i = 0; i < params->n_bias; i++) {
        if (params->bias[i].id != id) continue;
        if (params->bias[i].value <= -100) return -INFINITY;
        z += params->bias[i].value;
    }
    int64_t window = params->repetition_window;
    uint32_t kept = window < 0 || window > history->n ? history->n : (uint32_t)window;
    if (count_of(history->ids + history->n - kept, kept, id))
        z = (float)(z > 0 ? z / params->repetition_penalty : z * params->repetition_penalty);
    uint32_t times = count_of(history->ids + history->n_prompt, t, id);
    if (times && params->presence_penalty != 0) z = (float)((double)z - params->presence_penalty);
    if (times && params->frequency_penalty != 0) z = (float)((double)z - params->frequency_penalty * times);
    const uint64_t *allowed = bench->input.allowed;
    if (allowed && !(allowed[id / 64] >> (id % 64) & 1)) return -INFINITY;
    return z;
}

static uint32_t head_of_top_p(const struct candidate *c, uint32_t n, double top_p)
{
    if (top_p >= 1) return n;
    long double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) total += c[i].weight;
    for (uint32_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum >= (long double)top_p * total) return i + 1;
    }
    return n;
}

static uint32_t head_of_min_p(const struct candidate *c, uint32_t n, double min_p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) kept += c[i].weight >= (long double)min_p * c[0].weight;
    return kept;
}

static uint32_t head_of_top_k(uint32_t n, int64_t top_k)
{
    return top_k > 0 && top_k < n ? (uint32_t)top_k : n;
}

/* Fills kept candidates in order with their final weights; returns how many. */
static uint32_t reference(const struct bench *bench, struct candidate *c)
{
    const struct sampling *params = &bench->params;
    bool is_greedy = params->temperature < 1e-5, is_first = bench->rules.order == SAMPLER_TEMPERATURE_FIRST;
    uint32_t n = 0;
    for (uint32_t id = 0; id < bench->sampler.n_tokens; id++) {
        float z = reference_logit(bench, id);
        if (is_first && !is_greedy) z = (float)((double)z / params->temperature);
        if (z != -INFINITY) c[n++] = (struct candidate){.id = id, .logit = z};
    }
    qsort(c, n, sizeof *c, by_logit_then_id);
    if (is_greedy) return 1;
    for (uint32_t i = 0; i < n; i++) c[i].weight = expl((long double)c[i].logit - (long double)c[0].logit);
    if (is_first) n = head_of_top_k(n, params->top_k);
    n = head_of_top_p(c, n, params->top_p);
    n = head_of_min_p(c, n, params->min_p);
    if (is_first) return n;
    n = head_of_top_k(n, params->top_k);
    for (uint32_t i = n; i-- > 0;)
        c[i].weight = expl(((long double)c[i].logit - (long double)c[0].logit) / (long double)params->temperature);
    return n;
}

static uint32_t reference_pick(const struct bench *bench, struct candidate *c)
{
    uint32_t n = reference(bench, c);
    long double total = 0, sum = 0;
    double u = philox_unit(bench->rules.key, bench->history.n - bench->history.n_prompt);
    for (uint32_t i = 0; i < n; i++) total += c[i].weight;
    for (uint32_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum > (long double)u * total) return c[i].id;
    }
    return c[n - 1].id;
}

/* ---- random cases ---- */

static void random_row(struct numbers *numbers, float *logits, uint32_t n)
{
    uint32_t kind = below(numbers, 7);
    double spread = kind == 5 ? 40 : 0.1 + 6 * unit(numbers);
    for (uint32_t i = 0; i < n; i++) {
        double z = spread * normal(numbers);
        if (kind == 1) z = floor(z * 2) / 2;                     /* many ties */
        if (kind == 2) z = 3.25;                                 /* all equal */
        if (kind == 6) z = 3.25 + below(numbers, 300) * 0x1p-22; /* differ in their last bits */
        if (kind == 3) z = -INFINITY;                            /* one live id, below */
        if (kind == 4 && unit(numbers) < 0.7) z = -INFINITY;
        logits[i] = (float)z;
        if (kind == 1 && logits[i] == 0 && unit(numbers) < 0.5) logits[i] = -0.0f;
    }
    if (kind == 3 || kind == 4) logits[below(numbers, n)] = (float)normal(numbers);
}

static double one_of(struct numbers *numbers, const double *values, uint32_t n)
{
    return values[below(numbers, n)];
}
#define ONE_OF(numbers, ...) \
    one_of(numbers, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static void random_params(struct numbers *numbers, struct bench *bench, struct logit_bias *bias)
{
    struct sampling *params = &bench->params;
    *params = sampling_built_in();
    params->temperature = ONE_OF(numbers, 0, 1e-6, 2e-5, 0.3, 0.7, 1, 1, 1, 1.7, 2);
    params->top_p = ONE_OF(numbers, 0, 0.1, 0.5, 0.9, 0.95, 0.999, 1, 1);
    params->top_k = (int64_t)ONE_OF(numbers, -1, 0, 0, 1, 2, 5, 40, 100);
    if (params->top_k > bench->sampler.n_logits) params->top_k = 0;
    params->min_p = ONE_OF(numbers, 0, 0, 0, 0.05, 0.3, 1);
    params->repetition_penalty = ONE_OF(numbers, 1, 1, 1.1, 2, 0.5);
    params->repetition_window = (int64_t)ONE_OF(numbers, -1, 0, 5, 20);
    params->presence_penalty = ONE_OF(numbers, 0, 0, 1.5, -2);
    params->frequency_penalty = ONE_OF(numbers, 0, 0, 0.25, -0.5);
    params->min_tokens = below(numbers, 8);
    params->ignore_eos = below(numbers, 4) == 0;
    params->n_bias = bench->sampler.n_tokens > 4 ? below(numbers, 4) : 0;
    params->bias = bias;
    for (size_t i = 0; i < params->n_bias; i++)
        bias[i] = (struct logit_bias){(uint32_t)i, (float)ONE_OF(numbers, -100, -3, 2.5, 100)};
    bench->rules.order = below(numbers, 2) ? SAMPLER_TEMPERATURE_FIRST : SAMPLER_TEMPERATURE_LAST;
    bench->rules.key = numbers->next;
}

static void equals_the_slow_reference(void **state)
{
    (void)state;
    struct numbers numbers = {.key = 20250101};
    uint32_t n_compared = 0, n_refused = 0;
    for (uint32_t round = 0; round < 6000; round++) {
        uint64_t seen = numbers.next;
        uint32_t n_tokens = round % 50 == 0 ? 5000 : 1 + below(&numbers, round % 3 ? 12 : 400),
                 n_dead = below(&numbers, 5);
        struct bench bench;
        bench_init(&bench, n_tokens + n_dead, n_tokens);
        random_row(&numbers, bench.logits, n_tokens);
        for (uint32_t i = 0; i < n_dead; i++) bench.logits[n_tokens + i] = below(&numbers, 2) ? 1e30f : NAN;

        struct logit_bias bias[4];
        random_params(&numbers, &bench, bias);
        uint32_t prompt[30], n_prompt = below(&numbers, 30), n_answer = below(&numbers, 30);
        for (uint32_t i = 0; i < n_prompt; i++) prompt[i] = below(&numbers, n_tokens + n_dead);
        history_start(&bench.history, prompt, n_prompt);
        for (uint32_t i = 0; i < n_answer; i++) history_push(&bench.history, below(&numbers, n_tokens));
        const uint32_t eos[] = {n_tokens - 1, n_tokens / 2}, banned[] = {n_tokens / 3};
        bench.rules.eos = eos, bench.rules.n_eos = 2;
        bench.rules.banned = banned, bench.rules.n_banned = below(&numbers, 2);
        uint64_t allowed[5000 / 64 + 1];
        for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) allowed[i] = (uint64_t)(unit(&numbers) * 0x1p64);
        bench.input.allowed = below(&numbers, 3) ? NULL : allowed;

        struct candidate *candidates = malloc(n_tokens * sizeof *candidates);
        struct sampled got;
        uint64_t calls = bench.alloc.calls;
        if (sampler_pick(&bench.sampler, &bench.rules, &bench.input, &got, &bench.err)) {
            uint32_t want = reference_pick(&bench, candidates);
            if (got.id != want) print_error("counter %llu, round %u\n", (unsigned long long)seen, round);
            assert_int_equal(got.id, want);
            n_compared++;
        } else {
            /* Refused only when the reference has nothing left either. */
            assert_int_equal(bench.err.kind, ERR_FAILED);
            uint32_t n_live = 0;
            for (uint32_t id = 0; id < n_tokens; id++) n_live += reference_logit(&bench, id) != -INFINITY;
            assert_int_equal(n_live, 0);
            n_refused++;
        }
        assert_int_equal(bench.alloc.calls, calls); /* nothing is allocated for a token */
        free(candidates);
        bench_fini(&bench);
    }
    print_message("key %llu: %u picks equal, %u rows without a possible id refused\n", (unsigned long long)numbers.key,
                  n_compared, n_refused);
    assert_true(n_compared > 4000);
    assert_true(n_refused > 50);
}

/* ---- distribution ---- */

/* The statistic of 100,000 draws against the weights of the reference, as a normal deviate (Wilson and Hilferty). */
static double deviate(struct bench *bench, const struct candidate *expected, uint32_t n_kept)
{
    enum { DRAWS = 100000 };
    uint32_t seen[64] = {0};
    history_start(&bench->history, NULL, 0);
    for (uint32_t i = 0; i < DRAWS; i++) {
        /* One draw per key at t = 0, and a few at later t. */
        bench->rules.key = random_key_from_seed((int64_t)i - DRAWS / 2);
        seen[pick(bench)]++;
    }
    long double total = 0;
    for (uint32_t i = 0; i < n_kept; i++) total += expected[i].weight;
    double statistic = 0;
    uint32_t n_seen = 0;
    for (uint32_t i = 0; i < n_kept; i++) {
        double want = (double)(DRAWS * expected[i].weight / total), is = seen[expected[i].id];
        statistic += (is - want) * (is - want) / want;
        n_seen += seen[expected[i].id];
    }
    if (n_seen != DRAWS) return INFINITY; /* something outside of the kept set was drawn */
    if (n_kept == 1) return 0;
    double freedom = n_kept - 1;
    return (cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / sqrt(2 / (9 * freedom));
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double temperature, top_p, min_p;
        int64_t top_k;
        enum sampler_order order;
    } cases[] = {
        {"nothing cut", 1, 1, 0, 0, SAMPLER_TEMPERATURE_FIRST},
        {"temperature 0.6", 0.6, 1, 0, 0, SAMPLER_TEMPERATURE_FIRST},
        {"top_k 7", 1, 1, 0, 7, SAMPLER_TEMPERATURE_FIRST},
        {"top_p 0.8", 1, 0.8, 0, 0, SAMPLER_TEMPERATURE_FIRST},
        {"min_p 0.1", 1, 1, 0.1, 0, SAMPLER_TEMPERATURE_FIRST},
        {"all of them", 1.3, 0.9, 0.05, 20, SAMPLER_TEMPERATURE_FIRST},
        {"all of them, temperature last", 1.3, 0.9, 0.05, 20, SAMPLER_TEMPERATURE_LAST},
    };
    struct bench bench;
    struct candidate kept[40];
    bench_init(&bench, 40, 40);
    struct numbers numbers = {.key = 77};
    for (uint32_t i = 0; i < 40; i++) bench.logits[i] = (float)(0.25 * floor(6 * normal(&numbers)));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench.params.temperature = cases[i].temperature;
        bench.params.top_p = cases[i].top_p;
        bench.params.min_p = cases[i].min_p;
        bench.params.top_k = cases[i].top_k;
        bench.rules.order = cases[i].order;
        uint32_t n = reference(&bench, kept);
        double z = deviate(&bench, kept, n);
        print_message("%s: %u ids kept, chi-square is %.2f deviations from its mean\n", cases[i].name, n, z);
        assert_true(z < 4.5);
    }

    /* The test must see a distribution that is a little wrong, and a kept set that is one id too small. */
    bench.params = sampling_built_in();
    bench.rules.order = SAMPLER_TEMPERATURE_FIRST;
    uint32_t n = reference(&bench, kept);
    kept[0].weight *= 1.15L;
    assert_true(deviate(&bench, kept, n) > 4.5);
    n = reference(&bench, kept);
    assert_true(deviate(&bench, kept, n - 1) == INFINITY);
    bench_fini(&bench);
}

static void successive_tokens_are_independent(void **state)
{
    (void)state;
    /* One key, t = 0, 1, 2, ...: pairs of neighbours over four equal ids fall evenly into 16 cells. */
    struct bench bench;
    bench_init(&bench, 4, 4);
    uint32_t cell[16] = {0}, last = pick(&bench), n = 0;
    for (uint32_t round = 0; round < 8; round++) {
        bench.rules.key = random_key_from_seed(round);
        history_start(&bench.history, NULL, 0);
        for (uint32_t t = 0; t < 4000; t++, n++) {
            uint32_t id = pick(&bench);
            cell[last * 4 + id]++;
            last = id;
            history_push(&bench.history, id);
        }
    }
    double statistic = 0, want = n / 16.0;
    for (int i = 0; i < 16; i++) statistic += (cell[i] - want) * (cell[i] - want) / want;
    print_message("chi-square %.1f with 15 degrees of freedom\n", statistic);
    assert_true(statistic < 45); /* beyond it: one in ten thousand */
    bench_fini(&bench);
}

/* ---- penalties, masks, ties ---- */

static void penalties_are_what_they_say(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, 8, 8);
    bench.rules.wants_logprobs = true;
    bench.params.temperature = 0;
    /* Prompt 0 0 1; answer 2 2 3. Every row below says which id must win, and loses with the penalty off. */
    static const uint32_t prompt[] = {0, 0, 1};
    history_start(&bench.history, prompt, 3);
    history_push(&bench.history, 2);
    history_push(&bench.history, 2);
    history_push(&bench.history, 3);
    static const struct {
        const char *what;
        float logits[8];
        double repetition, presence, frequency;
        int64_t window;
        uint32_t plain, punished;
    } cases[] = {
        {"a positive logit is divided", {0, 0, 3, 0, 2, 0, 0, 0}, 2, 0, 0, -1, 2, 4},
        {"a negative logit is multiplied", {-9, -9, -2, -9, -3, -9, -9, -9}, 2, 0, 0, -1, 2, 4},
        {"repetition takes an id once", {0, 0, 3, 0, 1.4f, 0, 0, 0}, 2, 0, 0, -1, 2, 2},
        {"the prompt is in its window", {3, 0, 0, 0, 2, 0, 0, 0}, 2, 0, 0, -1, 0, 4},
        {"unless the window is short", {3, 0, 0, 0, 2, 0, 0, 0}, 2, 0, 0, 3, 0, 0},
        {"or is nothing", {0, 0, 0, 3, 2, 0, 0, 0}, 2, 0, 0, 0, 3, 3},
        {"presence is once", {0, 0, 3, 0, 2.1f, 0, 0, 0}, 1, 1, 0, -1, 2, 4},
        {"presence is not twice", {0, 0, 3, 0, 1.5f, 0, 0, 0}, 1, 1, 0, -1, 2, 2},
        {"presence leaves the prompt alone", {3, 0, 0, 0, 2.9f, 0, 0, 0}, 1, 2, 0, -1, 0, 0},
        {"frequency is each time", {0, 0, 3, 0, 1.5f, 0, 0, 0}, 1, 0, 1, -1, 2, 4},
        {"frequency counts one for one", {0, 0, 0, 3, 1.5f, 0, 0, 0}, 1, 0, 1, -1, 3, 3},
        {"a negative one attracts", {0, 0, 1, 0, 2, 0, 0, 0}, 1, -2, 0, -1, 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bench.logits, cases[i].logits, sizeof cases[i].logits);
        bench.params.repetition_penalty = 1;
        bench.params.presence_penalty = bench.params.frequency_penalty = 0;
        uint32_t plain = pick(&bench);
        bench.params.repetition_penalty = cases[i].repetition;
        bench.params.repetition_window = cases[i].window;
        bench.params.presence_penalty = cases[i].presence;
        bench.params.frequency_penalty = cases[i].frequency;
        uint32_t punished = pick(&bench);
        if (plain != cases[i].plain || punished != cases[i].punished) print_error("%s\n", cases[i].what);
        assert_int_equal(plain, cases[i].plain);
        assert_int_equal(punished, cases[i].punished);
    }

    /* A window that the client asks for covers the prompt's tail as well. */
    memcpy(bench.logits, (float[8]){3, 0, 0, 0, 2.9f}, 8 * sizeof(float));
    bench.params = sampling_built_in();
    bench.params.temperature = 0;
    bench.params.presence_penalty = 2;
    assert_int_equal(pick(&bench), 0);
    struct sampling_value all = {.kind = SAMPLING_INTEGER, .integer = 6},
                          five = {.kind = SAMPLING_INTEGER, .integer = 4};
    assert_true(sampling_put(&bench.params, SAMPLING_PRESENCE_WINDOW, "presence_context_size", all, NULL, &bench.err));
    assert_int_equal(pick(&bench), 4);
    assert_true(sampling_put(&bench.params, SAMPLING_PRESENCE_WINDOW, "presence_context_size", five, NULL, &bench.err));
    assert_int_equal(pick(&bench), 0);
    bench_fini(&bench);
}

static void masks_ids_in_the_right_places(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, 10, 8);
    bench.params.temperature = 0;
    memcpy(bench.logits, (float[10]){1, 2, 3, 4, 5, 6, 7, 8, 99, NAN}, 10 * sizeof(float));
    assert_int_equal(pick(&bench), 7); /* ids 8 and 9 have no token */

    static const uint32_t eos[] = {7}, banned[] = {6}, stop_ids[] = {5};
    bench.rules.eos = eos, bench.rules.n_eos = 1;
    assert_int_equal(pick(&bench), 7);
    bench.params.ignore_eos = true;
    assert_int_equal(pick(&bench), 6);
    bench.rules.banned = banned, bench.rules.n_banned = 1;
    assert_int_equal(pick(&bench), 5);
    bench.params.ignore_eos = false;
    assert_int_equal(pick(&bench), 7);

    /* Until there are enough tokens, neither end ids nor the client's own stop ids come. */
    bench.params.stop_ids = stop_ids, bench.params.n_stop_ids = 1;
    bench.params.min_tokens = 2;
    for (uint32_t t = 0; t < 2; t++) {
        assert_int_equal(pick(&bench), 4);
        history_push(&bench.history, 4);
    }
    assert_int_equal(pick(&bench), 7);

    /* A bias never brings back what is masked, and -100 is final. */
    static const struct logit_bias up[] = {{7, 100}, {0, -100}}, down[] = {{7, -100}, {5, -99}};
    bench.params.ignore_eos = true;
    bench.params.bias = up, bench.params.n_bias = 2;
    assert_int_equal(pick(&bench), 5);
    bench.params.ignore_eos = false;
    bench.params.bias = down;
    assert_int_equal(pick(&bench), 4);
    uint64_t allowed = 1 << 5 | 1 << 7; /* 7 is out by its bias, 5 is only improbable */
    bench.input.allowed = &allowed;
    assert_int_equal(pick(&bench), 5);
    allowed = 1 << 7;
    struct sampled sampled;
    assert_false(sampler_pick(&bench.sampler, &bench.rules, &bench.input, &sampled, &bench.err));
    assert_int_equal(bench.err.kind, ERR_FAILED);
    assert_non_null(strstr(bench.err.text, "grammar_dead_end"));
    bench_fini(&bench);
}

static void ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, 300, 300);
    for (uint32_t i = 0; i < 300; i++) bench.logits[i] = i % 3 ? 2 : 1;
    bench.params.temperature = 0;
    assert_int_equal(pick(&bench), 1);
    bench.params.temperature = 0.5;
    bench.params.top_k = 1;
    assert_int_equal(pick(&bench), 1);
    bench.params.top_k = 0;
    bench.params.top_p = 0;
    assert_int_equal(pick(&bench), 1);

    /* Plus and minus zero are equal. */
    for (uint32_t i = 0; i < 300; i++) bench.logits[i] = i < 200 ? -0.0f : 0.0f;
    assert_int_equal(pick(&bench), 0);
    bench.params.temperature = 0;
    assert_int_equal(pick(&bench), 0);

    /* 299 equal ids and top_k 100: the hundred lowest, each of them. */
    bench.params = sampling_built_in();
    bench.params.top_k = 100;
    bool seen[300] = {0};
    for (int64_t seed = 0; seed < 5000; seed++) {
        bench.rules.key = random_key_from_seed(seed);
        seen[pick(&bench)] = true;
    }
    for (uint32_t i = 0; i < 300; i++) assert_int_equal(seen[i], i < 100);
    bench_fini(&bench);
}

static void nothing_is_emitted_from_a_broken_row(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench, 1000, 990);
    struct numbers numbers = {.key = 5};
    struct sampled sampled;
    static const double temperatures[] = {0, 1, 0.5};
    for (uint32_t round = 0; round < 300; round++) {
        for (uint32_t i = 0; i < 1000; i++) bench.logits[i] = (float)normal(&numbers);
        uint32_t at = below(&numbers, 990);
        bench.params.temperature = temperatures[round % 3];
        bench.rules.wants_logprobs = round % 2;
        bench.rules.n_top_logprobs = 3;
        pick(&bench); /* healthy before, and so after the failure of the last round */
        bench.logits[at] = round % 4 == 0 ? INFINITY : round % 4 == 1 ? -NAN : NAN;
        bench.err = (struct err){0};
        assert_false(sampler_pick(&bench.sampler, &bench.rules, &bench.input, &sampled, &bench.err));
        assert_int_equal(bench.err.kind, ERR_FAILED);
        assert_non_null(strstr(bench.err.text, "numerical_error"));
        char id[32];
        snprintf(id, sizeof id, "id %u ", at);
        assert_non_null(strstr(bench.err.text, id));
    }
    print_message("%s\n", bench.err.text);
    for (uint32_t i = 0; i < 990; i++) bench.logits[i] = -INFINITY;
    assert_false(sampler_pick(&bench.sampler, &bench.rules, &bench.input, &sampled, &bench.err));
    assert_non_null(strstr(bench.err.text, "numerical_error"));

    /* Finite logits that a low temperature turns infinite are an error as well, not the last id. */
    for (uint32_t i = 0; i < 990; i++) bench.logits[i] = 3e38f;
    bench.params.temperature = 1e-3;
    assert_false(sampler_pick(&bench.sampler, &bench.rules, &bench.input, &sampled, &bench.err));
    assert_non_null(strstr(bench.err.text, "numerical_error"));
    bench_fini(&bench);
}

/* ---- speculation ---- */

/* A model whose logits are a function of the whole sequence. */
static void toy_model(const struct history *history, float *logits, uint32_t n)
{
    uint64_t hash = 1469598103934665603u;
    for (uint32_t i = 0; i < history->n; i++) hash = (hash ^ history->ids[i]) * 1099511628211u;
    for (uint32_t i = 0; i < n; i++) logits[i] = (float)(6 * philox_unit(hash, i));
}

enum drafter { ALWAYS_RIGHT, ALWAYS_WRONG, RANDOM };

/* Rounds of verification: rows are drawn from as long as drafts come true. Returns how many rounds made n ids. */
static uint32_t speculate(struct bench *bench, const uint32_t *plain, uint32_t n, enum drafter drafter)
{
    struct numbers numbers = {.key = 9};
    struct history *history = &bench->history;
    uint32_t n_rounds = 0;
    while (history_generated(history) < n) {
        uint32_t start = history_generated(history), n_drafts = below(&numbers, 5);
        n_rounds++;
        for (uint32_t j = 0; j <= n_drafts && start + j < n; j++) {
            uint32_t right = plain[start + j], draft = right;
            if (drafter == ALWAYS_WRONG || (drafter == RANDOM && unit(&numbers) < 0.5)) draft = (right + 1) % 50;
            toy_model(history, bench->logits, 50);
            uint32_t id = pick(bench);
            history_push(history, id);
            if (id != draft) break;
        }
    }
    return n_rounds;
}

static void speculation_changes_nothing(void **state)
{
    (void)state;
    enum { N = 300 };
    static const uint32_t prompt[] = {3, 1, 4, 1, 5};
    struct bench bench;
    bench_init(&bench, 50, 50);
    bench.params.top_p = 0.9;
    bench.params.frequency_penalty = 0.3; /* depends on every id before */
    bench.params.repetition_penalty = 1.2;
    for (int64_t seed = -2; seed <= 2; seed++) {
        uint32_t plain[N], rounds[3];
        bench.rules.key = random_key_from_seed(seed);
        history_start(&bench.history, prompt, 5);
        for (uint32_t t = 0; t < N; t++) {
            toy_model(&bench.history, bench.logits, 50);
            plain[t] = pick(&bench);
            history_push(&bench.history, plain[t]);
        }
        for (enum drafter drafter = ALWAYS_RIGHT; drafter <= RANDOM; drafter++) {
            history_start(&bench.history, prompt, 5);
            rounds[drafter] = speculate(&bench, plain, N, drafter);
            assert_memory_equal(bench.history.ids + 5, plain, sizeof plain);
        }
        print_message("seed %d: %u, %u and %u rounds\n", (int)seed, rounds[0], rounds[1], rounds[2]);
        assert_int_equal(rounds[ALWAYS_WRONG], N);
        assert_true(rounds[ALWAYS_RIGHT] < rounds[RANDOM] && rounds[RANDOM] < N);
    }
    bench_fini(&bench);
}

static void allocation_failures_leave_nothing_behind(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct sampler sampler;
        struct history history = {0};
        struct err err = {0};
        bool ok = sampler_init(&sampler, &alloc, 100, 90, &err) && history_reserve(&history, &alloc, 10, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        sampler_fini(&sampler);
        history_fini(&history);
        assert_int_equal(alloc.live, 0);
        if (ok) {
            assert_int_equal(k, 6); /* five allocations, and each has failed once */
            break;
        }
    }
}

/* ---- speed, printed and not judged ---- */

static double ms_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void time_at_full_size(void **state)
{
    (void)state;
    enum { V = 154880, LIVE = 154856, RUNS = 21 };
    static const struct {
        const char *name;
        double temperature, top_p, peak;
        int64_t top_k;
        bool wants_logprobs;
    } cases[] = {
        {"temperature 0", 0, 1, 20, 0, false},
        {"top_p 0.95", 1, 0.95, 20, 0, false},
        {"top_k 40", 1, 1, 20, 40, false},
        {"nothing cut", 1, 1, 20, 0, false},
        {"top_p 0.95, 20 log-probabilities", 1, 0.95, 20, 0, true},
        {"top_p 0.95, flat", 1, 0.95, 0, 0, false},
    };
    struct bench bench;
    bench_init(&bench, V, LIVE);
    struct numbers numbers = {.key = 31};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t id = 0; id < V; id++) bench.logits[id] = (float)(2.5 * normal(&numbers));
        for (uint32_t id = 0; id < 40; id++) bench.logits[id * 3571] += (float)cases[i].peak;
        bench.params.temperature = cases[i].temperature;
        bench.params.top_p = cases[i].top_p;
        bench.params.top_k = cases[i].top_k;
        bench.rules.wants_logprobs = cases[i].wants_logprobs;
        bench.rules.n_top_logprobs = 20;
        double ms[RUNS];
        for (int run = 0; run < RUNS; run++) {
            bench.rules.key = (uint64_t)run;
            double start = ms_now();
            pick(&bench);
            ms[run] = ms_now() - start;
        }
        qsort(ms, RUNS, sizeof *ms, by_value);
        print_message("V = 154,880, %s: median %.3f ms of processor time, worst %.3f ms, %d runs\n", cases[i].name,
                      ms[RUNS / 2], ms[RUNS - 1], RUNS);
    }
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_slow_reference),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(successive_tokens_are_independent),
        cmocka_unit_test(penalties_are_what_they_say),
        cmocka_unit_test(masks_ids_in_the_right_places),
        cmocka_unit_test(ties_go_to_the_lowest_id),
        cmocka_unit_test(nothing_is_emitted_from_a_broken_row),
        cmocka_unit_test(speculation_changes_nothing),
        cmocka_unit_test(allocation_failures_leave_nothing_behind),
        cmocka_unit_test(time_at_full_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
