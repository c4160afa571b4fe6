#include "run/finish_guess.h"

#define SLACK_FIRST 1.25
#define SLACK_MIN 1.05
#define SLACK_MAX 16.0
#define WIDENS 1.5
#define NARROWS 0.97

void finish_guess_add(struct finish_guess *guess, uint32_t n_rows, int64_t ns)
{
    if (n_rows == 0 || ns < 0) return;
    guess->row_ns[guess->next] = (double)ns / n_rows;
    guess->next = (guess->next + 1) % FINISH_SAMPLES;
    if (guess->n < FINISH_SAMPLES) guess->n++;
}

static double slack_of(const struct finish_guess *guess)
{
    return guess->slack > 0 ? guess->slack : SLACK_FIRST;
}

bool finish_guess_ask(const struct finish_guess *guess, uint32_t n_rows, struct finish_interval *interval)
{
    if (guess->n == 0) return false;
    double low = guess->row_ns[0], high = low, slack = slack_of(guess);
    for (uint32_t i = 1; i < guess->n; i++) {
        if (guess->row_ns[i] < low) low = guess->row_ns[i];
        if (guess->row_ns[i] > high) high = guess->row_ns[i];
    }
    interval->low_ns = (int64_t)(low * n_rows / slack);
    interval->high_ns = (int64_t)(high * n_rows * slack);
    return true;
}

void finish_guess_judge(struct finish_guess *guess, const struct finish_interval *interval, int64_t ns)
{
    bool held = interval->low_ns <= ns && ns <= interval->high_ns;
    double slack = slack_of(guess) * (held ? NARROWS : WIDENS);
    guess->slack = slack < SLACK_MIN ? SLACK_MIN : slack > SLACK_MAX ? SLACK_MAX : slack;
    guess->n_judged++;
    guess->n_held += held;
}
