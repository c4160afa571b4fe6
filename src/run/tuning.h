#ifndef RUN_TUNING_H
#define RUN_TUNING_H
/* Which values of a few settings are fastest here, found by measuring them in turns.
 *
 * Machines are noisy and change while one measures, so nothing is compared with a time of before: each trial runs the
 * values of now and one changed value alternately, and looks at the ratios within its pairs. A change is kept when the
 * median ratio wins by `win` or more and nearly all pairs agree that it wins. One setting after another; at the end all
 * kept changes together must win against the values of the beginning, or none is kept.
 *
 * Knows nothing of engines: what runs is a function. One thread. */
#include "base/alloc.h"
#include <stdatomic.h>

enum { TUNING_SETTINGS_MAX = 16, TUNING_VALUES_MAX = 8, TUNING_PAIRS_MAX = 32 };

struct tuning_setting {
    const char *name;
    const char *values[TUNING_VALUES_MAX]; /* [n_values], the first is that of the beginning */
    unsigned n_values;
};

struct tuning_trial {
    unsigned setting; /* n_settings: all kept changes together against the beginning */
    unsigned value, against;
    unsigned n_pairs;                   /* 0: the value cannot be had, and `refusal` says why */
    double ratio, ratio_min, ratio_max; /* time with the value over time without: median and extremes */
    bool is_kept;
    struct err refusal;
};

struct tuning {
    const struct tuning_setting *settings; /* [n_settings] */
    unsigned n_settings;
    unsigned n_pairs; /* of each trial, from 1 to TUNING_PAIRS_MAX; a clear loss ends it after two */
    double win;       /* 0.03: three percent */
    void *context;
    /* The work once, with value chosen[i] of setting i; how long it took. */
    bool (*run)(void *context, const unsigned *chosen, double *seconds, struct err *err);
    void (*tried)(void *context, const struct tuning_trial *trial); /* after each trial; may be NULL */
    const atomic_bool *cancel;                                      /* looked at before every run; may be NULL */
};

/* How often the work will be run at most. */
unsigned tuning_runs_max(const struct tuning *tuning);

/* chosen [n_settings]: the values to keep; all 0 when nothing wins. A value that fails is refused and the search goes
 * on; a failure of the values of now, lack of memory and cancellation (ERR_CANCELLED) end it. */
bool tuning_search(const struct tuning *tuning, unsigned *chosen, struct err *err) MUST_CHECK;

#endif
