/* The choice of how many drafts, on simulated machines: processors and disks of many speeds, caches that warm up, texts
 * that are easy or hard to foresee and change in the middle. Whatever the machine, choosing is nearly as fast as the
 * best fixed number of drafts, and never noticeably slower than none.
 *
 * What the clock shows, and the controller learns from, is what the work takes times what others do to the machine.
 * Ways are compared by the work alone, and a draft at a place of the text is right for all of them or for none: what is
 * between two ways is what they chose.
 *
 *   draft_control_sim_test [FIRST_SEED [COUNT]]
 * runs other machines than the ones of every commit; the seed of a failure is printed. */
#include "base/philox.h"
#include "run/draft_control.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

enum { DEPTH_MAX = 7, MACHINES = 300, PARTS = 2, OCTAVES = 3 };

static uint64_t first_seed = 1, n_machines = MACHINES;

/* Texts, and how much others use the machine meanwhile. */
struct setting {
    uint32_t n_turns, turn_tokens;
    uint32_t n_uncounted;                       /* turns at first */
    double others[OCTAVES];                     /* how far the speed strays, within some passes, tens, and hundreds */
    double least;                               /* of the best and of none, on any machine */
    double behind_best_most, behind_plain_most; /* shares of the machines: by more than 3 %, by more than 1 % */
};

/* What is true, and what the controller has to find out. Times are in ns. */
struct machine {
    uint64_t seed, random;
    double work, slope, jump;        /* of one row; of a row more, and once for more than one, over that */
    double layers, per_row;          /* sparse layers, experts of a row in each */
    double overlap;                  /* of a row's experts with those of the rows before it */
    double cold, warm, warming;      /* shares that are missing at first and later, and passes in between */
    double miss;                     /* for one missing expert */
    double hidden;                   /* share of the work that reads hide behind */
    double link_work;                /* of making a draft, over `work` */
    double noise;                    /* of each pass by itself */
    double chance[PARTS][DEPTH_MAX]; /* of the j-th draft, in each part of the text */
};

struct run {
    const struct machine *machine;
    const struct setting *setting;
    struct draft_hits own;
    uint64_t random;
    double wall_ns, work_ns, counted_ns;
    uint64_t n_tokens, n_counted, n_passes, n_drafted;
};

static double uniform(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*random >> 11) / 9007199254740992.0;
}

static double between(uint64_t *random, double low, double high)
{
    return low * pow(high / low, uniform(random));
}

static struct machine make_machine(uint64_t seed)
{
    struct machine m = {.seed = seed};
    uint64_t r = seed * 2654435761u + 17;
    for (int i = 0; i < 4; i++) uniform(&r);
    m.work = between(&r, 1e6, 1e9);
    m.slope = between(&r, 0.02, 0.8);
    m.jump = uniform(&r) < 0.5 ? 0 : uniform(&r) * 0.3;
    m.layers = uniform(&r) < 0.3 ? 2 : 75;
    m.per_row = 8;
    m.overlap = uniform(&r) * 0.7;
    m.warm = uniform(&r) < 0.3 ? 0 : uniform(&r);
    m.cold = fmin(1, m.warm + uniform(&r));
    m.warming = 1 + uniform(&r) * 60;
    m.miss = m.work / (m.layers * m.per_row) * between(&r, 0.01, 30);
    m.hidden = uniform(&r) * 0.8;
    m.link_work = (1 + uniform(&r)) / (m.layers + 2);
    m.noise = uniform(&r) * 0.15;
    for (int part = 0; part < PARTS; part++) {
        double chance = uniform(&r) < 0.15 ? 0 : uniform(&r), fall = 0.6 + 0.4 * uniform(&r);
        for (int j = 0; j < DEPTH_MAX; j++) m.chance[part][j] = chance *= j ? fall : 1;
    }
    m.random = r;
    return m;
}

/* --- others --- */

static double at_knot(const struct run *r, int octave, double knot)
{
    return 2 * philox_unit(r->machine->seed << 8 ^ (uint64_t)octave, (uint64_t)knot) - 1;
}

/* By the wall's time only, and so the same for all ways. The slowest part jumps, the others slide. */
static double slowness(const struct run *r)
{
    static const double passes[OCTAVES] = {2, 25, 300};
    double log_of = 0;
    for (int i = 0; i < OCTAVES; i++) {
        double x = r->wall_ns / (r->machine->work * passes[i]), knot = floor(x), part = i + 1 < OCTAVES ? x - knot : 0;
        log_of += r->setting->others[i] * ((1 - part) * at_knot(r, i, knot) + part * at_knot(r, i, knot + 1));
    }
    return exp(log_of);
}

/* --- passes --- */

static double wait_for(const struct machine *m, double missed, double busy)
{
    return fmax(missed * m->miss - m->hidden * busy, missed * m->miss * 0.1);
}

/* One pass, or one step of making drafts: a share `work` of a pass's work, experts of `layers` layers. */
static struct pass_seen pass(struct run *r, double n_rows, double work, double layers)
{
    const struct machine *m = r->machine;
    double missing = m->warm + (m->cold - m->warm) * exp(-(double)r->n_passes / m->warming);
    double wanted = round(layers * m->per_row * (1 + (1 - m->overlap) * (n_rows - 1)));
    double missed = 0, spread = sqrt(wanted * missing * (1 - missing));
    for (int i = 0; i < 4; i++) missed += 2 * uniform(&r->random) - 1; /* nearly normal, with a deviation of 1.15 */
    missed = fmin(fmax(round(wanted * missing + missed * spread / 1.15), 0), wanted);
    double busy = m->work * work * (1 + m->slope * (n_rows - 1) + (n_rows > 1 ? m->jump : 0));
    double noise = (1 + m->noise * (2 * uniform(&r->random) - 1)) * slowness(r);
    if (uniform(&r->random) < 0.002) noise *= 10; /* somebody else needed the processor */
    double waited = noise * wait_for(m, missed, busy), took = noise * busy + waited;
    r->wall_ns += took;
    r->work_ns += busy + wait_for(m, wanted * missing, busy);
    return (struct pass_seen){.n_rows = (uint32_t)n_rows,
                              .ns = (int64_t)took,
                              .waited_ns = (int64_t)waited,
                              .n_wanted = (uint64_t)wanted,
                              .n_missed = (uint64_t)missed};
}

static bool comes_true(const struct run *r, uint64_t at, uint32_t j)
{
    uint64_t n_tokens = (uint64_t)r->setting->n_turns * r->setting->turn_tokens;
    uint64_t part = at * PARTS / n_tokens;
    if (part >= PARTS) return false;
    double coin = philox_unit(r->machine->seed, at), chance = r->machine->chance[part][j];
    return coin < chance;
}

/* fixed < 0: as the controller says. */
static void round_of(struct run *r, struct draft_control *c, int fixed)
{
    struct draft_row row = {.hits = &r->own, .n_max = DEPTH_MAX, .depth = (uint32_t)fixed};
    double began = r->wall_ns;
    struct draft_forecast f = fixed < 0 ? draft_control_choose(c, &row, 1) : draft_control_foresee(c, &row, 1);
    uint32_t n_came = 0;
    for (uint32_t j = 0; j < row.depth; j++) {
        struct pass_seen link = pass(r, j == 0 ? 2 : 1, r->machine->link_work, 1);
        draft_control_saw_link(c, &link);
    }
    while (n_came < row.depth && comes_true(r, r->n_tokens + n_came, n_came)) n_came++;
    struct pass_seen seen = pass(r, 1 + row.depth, 1, r->machine->layers);
    draft_control_saw_pass(c, &seen, row.depth);
    draft_control_saw_round(c, &f, 1 + n_came, (int64_t)(r->wall_ns - began));
    draft_control_saw_drafts(c, &r->own, row.depth, n_came);
    r->n_tokens += 1 + n_came;
    r->n_drafted += row.depth;
    r->n_passes++;
}

/* Turns begin at the same time whatever was chosen before. */
static struct run run_machine(const struct machine *m, const struct setting *setting, int fixed)
{
    static struct draft_control control;
    const struct draft_prior prior = {.chance = 0.8, .link_work = 1 / (m->layers + 2), .link_wanted = 1 / m->layers};
    struct run r = {.machine = m, .setting = setting, .random = m->random};
    draft_control_init(&control, &prior);
    for (uint32_t turn = 0; turn < setting->n_turns; turn++) {
        double counted = r.work_ns;
        uint64_t from = r.n_tokens = (uint64_t)turn * setting->turn_tokens;
        r.own = (struct draft_hits){0};
        r.wall_ns = turn * 10.0 * setting->turn_tokens * m->work;
        while (r.n_tokens < from + setting->turn_tokens) round_of(&r, &control, fixed);
        if (turn < setting->n_uncounted) continue;
        r.n_counted += r.n_tokens - from;
        r.counted_ns += r.work_ns - counted;
    }
    return r;
}

static double rate(const struct run *r)
{
    return (double)r->n_counted / r->counted_ns;
}

/* What the machines of one setting showed. */
struct tally {
    double worst_to_best, worst_to_plain, sum_to_best;
    uint64_t n_machines, n_drafting, n_behind_best, n_behind_plain;
};

static void print_machine(const struct machine *m, const struct run *chosen, int best, double to_best, double to_plain)
{
    print_message(
        "seed %llu: %.3f of the best fixed (%d), %.3f of none; warm %.2f cold %.2f warming %.0f miss %.2f "
        "slope %.2f jump %.2f hidden %.2f layers %.0f link %.3f chances %.2f %.2f | %.2f %.2f, drafted %llu\n",
        (unsigned long long)m->seed, to_best, best, to_plain, m->warm, m->cold, m->warming,
        m->miss * m->layers * m->per_row / m->work, m->slope, m->jump, m->hidden, m->layers, m->link_work,
        m->chance[0][0], m->chance[0][1], m->chance[1][0], m->chance[1][1], (unsigned long long)chosen->n_drafted);
}

/* The best fixed number is only known afterwards, and is another one for each part of the text. */
static void try_machine(struct tally *t, const struct setting *setting, uint64_t seed)
{
    struct machine m = make_machine(seed);
    struct run plain = run_machine(&m, setting, 0), best = plain, chosen = run_machine(&m, setting, -1);
    int best_depth = 0;
    for (int depth = 1; depth <= DEPTH_MAX; depth++) {
        struct run r = run_machine(&m, setting, depth);
        if (rate(&r) <= rate(&best)) continue;
        best = r;
        best_depth = depth;
    }
    double to_best = rate(&chosen) / rate(&best), to_plain = rate(&chosen) / rate(&plain);
    if (to_best < t->worst_to_best || to_plain < t->worst_to_plain)
        print_machine(&m, &chosen, best_depth, to_best, to_plain);
    t->n_machines++;
    t->n_drafting += best_depth > 0;
    t->n_behind_best += to_best < 0.97;
    t->n_behind_plain += to_plain < 0.99;
    t->sum_to_best += to_best;
    t->worst_to_best = fmin(t->worst_to_best, to_best);
    t->worst_to_plain = fmin(t->worst_to_plain, to_plain);
}

static void choose_on_machines(const struct setting *setting)
{
    struct tally t = {.worst_to_best = 1e9, .worst_to_plain = 1e9};
    for (uint64_t i = 0; i < n_machines; i++) try_machine(&t, setting, first_seed + i);
    print_message(
        "%llu machines, drafts pay on %llu: at worst %.3f of the best fixed number (%.3f on average), %.3f of "
        "no drafts; behind: %llu, %llu\n",
        (unsigned long long)t.n_machines, (unsigned long long)t.n_drafting, t.worst_to_best,
        t.sum_to_best / (double)t.n_machines, t.worst_to_plain, (unsigned long long)t.n_behind_best,
        (unsigned long long)t.n_behind_plain);
    assert_true(t.n_drafting > t.n_machines / 10); /* or the machines are all alike */
    assert_true(t.n_drafting < t.n_machines * 9 / 10);
    assert_true(t.worst_to_best > setting->least && t.worst_to_plain > setting->least);
    assert_true(t.n_behind_best <= setting->behind_best_most * (double)t.n_machines);
    assert_true(t.n_behind_plain <= setting->behind_plain_most * (double)t.n_machines);
}

static void one_text(void **state)
{
    const struct setting setting = {
        .n_turns = 1, .turn_tokens = 3000, .least = 0.9, .behind_best_most = 0.02, .behind_plain_most = 0.02};
    (void)state;
    choose_on_machines(&setting);
}

static void others_use_the_machine_too(void **state)
{
    const struct setting setting = {.n_turns = 1,
                                    .turn_tokens = 3000,
                                    .others = {0.2, 0.1, 0.3},
                                    .least = 0.9,
                                    .behind_best_most = 0.02,
                                    .behind_plain_most = 0.02};
    (void)state;
    choose_on_machines(&setting);
}

/* A sequence each, of which nothing is known; and 768 tokens are few to learn a machine from that strays so. */
static void short_answers_while_others_use_the_machine(void **state)
{
    const struct setting setting = {.n_turns = 33,
                                    .turn_tokens = 24,
                                    .n_uncounted = 1,
                                    .others = {0.2, 0.1, 0.3},
                                    .least = 0.8,
                                    .behind_best_most = 0.12,
                                    .behind_plain_most = 0.1};
    (void)state;
    choose_on_machines(&setting);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_text), cmocka_unit_test(others_use_the_machine_too),
                                       cmocka_unit_test(short_answers_while_others_use_the_machine)};
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) n_machines = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
