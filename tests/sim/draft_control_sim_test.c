/* The choice of how many drafts, on simulated machines: processors and disks of many speeds, caches that warm up, texts
 * that are easy or hard to foresee and change in the middle. Whatever the machine, choosing is nearly as fast as the
 * best fixed number of drafts, and never noticeably slower than none.
 *
 *   draft_control_sim_test [FIRST_SEED [COUNT]]
 * runs other machines than the ones of every commit; the seed of a failure is printed. */
#include "run/draft_control.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

enum { TOKENS = 3000, DEPTH_MAX = 7, MACHINES = 300, DRIFTS = 2 };

static uint64_t first_seed = 1, n_machines = MACHINES;

/* What is true, and what the controller has to find out. Times are in ns. */
struct machine {
    uint64_t random;
    double work, slope, jump;   /* of one row; of a row more, and once for more than one, over that */
    double layers, per_row;     /* sparse layers, experts of a row in each */
    double overlap;             /* of a row's experts with those of the rows before it */
    double cold, warm, warming; /* shares that are missing at first and later, and passes in between */
    double miss;                /* for one missing expert */
    double hidden;              /* share of the work that reads hide behind */
    double link_work;           /* of making a draft, over `work` */
    double noise;
    double swing, period;             /* of its speed, when others use it too: a share, and in passes */
    double chance[DRIFTS][DEPTH_MAX]; /* of the j-th draft, in each part of the text */
};

struct run {
    double ns;
    uint64_t n_tokens, n_passes, n_drafted;
};

static double uniform(struct machine *m)
{
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(m->random >> 11) / 9007199254740992.0;
}

static double between(struct machine *m, double low, double high)
{
    return low * pow(high / low, uniform(m));
}

static struct machine make_machine(uint64_t seed, double swing)
{
    struct machine m = {.random = seed * 2654435761u + 17};
    for (int i = 0; i < 4; i++) uniform(&m);
    m.work = between(&m, 1e6, 1e9);
    m.slope = between(&m, 0.02, 0.8);
    m.jump = uniform(&m) < 0.5 ? 0 : uniform(&m) * 0.3;
    m.layers = uniform(&m) < 0.3 ? 2 : 75;
    m.per_row = 8;
    m.overlap = uniform(&m) * 0.7;
    m.warm = uniform(&m) < 0.3 ? 0 : uniform(&m);
    m.cold = fmin(1, m.warm + uniform(&m));
    m.warming = 1 + uniform(&m) * 60;
    m.miss = m.work / (m.layers * m.per_row) * between(&m, 0.01, 30);
    m.hidden = uniform(&m) * 0.8;
    m.link_work = (1 + uniform(&m)) / (m.layers + 2);
    m.noise = uniform(&m) * 0.15;
    for (int part = 0; part < DRIFTS; part++) {
        double chance = uniform(&m) < 0.15 ? 0 : uniform(&m), fall = 0.6 + 0.4 * uniform(&m);
        for (int j = 0; j < DEPTH_MAX; j++) m.chance[part][j] = chance *= j ? fall : 1;
    }
    m.swing = swing;
    m.period = 40 + (double)(seed % 100) * 8;
    return m;
}

/* One pass, or one step of making drafts: a share `work` of a pass's work, experts of `layers` layers. */
static struct pass_seen pass(struct machine *m, struct run *r, double n_rows, double work, double layers)
{
    double missing = m->warm + (m->cold - m->warm) * exp(-(double)r->n_passes / m->warming);
    double wanted = round(layers * m->per_row * (1 + (1 - m->overlap) * (n_rows - 1)));
    double missed = 0, spread = sqrt(wanted * missing * (1 - missing));
    for (int i = 0; i < 4; i++) missed += 2 * uniform(m) - 1; /* nearly normal, with a deviation of 1.15 */
    missed = fmin(fmax(round(wanted * missing + missed * spread / 1.15), 0), wanted);
    double busy = m->work * work * (1 + m->slope * (n_rows - 1) + (n_rows > 1 ? m->jump : 0));
    double noise = 1 + m->noise * (2 * uniform(m) - 1);
    noise *= 1 + m->swing * sin(r->ns / (m->work * m->period) * 2 * acos(-1));
    double waited = fmax(missed * m->miss - m->hidden * busy, missed * m->miss * 0.1);
    r->ns += noise * (busy + waited);
    if (uniform(m) < 0.002) busy *= 10; /* somebody else needed the processor; not held against anybody */
    return (struct pass_seen){.n_rows = (uint32_t)n_rows,
                              .ns = (int64_t)(noise * (busy + waited)),
                              .waited_ns = (int64_t)(noise * waited),
                              .n_wanted = (uint64_t)wanted,
                              .n_missed = (uint64_t)missed};
}

/* fixed < 0: as the controller says. */
static struct run run_machine(struct machine m, int fixed, struct draft_control *c)
{
    struct run r = {0};
    struct draft_hits own = {0};
    m.random += 99;
    const struct draft_prior prior = {.chance = 0.8, .link_work = 1 / (m.layers + 2), .link_wanted = 1 / m.layers};
    draft_control_init(c, &prior);
    while (r.n_tokens < TOKENS) {
        struct draft_row row = {.hits = &own, .n_max = DEPTH_MAX, .depth = (uint32_t)fixed};
        double began = r.ns;
        struct draft_forecast f = fixed < 0 ? draft_control_choose(c, &row, 1) : draft_control_foresee(c, &row, 1);
        uint32_t n_came = 0, part = r.n_tokens * DRIFTS / TOKENS;
        for (uint32_t j = 0; j < row.depth; j++) {
            struct pass_seen link = pass(&m, &r, j == 0 ? 2 : 1, m.link_work, 1);
            draft_control_saw_link(c, &link);
        }
        while (n_came < row.depth && uniform(&m) < m.chance[part][n_came]) n_came++;
        struct pass_seen seen = pass(&m, &r, 1 + row.depth, 1, m.layers);
        draft_control_saw_pass(c, &seen, row.depth);
        draft_control_saw_round(c, &f, 1 + n_came, (int64_t)(r.ns - began));
        draft_control_saw_drafts(c, &own, row.depth, n_came);
        r.n_tokens += 1 + n_came;
        r.n_drafted += row.depth;
        r.n_passes++;
    }
    return r;
}

static double rate(const struct run *r)
{
    return (double)r->n_tokens / r->ns;
}

/* The best fixed number is only known afterwards, and is another one for each part of the text. */
static void choose_on_machines(double swing)
{
    static struct draft_control control;
    double worst_best = 1e9, worst_plain = 1e9, mean_best = 0;
    uint64_t n_drafting = 0, n_behind_best = 0, n_behind_plain = 0;
    for (uint64_t seed = first_seed; seed < first_seed + n_machines; seed++) {
        struct machine m = make_machine(seed, swing);
        struct run best = {0}, plain = run_machine(m, 0, &control);
        int best_depth = 0;
        best = plain;
        for (int depth = 1; depth <= DEPTH_MAX; depth++) {
            struct run r = run_machine(m, depth, &control);
            if (rate(&r) > rate(&best)) {
                best = r;
                best_depth = depth;
            }
        }
        struct run chosen = run_machine(m, -1, &control);
        double to_best = rate(&chosen) / rate(&best), to_plain = rate(&chosen) / rate(&plain);
        n_drafting += best_depth > 0;
        mean_best += to_best / (double)n_machines;
        n_behind_best += to_best < 0.97;
        n_behind_plain += to_plain < 0.99;
        if (to_best < worst_best || to_plain < worst_plain)
            print_message(
                "seed %llu: %.3f of the best fixed (%d), %.3f of none; warm %.2f cold %.2f miss %.2f slope %.2f "
                "jump %.2f hidden %.2f layers %.0f link %.3f chances %.2f %.2f | %.2f %.2f, drafted %llu\n",
                (unsigned long long)seed, to_best, best_depth, to_plain, m.warm, m.cold,
                m.miss * m.layers * m.per_row / m.work, m.slope, m.jump, m.hidden, m.layers, m.link_work,
                m.chance[0][0], m.chance[0][1], m.chance[1][0], m.chance[1][1], (unsigned long long)chosen.n_drafted);
        if (to_best < worst_best) worst_best = to_best;
        if (to_plain < worst_plain) worst_plain = to_plain;
    }
    print_message(
        "%llu machines, drafts pay on %llu: at worst %.3f of the best fixed number (%.3f on average), %.3f of "
        "no drafts; behind: %llu, %llu\n",
        (unsigned long long)n_machines, (unsigned long long)n_drafting, worst_best, mean_best, worst_plain,
        (unsigned long long)n_behind_best, (unsigned long long)n_behind_plain);
    assert_true(n_drafting > n_machines / 10); /* or the machines are all alike */
    assert_true(n_drafting < n_machines * 9 / 10);
    assert_true(worst_best > 0.9 && worst_plain > 0.9);
    assert_true(n_behind_best * 50 <= n_machines);  /* more than 3 % behind the best */
    assert_true(n_behind_plain * 50 <= n_machines); /* more than 1 % behind none */
}

static void choosing_is_nearly_the_best(void **state)
{
    (void)state;
    choose_on_machines(0);
}

static void others_use_the_machine_too(void **state)
{
    (void)state;
    choose_on_machines(0.15);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(choosing_is_nearly_the_best),
                                       cmocka_unit_test(others_use_the_machine_too)};
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) n_machines = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
