/* An hour of random traffic in simulated time: people who come, talk for some turns, leave in the middle, come back
 * after a while, over an engine that streams its experts from a simulated disk and saves states beside. In the end
 * memory, descriptors, leases and blocks are what they were before the first of them came.
 *
 *   soak_test [SEED [SECONDS]] */
#include "run/random.h"
#include "run/scheduler.h"
#include "run/state_identity.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#define S INT64_C(1000000000)

#ifdef WEIR_SLOW_ASSERTS /* sanitizer builds are many times slower */
enum { SIMULATED_S = 300 };
#else
enum { SIMULATED_S = 3600 };
#endif

enum { PEOPLE = 12, CONTEXT = 192, TALK_MAX = CONTEXT - 8, VOCAB = 40, RUNNING = 4 };

static uint64_t first_seed = 1, simulated_s = SIMULATED_S;

/* Somebody and the conversation so far. */
struct person {
    struct soak *soak;
    struct job job;
    struct sampling sampling;
    struct sampler_rules rules;
    uint32_t ids[CONTEXT + 8], n, n_prompt;
    int64_t comes_ns;  /* with the next turn */
    int64_t leaves_ns; /* without waiting for the answer; INT64_MAX: stays */
    bool is_waiting;   /* for an answer */
    uint32_t n_turns;
};

struct soak {
    struct alloc alloc;
    struct sim_clock time;
    struct aio_sim device;
    struct faulty_write faulty;
    struct temp_folder model, states;
    struct engine *engine;
    struct ssd_cache *ssd;
    struct scheduler *scheduler;
    struct person people[PEOPLE];
    uint64_t random;
    uint64_t n_answers, n_left, n_failed, n_refused, n_restarts;
    uint64_t n_passes, n_cached, n_finishes, n_finishes_held, n_saved, n_restored, n_unsaved;
};

static uint64_t roll(struct soak *s, uint64_t n)
{
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->random >> 33) % n;
}

static bool make_device(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    struct soak *s = context;
    return aio_sim_new(aio, alloc, depth, &s->device, &s->time, err);
}

static uint32_t descriptors(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* --- the engine and what is around it --- */

static void open_engine(struct soak *s)
{
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(s->model.path);
    settings.n_threads = 1;
    settings.context_tokens = CONTEXT;
    settings.n_sequences = RUNNING;
    settings.pass_rows = 24;
    settings.prompt_cache_bytes = 1 << 20;
    settings.ram_budget_bytes = UINT64_C(1) << 29;
    settings.experts_resident = 0.3;
    settings.streamed.direct = DIRECT_OFF;
    settings.streamed.device = (struct device_source){make_device, s};
    settings.streamed.clock = clock_simulated(&s->time);
    if (!engine_open(&s->engine, &s->alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
}

static void open_scheduler(struct soak *s)
{
    struct err err = {0};
    struct kv_pool *pool = forward_kv_pool(engine_forward(s->engine));
    const struct ssd_settings ssd = {
        .dir = s->states.path,
        .bytes_max = 1 << 20,
        .identity = state_identity_of(s->engine),
        .pool = pool,
        .fs = file_system_real(),
        .saver = {.ws = faulty_write_system(&s->faulty), .clock = clock_simulated(&s->time)}};
    if (!ssd_cache_open(&s->ssd, &s->alloc, &ssd, &err)) fail_msg("%s", err.text);
    const struct scheduler_settings settings = {.n_tokens = engine_config(s->engine)->vocab,
                                                .n_running_max = RUNNING,
                                                .n_waiting_max = 4,
                                                .prefix_blocks_max = pool->n_blocks_max,
                                                .decode_stall_ns_max = 5 * S,
                                                .ngram_min = 1,
                                                .ngram_max = 3,
                                                .ssd = s->ssd,
                                                .demote_idle_ns = 60 * S,
                                                .clock = clock_simulated(&s->time)};
    if (!scheduler_new(&s->scheduler, s->engine, &settings, &err)) fail_msg("%s", err.text);
}

static void close_scheduler(struct soak *s)
{
    struct scheduler_stats stats = scheduler_stats(s->scheduler);
    s->n_passes += stats.n_passes;
    s->n_cached += stats.n_cached_tokens;
    s->n_finishes += stats.n_finishes_told;
    s->n_finishes_held += stats.n_finishes_held;
    scheduler_free(s->scheduler);
    struct ssd_stats ssd = ssd_cache_stats(s->ssd);
    s->n_saved += ssd.n_saved;
    s->n_restored += ssd.n_restored;
    s->n_unsaved += ssd.n_failed;
    ssd_cache_close(s->ssd);
    s->scheduler = NULL;
    s->ssd = NULL;
}

/* --- people --- */

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct person *p = context;
    p->ids[p->n++] = sampled->id;
    return STOP_NONE;
}

static void see_done(void *context, const struct job_result *result)
{
    struct person *p = context;
    struct soak *s = p->soak;
    p->is_waiting = false;
    s->n_answers += result->reason != STOP_CANCELLED && result->reason != STOP_ERROR;
    s->n_left += result->reason == STOP_CANCELLED;
    s->n_failed += result->reason == STOP_ERROR;
    p->comes_ns = s->time.now_ns + (int64_t)(1 + roll(s, roll(s, 6) ? 20 : 200)) * S;
    if (roll(s, 10) == 0) p->n = 0; /* somebody else takes the seat */
}

/* The next turn: a few ids behind the conversation, which begins anew when it is too long. */
static void come(struct soak *s, struct person *p)
{
    struct err err = {0};
    if (p->n + 40 > TALK_MAX) p->n = 0;
    uint32_t n_new = 1 + (uint32_t)roll(s, p->n == 0 ? 60 : 12);
    if (p->n == 0 && roll(s, 2)) /* many begin alike */
        for (uint32_t i = 0; i < 20; i++) p->ids[p->n++] = i % VOCAB;
    while (n_new-- > 0) p->ids[p->n++] = (uint32_t)roll(s, VOCAB);
    p->n_prompt = p->n;
    p->sampling = sampling_built_in();
    p->sampling.max_tokens = 1 + (int64_t)roll(s, 24);
    p->rules = (struct sampler_rules){.sampling = &p->sampling, .key = random_key_from_seed(p->n_turns++)};
    p->job = (struct job){.prompt = p->ids,
                          .n_prompt = p->n_prompt,
                          .rules = &p->rules,
                          .priority = roll(s, 4) ? JOB_INTERACTIVE : JOB_BACKGROUND,
                          .events = {.context = p, .token = see_token, .done = see_done}};
    p->leaves_ns = roll(s, 5) ? INT64_MAX : s->time.now_ns + (int64_t)roll(s, 8) * S;
    p->is_waiting = true;
    if (scheduler_submit(s->scheduler, &p->job, &err)) return;
    assert_int_equal(err.kind, ERR_BUSY);
    p->is_waiting = false;
    p->n = 0;
    p->comes_ns = s->time.now_ns + 5 * S;
    s->n_refused++;
}

static void let_people_act(struct soak *s)
{
    for (int i = 0; i < PEOPLE; i++) {
        struct person *p = &s->people[i];
        if (p->is_waiting && s->time.now_ns >= p->leaves_ns) job_cancel(&p->job);
        if (!p->is_waiting && s->time.now_ns >= p->comes_ns) come(s, p);
    }
}

/* Time passes to whatever comes next, when nothing runs. */
static void wait_for_somebody(struct soak *s)
{
    int64_t next = scheduler_due_ns(s->scheduler);
    for (int i = 0; i < PEOPLE; i++) {
        const struct person *p = &s->people[i];
        if (!p->is_waiting && p->comes_ns < next) next = p->comes_ns;
    }
    if (ssd_cache_is_saving(s->ssd)) next = s->time.now_ns + S / 100;
    if (next > s->time.now_ns) s->time.now_ns = next;
}

static void see_hidden(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct soak *s = context;
    (void)x;
    if (layer == 0) s->time.now_ns += S / 5 + (int64_t)n_rows * (S / 20);
}

static void run(struct soak *s)
{
    int64_t end = s->time.now_ns + (int64_t)simulated_s * S, restart = s->time.now_ns + 600 * S;
    while (s->time.now_ns < end) {
        let_people_act(s);
        if (roll(s, 200) == 0) { /* the disk for states is ill for one operation */
            s->faulty.fail_at = s->faulty.calls + 1 + roll(s, 10);
            s->faulty.error = ENOSPC;
        }
        if (roll(s, 500) == 0) scheduler_give_up_prefix(s->scheduler);
        if (!scheduler_step(s->scheduler)) wait_for_somebody(s);
        if (engine_streamed(s->engine))
            assert_int_equal(slots_stats(streamed_slots(engine_streamed(s->engine)))->n_leased, 0); /* between passes */
        if (s->time.now_ns < restart) continue;
        close_scheduler(s); /* who waits is sent away */
        open_scheduler(s);
        s->n_restarts++;
        restart += 600 * S;
    }
}

static void an_hour_leaves_nothing_behind(void **state)
{
    (void)state;
    static struct soak s;
    struct made_model made;
    s = (struct soak){.random = first_seed, .time.now_ns = S};
    s.device = (struct aio_sim){.seed = first_seed, .delay_ns_min = 1000, .delay_ns_max = 2000000, .short_chance = 20};
    for (int i = 0; i < PEOPLE; i++) s.people[i] = (struct person){.soak = &s, .comes_ns = S * (1 + i)};
    temp_folder_make(&s.model);
    temp_folder_make(&s.states);
    made_model_tiny(&made);
    made_write(&made, s.model.path);
    made_model_fini(&made);

    uint32_t fds_outside = descriptors();
    open_engine(&s);
    const struct forward_observer observer = {.context = &s, .hidden = see_hidden};
    forward_observe(engine_forward(s.engine), &observer);
    struct kv_pool *pool = forward_kv_pool(engine_forward(s.engine));
    uint64_t live = atomic_load(&s.alloc.live), bytes = atomic_load(&s.alloc.live_bytes);
    uint32_t fds = descriptors();
    open_scheduler(&s);
    run(&s);
    close_scheduler(&s);
    kv_pool_trim(pool);
    print_message("seed %llu, %llu s simulated: %llu answers, %llu left, %llu refused, %llu failed, %llu restarts\n",
                  (unsigned long long)first_seed, (unsigned long long)simulated_s, (unsigned long long)s.n_answers,
                  (unsigned long long)s.n_left, (unsigned long long)s.n_refused, (unsigned long long)s.n_failed,
                  (unsigned long long)s.n_restarts);
    print_message("%llu passes, %llu tokens known, %llu of %llu finishes held, %llu states saved, %llu restored, %llu "
                  "saves failed\n",
                  (unsigned long long)s.n_passes, (unsigned long long)s.n_cached, (unsigned long long)s.n_finishes_held,
                  (unsigned long long)s.n_finishes, (unsigned long long)s.n_saved, (unsigned long long)s.n_restored,
                  (unsigned long long)s.n_unsaved);
    for (int i = 0; i < PEOPLE; i++) assert_false(s.people[i].is_waiting); /* everybody heard an end */
    assert_true(s.n_answers > simulated_s / 20);
    assert_true(s.n_left > 0);
    assert_true(s.n_refused > 0);
    assert_true(s.n_saved > 0);
    assert_true(s.n_finishes_held * 10 >= s.n_finishes * 8);
    assert_int_equal(s.n_failed, 0); /* a disk for states that fails is nobody's failure */
    assert_int_equal(pool->n_blocks, 0);
    assert_int_equal(slots_stats(streamed_slots(engine_streamed(s.engine)))->n_leased, 0);
    assert_int_equal(atomic_load(&s.alloc.live), live);
    assert_int_equal(atomic_load(&s.alloc.live_bytes), bytes);
    assert_int_equal(descriptors(), fds);
    engine_close(s.engine);
    assert_int_equal(s.alloc.live, 0);
    assert_int_equal(descriptors(), fds_outside);
    temp_folder_remove(&s.states);
    temp_folder_remove(&s.model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_hour_leaves_nothing_behind)};
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) simulated_s = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
