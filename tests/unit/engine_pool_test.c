/* Which of several engines may be open: never more than there are seats, whoever waited longest next, nobody cut,
 * nobody left out. */
#include "run/engine_pool.h"
#include "support/check.h"

enum { MEMBERS = 5 };

struct rig {
    struct alloc alloc;
    struct engine_pool *pool;
    unsigned n_nudges[MEMBERS];
};

static void count_nudge(void *context)
{
    ++*(unsigned *)context;
}

static void rig_open(struct rig *r, uint32_t n_seats, uint32_t n_members)
{
    struct err err = {0};
    *r = (struct rig){0};
    if (!engine_pool_new(&r->pool, &r->alloc, n_seats, n_members, &err)) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < n_members; i++) engine_pool_join(r->pool, i, count_nudge, &r->n_nudges[i]);
}

static void rig_close(struct rig *r)
{
    engine_pool_free(r->pool);
    assert_int_equal(r->alloc.live, 0);
}

/* The member has work, or has none, and is told so. */
static void expect(struct rig *r, uint32_t member, bool has_work, enum pool_word word)
{
    enum pool_word got = engine_pool_ask(r->pool, member, has_work);
    if (got != word) fail_msg("member %u is told %d, not %d", (unsigned)member, (int)got, (int)word);
}

static void only_work_gets_a_seat(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, 2);
    expect(&r, 0, false, POOL_REST);
    assert_false(engine_pool_end(r.pool, 0));
    expect(&r, 0, true, POOL_RUN);
    expect(&r, 0, false, POOL_RUN); /* and keeps it while nobody else wants it */
    expect(&r, 1, false, POOL_REST);
    assert_false(engine_pool_end(r.pool, 0));
    rig_close(&r);
}

static void the_idle_one_of_long_ago_leaves_first(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 3, 4);
    for (uint32_t i = 0; i < 3; i++) expect(&r, i, true, POOL_RUN);
    expect(&r, 0, false, POOL_RUN);
    expect(&r, 1, false, POOL_RUN);
    expect(&r, 0, true, POOL_RUN); /* used since 1 was */
    expect(&r, 0, false, POOL_RUN);
    unsigned before = r.n_nudges[1];
    expect(&r, 3, true, POOL_REST);
    assert_true(r.n_nudges[1] > before); /* it hears of it */
    expect(&r, 0, false, POOL_RUN);
    expect(&r, 2, true, POOL_RUN);
    expect(&r, 1, false, POOL_LEAVE);
    assert_true(engine_pool_end(r.pool, 1));
    expect(&r, 3, true, POOL_REST); /* not before the process is gone */
    before = r.n_nudges[3];
    engine_pool_left(r.pool, 1);
    assert_true(r.n_nudges[3] > before);
    expect(&r, 3, true, POOL_RUN);
    rig_close(&r);
}

static void a_busy_one_leaves_when_none_is_idle_and_stays_if_nobody_waits(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 2, 3);
    expect(&r, 0, true, POOL_RUN);
    expect(&r, 1, true, POOL_RUN);
    expect(&r, 2, true, POOL_REST);
    expect(&r, 0, true, POOL_LEAVE); /* it had work before 1 had */
    expect(&r, 1, true, POOL_RUN);
    expect(&r, 2, false, POOL_REST); /* its clients have left */
    expect(&r, 0, true, POOL_RUN);
    assert_false(engine_pool_end(r.pool, 0));
    expect(&r, 2, true, POOL_REST);
    expect(&r, 1, true, POOL_LEAVE);  /* now 0 had work last */
    expect(&r, 0, false, POOL_LEAVE); /* and it is idle first, so it goes at once */
    expect(&r, 1, true, POOL_RUN);
    assert_false(engine_pool_end(r.pool, 1));
    assert_true(engine_pool_end(r.pool, 0));
    expect(&r, 2, false, POOL_REST); /* too late for 0 to stay */
    expect(&r, 0, true, POOL_LEAVE);
    engine_pool_left(r.pool, 0);
    expect(&r, 0, true, POOL_RUN);
    rig_close(&r);
}

static void seats_are_given_in_the_order_of_asking(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1, MEMBERS);
    static const uint32_t order[] = {2, 4, 1, 3};
    expect(&r, 0, true, POOL_RUN);
    for (int i = 0; i < 4; i++) expect(&r, order[i], true, POOL_REST);
    engine_pool_left(r.pool, 0); /* it crashed: a seat is a seat */
    expect(&r, 0, true, POOL_REST);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++)
            if (k > i) expect(&r, order[k], true, POOL_REST);
        expect(&r, order[i], true, POOL_LEAVE);
        assert_true(engine_pool_end(r.pool, order[i]));
        engine_pool_left(r.pool, order[i]);
    }
    expect(&r, 0, true, POOL_RUN);
    rig_close(&r);
}

/* Members as services are: they get work, run it, leave when they are told to and have nothing to run. */
struct simulated {
    bool has_process, ends;
    unsigned n_waiting, n_running, n_served;
    unsigned asked; /* the look at which it asked for the seat that it waits for; 0: it does not */
};

static uint64_t random_state;
static unsigned draw(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

static void check_order(const struct simulated *members, const struct simulated *m)
{
    for (uint32_t k = 0; k < MEMBERS; k++)
        if (members[k].asked > 0 && members[k].asked < m->asked) fail_msg("member %u is passed over", (unsigned)k);
}

static void look_up(struct rig *r, struct simulated *members, uint32_t i, unsigned look)
{
    struct simulated *m = &members[i];
    bool has_work = m->n_waiting + m->n_running > 0;
    enum pool_word word = engine_pool_ask(r->pool, i, has_work);
    if (!m->has_process && word == POOL_REST) m->asked = !has_work ? 0 : m->asked ? m->asked : look;
    if (m->ends || word == POOL_REST) return;
    if (!m->has_process) {
        check_order(members, m);
        m->has_process = true;
        m->asked = 0;
    } else if (word == POOL_LEAVE) {
        if (m->n_running == 0) m->ends = engine_pool_end(r->pool, i);
        return;
    }
    m->n_running += m->n_waiting; /* all that wait, at its turn, and what comes later */
    m->n_waiting = 0;
}

/* One thing happens to one member. */
static void happen(struct rig *r, struct simulated *m, uint32_t i, bool goes_on)
{
    unsigned what = draw(8);
    if (what == 0 && goes_on) m->n_waiting++;
    if (what == 1 && m->n_waiting > 0 && draw(4) == 0) m->n_waiting--;  /* a client leaves */
    if (what == 2 && (m->ends || (m->has_process && draw(200) == 0))) { /* the process ends, or crashes */
        m->has_process = m->ends = false;
        m->n_running = 0;
        engine_pool_left(r->pool, i);
    }
    if (what > 2 && m->n_running > 0) m->n_running--, m->n_served++;
}

static void any_course_keeps_the_rules(void **state)
{
    (void)state;
    enum { SEEDS = 40, STEPS = 4000, LAST_STEPS = 40000 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig r;
        struct simulated members[MEMBERS] = {0};
        uint32_t n_seats = 1 + (uint32_t)(seed % 3);
        unsigned look = 0, n_served = 0, n_left = 1;
        random_state = seed;
        rig_open(&r, n_seats, MEMBERS);
        /* Nothing new comes in the end, and everybody is answered. */
        for (unsigned step = 0; step < STEPS || (n_left > 0 && step < LAST_STEPS); step++) {
            uint32_t i = draw(MEMBERS), n_processes = 0;
            happen(&r, &members[i], i, step < STEPS);
            n_left = 0;
            for (uint32_t k = 0; k < MEMBERS; k++) {
                look_up(&r, members, k, ++look);
                n_processes += members[k].has_process;
                n_left += members[k].n_waiting + members[k].n_running;
            }
            if (n_processes > n_seats) fail_msg("seed %d: %u processes", (int)seed, (unsigned)n_processes);
        }
        if (n_left > 0) fail_msg("seed %d: %u are never answered", (int)seed, n_left);
        for (int k = 0; k < MEMBERS; k++) {
            assert_true(members[k].n_served > 0);
            n_served += members[k].n_served;
        }
        if (seed % 10 == 1) printf("seed %d: %u seats, %u served\n", (int)seed, (unsigned)n_seats, n_served);
        rig_close(&r);
    }
}

static void a_pool_needs_memory(void **state)
{
    (void)state;
    struct alloc alloc = {.fail_at = 1};
    struct engine_pool *pool;
    struct err err = {0};
    assert_false(engine_pool_new(&pool, &alloc, 1, 2, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
    engine_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_work_gets_a_seat),
        cmocka_unit_test(the_idle_one_of_long_ago_leaves_first),
        cmocka_unit_test(a_busy_one_leaves_when_none_is_idle_and_stays_if_nobody_waits),
        cmocka_unit_test(seats_are_given_in_the_order_of_asking),
        cmocka_unit_test(any_course_keeps_the_rules),
        cmocka_unit_test(a_pool_needs_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
