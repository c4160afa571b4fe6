#include "run/tuning.h"

#include "base/assert.h"
#include <string.h>

enum {
    PAIRS_BEFORE_GIVING_UP = 2,
    PAIRS_PER_LOSS = 10, /* under a median that wins, so many pairs may hide one that does not: five of five win by luck
                            once in 32 times */
};

unsigned tuning_runs_max(const struct tuning *t)
{
    unsigned n_trials = 1;
    for (unsigned i = 0; i < t->n_settings; i++) n_trials += t->settings[i].n_values - 1;
    return 2 * t->n_pairs * n_trials;
}

static bool run(const struct tuning *t, const unsigned *chosen, double *seconds, struct err *err)
{
    if (t->cancel && atomic_load(t->cancel)) return err_set(err, ERR_CANCELLED, "stopped before a decision");
    return t->run(t->context, chosen, seconds, err);
}

static void sort(double *values, unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        for (unsigned j = i; j > 0 && values[j] < values[j - 1]; j--) {
            double more = values[j - 1];
            values[j - 1] = values[j];
            values[j] = more;
        }
}

static void conclude(const struct tuning *t, struct tuning_trial *trial, double *ratios, unsigned n)
{
    unsigned n_lost = 0;
    sort(ratios, n);
    for (unsigned i = 0; i < n; i++) n_lost += ratios[i] >= 1;
    trial->n_pairs = n;
    trial->ratio = n % 2 ? ratios[n / 2] : (ratios[n / 2 - 1] + ratios[n / 2]) / 2;
    trial->ratio_min = ratios[0];
    trial->ratio_max = ratios[n - 1];
    trial->is_kept = trial->ratio <= 1 - t->win && n_lost * PAIRS_PER_LOSS <= n;
}

/* Pairs of runs with `now` and with `other`, which begins every second pair. Whatever comes first finds another state
 * of caches and neighbours than what comes behind it. */
static bool compare(const struct tuning *t, const unsigned *now, const unsigned *other, struct tuning_trial *trial,
                    struct err *err)
{
    double ratios[TUNING_PAIRS_MAX], least = 0;
    for (unsigned n = 0; n < t->n_pairs; n++) {
        double with = 0, without = 0;
        struct err refusal = {0};
        bool other_first = n % 2;
        if (!other_first && !run(t, now, &without, err)) return false;
        if (!run(t, other, &with, &refusal)) {
            trial->refusal = refusal;
            if (refusal.kind != ERR_NOMEM && refusal.kind != ERR_CANCELLED) return true;
            *err = refusal;
            return false;
        }
        if (other_first && !run(t, now, &without, err)) return false;
        if (!(with > 0 && without > 0)) return err_set(err, ERR_FAILED, "a run took no time that could be measured");
        ratios[n] = with / without;
        if (n == 0 || ratios[n] < least) least = ratios[n];
        bool is_lost = n + 1 >= PAIRS_BEFORE_GIVING_UP && least > 1 + t->win;
        if (is_lost || n + 1 == t->n_pairs) {
            conclude(t, trial, ratios, n + 1);
            break;
        }
    }
    return true;
}

static bool try_value(const struct tuning *t, unsigned *now, unsigned setting, unsigned value, struct err *err)
{
    unsigned other[TUNING_SETTINGS_MAX];
    struct tuning_trial trial = {.setting = setting, .value = value, .against = now[setting]};
    memcpy(other, now, t->n_settings * sizeof *now);
    other[setting] = value;
    if (!compare(t, now, other, &trial, err)) return false;
    if (trial.is_kept) now[setting] = value;
    if (t->tried) t->tried(t->context, &trial);
    return true;
}

/* Small wins that each looked real must be one together. */
static bool confirm(const struct tuning *t, unsigned *chosen, struct err *err)
{
    const unsigned beginning[TUNING_SETTINGS_MAX] = {0};
    struct tuning_trial trial = {.setting = t->n_settings};
    if (memcmp(chosen, beginning, t->n_settings * sizeof *chosen) == 0) return true;
    if (!compare(t, beginning, chosen, &trial, err)) return false;
    if (!trial.is_kept) memset(chosen, 0, t->n_settings * sizeof *chosen);
    if (t->tried) t->tried(t->context, &trial);
    return true;
}

bool tuning_search(const struct tuning *t, unsigned *chosen, struct err *err)
{
    ASSERT(t->n_settings <= TUNING_SETTINGS_MAX && t->n_pairs > 0 && t->n_pairs <= TUNING_PAIRS_MAX);
    memset(chosen, 0, t->n_settings * sizeof *chosen);
    for (unsigned i = 0; i < t->n_settings; i++)
        for (unsigned value = 1; value < t->settings[i].n_values; value++)
            if (!try_value(t, chosen, i, value, err)) return false;
    return confirm(t, chosen, err);
}
