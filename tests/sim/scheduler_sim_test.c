/* Random schedules on a tiny model: jobs of two priorities that join, share passes, share prefixes, draft, are
 * cancelled, fail or end by themselves. Whatever happens around it, a job's ids are those it gets alone on the engine;
 * and in the end every block and every byte is back.
 *
 *   scheduler_sim_test [FIRST_SEED [COUNT]]
 * runs other schedules than the ones of every commit; the seed of a failure is printed. */
#include "support/generation.h"
#include "run/random.h"
#include "run/scheduler.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <stdlib.h>

#define DIR "tests/fixtures/glm52-tiny/mtp"

enum { SPECS = 40, PROMPT_MAX = 100, ANSWER_MAX = 24, JOBS_MAX = 12, RUNNING = 4 };

#ifdef WEIR_SLOW_ASSERTS /* sanitizer builds are many times slower and look for other things */
enum { SCHEDULES = 150 };
#else
enum { SCHEDULES = 2000 };
#endif

static uint64_t first_seed = 1, n_schedules = SCHEDULES;

/* A job that may occur in schedules, and what it gives alone. */
struct spec {
    uint32_t prompt[PROMPT_MAX], n_prompt;
    struct sampling sampling;
    struct sampler_rules rules;
    struct job_thinking thinking;
    uint32_t answer[ANSWER_MAX], n_answer;
    enum stop_reason reason;
};

struct actor {
    struct job job;
    const struct spec *spec;
    uint32_t got[ANSWER_MAX], n_got;
    uint32_t cancel_after;   /* ids; UINT32_MAX: never */
    uint32_t dead_end_after; /* ids, from where on nothing is allowed and the job must fail; UINT32_MAX: never */
    bool is_done, was_started;
    struct job_result result;
};

struct world {
    struct alloc alloc;
    struct engine *engine;
    struct ssd_cache *ssd; /* outlives schedules: what one saved, another finds, as after a restart */
    struct spec specs[SPECS];
    uint64_t random;
};

static uint64_t roll(struct world *w, uint64_t n)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (w->random >> 33) % n;
}

static void answer_alone(struct world *w, struct spec *spec)
{
    struct session session;
    struct generation g;
    struct err err = {0};
    session_init(&session, w->engine);
    assert_true(generation_init(&g, &session, &spec->rules, engine_config(w->engine)->vocab, &err));
    if (!generation_start(&g, spec->prompt, spec->n_prompt, &err)) fail_msg("%s", err.text);
    for (;;) {
        struct sampled sampled;
        if (!generation_next(&g, &sampled, &err)) fail_msg("%s", err.text);
        if (g.reason != STOP_NONE) break;
        spec->answer[spec->n_answer++] = sampled.id;
    }
    spec->reason = g.reason;
    generation_fini(&g);
    session_fini(&session);
}

/* Prompts come in families that begin alike, so that prefixes are there to be shared; some repeat a pattern, so that
 * drafts from the text have something to find. */
static void make_spec(struct world *w, uint32_t i)
{
    struct spec *spec = &w->specs[i];
    uint32_t family = i % 5, n_common = 20 + family * 12, vocab = engine_config(w->engine)->vocab;
    spec->n_prompt = n_common + (uint32_t)roll(w, PROMPT_MAX - n_common - 1) + 1;
    for (uint32_t k = 0; k < spec->n_prompt; k++)
        spec->prompt[k] =
            (k < n_common ? family * 31 + k * (family % 2 ? 7 : 0) + k % 3 : (uint32_t)roll(w, vocab)) % vocab;
    if (i % 7 == 0) spec->n_prompt = n_common; /* exactly the common part */
    spec->sampling = sampling_built_in();
    spec->sampling.max_tokens = (int64_t)roll(w, ANSWER_MAX + 1);
    spec->sampling.temperature = i % 3 == 0 ? 0 : 0.8;
    if (i % 4 == 0) spec->sampling.repetition_penalty = 1.3;
    if (i % 6 == 0) spec->sampling.presence_penalty = 0.7;
    spec->rules = (struct sampler_rules){.sampling = &spec->sampling,
                                         .key = random_key_from_seed(i),
                                         .eos = engine_config(w->engine)->eos,
                                         .n_eos = engine_config(w->engine)->n_eos};
    answer_alone(w, spec);
}

static void see_started(void *context, const struct job_progress *progress)
{
    struct actor *a = context;
    assert_false(a->was_started);
    assert_true(progress->n_cached < a->spec->n_prompt);
    a->was_started = true;
}

static void see_progress(void *context, const struct job_progress *progress)
{
    struct actor *a = context;
    assert_true(progress->n_done <= a->spec->n_prompt);
    if (a->cancel_after == 0) job_cancel(&a->job); /* in the middle of its prompt */
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct actor *a = context;
    assert_false(a->is_done);
    if (a->n_got >= a->spec->n_answer || sampled->id != a->spec->answer[a->n_got])
        fail_msg("id %u of the answer is %u, and not what it is alone", a->n_got, sampled->id);
    a->n_got++;
    if (a->n_got == a->cancel_after) job_cancel(&a->job);
    return STOP_NONE;
}

static const uint64_t *see_allowed(void *context)
{
    static const uint64_t nothing[64];
    const struct actor *a = context;
    return a->n_got >= a->dead_end_after ? nothing : NULL;
}

static void see_done(void *context, const struct job_result *result)
{
    struct actor *a = context;
    assert_false(a->is_done);
    a->is_done = true;
    a->result = *result;
}

static void make_actor(struct world *w, struct actor *a)
{
    *a = (struct actor){.spec = &w->specs[roll(w, SPECS)], .cancel_after = UINT32_MAX, .dead_end_after = UINT32_MAX};
    if (roll(w, 5) == 0) a->cancel_after = (uint32_t)roll(w, 10);
    if (roll(w, 12) == 0) a->dead_end_after = (uint32_t)roll(w, 6);
    a->job.prompt = a->spec->prompt;
    a->job.n_prompt = a->spec->n_prompt;
    a->job.rules = &a->spec->rules;
    a->job.priority = roll(w, 3) == 0 ? JOB_BACKGROUND : JOB_INTERACTIVE;
    a->job.events = (struct job_events){.context = a,
                                        .started = see_started,
                                        .progress = see_progress,
                                        .token = see_token,
                                        .done = see_done,
                                        .allowed = see_allowed};
}

static void check_end(const struct actor *a)
{
    assert_true(a->is_done);
    if (a->result.reason == STOP_CANCELLED) {
        assert_true(atomic_load(&a->job.is_cancelled));
        return;
    }
    if (a->result.reason == STOP_ERROR) { /* and nobody else fails with it */
        assert_int_equal(a->n_got, a->dead_end_after);
        assert_non_null(strstr(a->result.err.text, "grammar_dead_end"));
        return;
    }
    assert_int_equal(a->result.reason, a->spec->reason);
    assert_int_equal(a->n_got, a->spec->n_answer);
    assert_int_equal(a->result.usage.n_generated, a->n_got);
    assert_int_equal(a->result.usage.n_prompt, a->spec->n_prompt);
}

static void run_schedule(struct world *w, uint64_t seed, uint64_t *n_shared, uint64_t *n_accepted)
{
    struct err err = {0};
    struct sim_clock time = {0};
    struct scheduler *scheduler;
    static struct actor actors[JOBS_MAX];
    w->random = seed * 2654435761u + 12345;
    const struct scheduler_settings settings = {
        .n_tokens = engine_config(w->engine)->vocab,
        .n_running_max = 1 + (uint32_t)roll(w, RUNNING),
        .n_waiting_max = JOBS_MAX,
        .prefix_blocks_max = roll(w, 3) ? (uint32_t)roll(w, 20) : 0,
        .decode_stall_ns_max = 1000,
        .draft = (enum draft_kind)roll(w, 3),
        .n_drafts_max = 1 + (uint32_t)roll(w, 4),
        .ngram_min = 1,
        .ngram_max = 3,
        .ssd = roll(w, 4) ? NULL : w->ssd,
        .demote_idle_ns = 50000,
        .clock = clock_simulated(&time),
    };
    assert_true(scheduler_new(&scheduler, w->engine, &settings, &err));
    size_t n_jobs = 1 + roll(w, JOBS_MAX), n_submitted = 0;
    for (size_t i = 0; i < n_jobs; i++) make_actor(w, &actors[i]);
    for (;;) {
        while (n_submitted < n_jobs && roll(w, 3) == 0)
            if (!scheduler_submit(scheduler, &actors[n_submitted++].job, &err)) fail_msg("%s", err.text);
        time.now_ns += (int64_t)roll(w, 100000);
        if (roll(w, 20) == 0) scheduler_give_up_prefix(scheduler);
        if (!scheduler_step(scheduler) && n_submitted == n_jobs) break;
        if (roll(w, 200) == 0) break; /* the engine is closed in the middle of things */
    }
    struct scheduler_stats stats = scheduler_stats(scheduler);
    bool ran_out = stats.n_waiting == 0 && stats.n_running == 0 && n_submitted == n_jobs;
    *n_shared += stats.n_cached_tokens;
    *n_accepted += stats.n_accepted;
    scheduler_free(scheduler);
    for (size_t i = 0; i < n_submitted; i++) {
        assert_true(actors[i].is_done);
        if (ran_out) check_end(&actors[i]);
    }
    assert_int_equal(forward_kv_pool(engine_forward(w->engine))->n_blocks, 0);
}

static void a_job_does_not_feel_its_neighbours(void **state)
{
    (void)state;
    static struct world w;
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(DIR);
    uint64_t n_shared = 0, n_accepted = 0, n_restored = 0, n_index = 0;
    settings.n_threads = 1;
    settings.context_tokens = 128;
    settings.pass_rows = 40;
    settings.logit_rows = RUNNING * 5;
    if (!engine_open(&w.engine, &w.alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    struct temp_folder folder;
    temp_folder_make(&folder);
    const struct ssd_settings ssd = {.dir = folder.path,
                                     .bytes_max = 6 << 20,
                                     .identity = {.model = {1}},
                                     .pool = forward_kv_pool(engine_forward(w.engine)),
                                     .fs = file_system_real(),
                                     .saver = {.ws = write_system_real(), .clock = clock_real()}};
    w.random = 99;
    for (uint32_t i = 0; i < SPECS; i++) make_spec(&w, i);
    kv_pool_trim(forward_kv_pool(engine_forward(w.engine)));
    uint64_t live = atomic_load(&w.alloc.live);
    for (uint64_t seed = first_seed; seed < first_seed + n_schedules; seed++) {
        if (seed % 500 == 1) print_message("seed %llu\n", (unsigned long long)seed);
        if (seed % 40 == 1 && w.ssd) { /* a restart: the index is made anew from the folder */
            n_restored += ssd_cache_stats(w.ssd).n_restored;
            ssd_cache_close(w.ssd);
            w.ssd = NULL;
        }
        if (!w.ssd) {
            if (!ssd_cache_open(&w.ssd, &w.alloc, &ssd, &err)) fail_msg("%s", err.text);
            n_index = atomic_load(&w.alloc.live) - live - ssd_cache_stats(w.ssd).n_states;
        }
        run_schedule(&w, seed, &n_shared, &n_accepted);
        kv_pool_trim(forward_kv_pool(engine_forward(w.engine)));
        /* those of the index itself, and one for each state that it knows */
        if (atomic_load(&w.alloc.live) != live + n_index + ssd_cache_stats(w.ssd).n_states)
            fail_msg("seed %llu leaks", (unsigned long long)seed);
    }
    print_message("%llu schedules, %llu prompt tokens shared, %llu drafts accepted\n", (unsigned long long)n_schedules,
                  (unsigned long long)n_shared, (unsigned long long)n_accepted);
    print_message("%llu states restored from disk\n", (unsigned long long)n_restored);
    if (n_schedules > 100) assert_true(n_restored > 0); /* or nothing came from disk */
    assert_int_equal(ssd_cache_stats(w.ssd).n_failed, 0);
    ssd_cache_close(w.ssd);
    temp_folder_remove(&folder);
    assert_true(n_shared > 0);   /* or the test saw no prefix reuse */
    assert_true(n_accepted > 0); /* or no speculation */
    engine_close(w.engine);
    assert_int_equal(w.alloc.live, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_job_does_not_feel_its_neighbours)};
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) n_schedules = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
