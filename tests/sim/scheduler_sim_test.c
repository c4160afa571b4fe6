/* Random schedules on a tiny model: jobs of two priorities that join, share passes, share prefixes, draft, are
 * cancelled, fail or end by themselves, in memory for as many blocks as they need and few more, over states on a disk
 * that fails now and then, saved beside them and found again after restarts. Whatever happens around it, a job's ids
 * are those it gets alone on the engine; and in the end every block and every byte is back.
 *
 * The same schedules with rows that leak into their neighbours, or with states that come back changed, must be seen.
 *
 *   scheduler_sim_test [FIRST_SEED [COUNT]]
 * runs other schedules than the ones of every commit; the seed of a failure is printed. */
#include "support/generation.h"
#include "run/random.h"
#include "run/scheduler.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#define MODEL "tests/fixtures/glm52-tiny/mtp"

enum { SPECS = 40, PROMPT_MAX = 100, ANSWER_MAX = 24, JOBS_MAX = 12, RUNNING = 4, PASS_ROWS = 40, DRAFTS = 7 };

/* Rows that one of all jobs may fill, less the one that is no draft. */
enum { STRETCH_MAX = (PASS_ROWS + RUNNING * (1 + DRAFTS)) / RUNNING - 1 };

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
    double logprob[ANSWER_MAX]; /* of each id, over the whole row of logits, where the rules want them */
    enum stop_reason reason;
};

struct actor {
    struct world *world;
    struct job job;
    const struct spec *spec;
    uint32_t got[ANSWER_MAX], n_got;
    uint32_t cancel_after;   /* ids; UINT32_MAX: never */
    uint32_t dead_end_after; /* ids, from where on nothing is allowed and the job must fail; UINT32_MAX: never */
    uint32_t forced;         /* a bit for each id of the answer: nothing else is allowed in its place */
    uint64_t mask[64];
    bool is_done, was_started;
    struct job_result result;
};

enum wrong { RIGHT, ROWS_LEAK, STATES_CHANGE, FORCED_LIE };

struct actor;

struct world {
    struct alloc alloc;
    struct sim_clock time;
    struct faulty_write faulty;
    struct temp_folder folder;
    enum wrong wrong;
    uint64_t n_wrong_ids, n_faults;
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
        spec->logprob[spec->n_answer] = sampled.logprobs.chosen.value;
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
                                         .n_eos = engine_config(w->engine)->n_eos,
                                         .wants_logprobs = i % 2 == 1};
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
    bool is_right = a->n_got < a->spec->n_answer && sampled->id == a->spec->answer[a->n_got];
    if (is_right && a->spec->rules.wants_logprobs) /* bit for bit: it depends on every logit of the row */
        is_right = memcmp(&sampled->logprobs.chosen.value, &a->spec->logprob[a->n_got], sizeof(double)) == 0;
    if (!is_right && a->world->wrong != RIGHT) {
        a->world->n_wrong_ids++;
        return STOP_ID;
    }
    if (!is_right)
        fail_msg("id %u of the answer is %u; it or its logits are not what they are alone", a->n_got, sampled->id);
    a->n_got++;
    if (a->n_got == a->cancel_after) job_cancel(&a->job);
    return STOP_NONE;
}

static const uint64_t *see_allowed(void *context)
{
    static const uint64_t nothing[64];
    struct actor *a = context;
    if (a->n_got >= a->dead_end_after) return nothing;
    if (a->n_got >= a->spec->n_answer || !(a->forced >> a->n_got & 1)) return NULL;
    uint32_t id = a->spec->answer[a->n_got];
    memset(a->mask, 0, sizeof a->mask);
    a->mask[id / 64] |= UINT64_C(1) << (id % 64);
    return a->mask;
}

static uint32_t see_forced(void *context, uint32_t *ids, uint32_t n_max)
{
    const struct actor *a = context;
    uint32_t n = 0, at = a->n_got;
    while (n < n_max && at < a->spec->n_answer && at < a->dead_end_after && (a->forced >> at & 1))
        ids[n++] = a->spec->answer[at++];
    if (n > 1 && a->world->wrong == FORCED_LIE) ids[1] ^= 1; /* not the one that is allowed */
    return n;
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
    *a = (struct actor){
        .world = w, .spec = &w->specs[roll(w, SPECS)], .cancel_after = UINT32_MAX, .dead_end_after = UINT32_MAX};
    if (roll(w, 5) == 0) a->cancel_after = (uint32_t)roll(w, 10);
    if (roll(w, 12) == 0) a->dead_end_after = (uint32_t)roll(w, 6);
    if (roll(w, 3) == 0) a->forced = (uint32_t)(roll(w, 1 << 24) | roll(w, 1 << 24));
    a->job.prompt = a->spec->prompt;
    a->job.n_prompt = a->spec->n_prompt;
    a->job.rules = &a->spec->rules;
    a->job.priority = roll(w, 3) == 0 ? JOB_BACKGROUND : JOB_INTERACTIVE;
    a->job.events = (struct job_events){.context = a,
                                        .started = see_started,
                                        .progress = see_progress,
                                        .token = see_token,
                                        .done = see_done,
                                        .allowed = see_allowed,
                                        .forced = see_forced};
}

/* The prompt's last pass gives the first id; each other one a stretch of forced ids, and the one behind it. Whoever
 * wants log-probabilities wants a row of logits for each id. */
static uint32_t passes_at_most(const struct actor *a)
{
    if (a->spec->rules.wants_logprobs) return a->n_got;
    uint32_t n = 1, at = 1;
    while (at < a->n_got) {
        for (uint32_t run = 0; run < STRETCH_MAX && at < a->n_got && (a->forced >> at & 1); run++) at++;
        at++;
        n++;
    }
    return n;
}

static void check_end(const struct actor *a)
{
    assert_true(a->is_done);
    if (a->world->wrong != RIGHT) return;
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
    if (a->result.reason == STOP_LENGTH && a->n_got > 0) { /* what was drafted or forced took no pass of its own */
        const struct job_usage *u = &a->result.usage;
        assert_int_equal(u->n_passes + u->n_accepted + u->n_forced, u->n_generated);
        assert_true(u->n_passes <= passes_at_most(a));
    }
    assert_int_equal(a->result.usage.n_prompt, a->spec->n_prompt);
}

/* One of the next writes, or what belongs to it, fails. */
static void fail_soon(struct world *w)
{
    if (w->faulty.fail_at > w->faulty.calls) return;
    w->faulty.fail_at = w->faulty.calls + 1 + roll(w, 12);
    w->faulty.error = roll(w, 2) ? ENOSPC : EIO;
    w->n_faults++;
}

/* What all schedules together came across. */
struct seen {
    uint64_t n_shared, n_accepted, n_forced, n_weighed, n_restarts;
};

/* Time that passes while it is looked at, more or less: what drafts seem to cost is another thing each time. */
static int64_t rough_now(void *context)
{
    struct world *w = context;
    return w->time.now_ns += 1 + (int64_t)roll(w, 2000);
}

static void rough_sleep(void *context, int64_t ns)
{
    struct world *w = context;
    w->time.now_ns += ns;
}

static const struct clock_ops rough_ops = {rough_now, rough_sleep};

static void run_schedule(struct world *w, uint64_t seed, struct seen *seen)
{
    struct err err = {0};
    struct scheduler *scheduler;
    static struct actor actors[JOBS_MAX];
    static const uint32_t depths[] = {1, 2, 3, 7};
    w->random = seed * 2654435761u + 12345;
    const struct scheduler_settings settings = {
        .n_tokens = engine_config(w->engine)->vocab,
        .n_running_max = 1 + (uint32_t)roll(w, RUNNING),
        .n_waiting_max = JOBS_MAX,
        .prefix_blocks_max = roll(w, 3) ? (uint32_t)roll(w, 20) : 0,
        .decode_stall_ns_max = 1000,
        .draft = (enum draft_kind)roll(w, 3),
        .weighs_drafts = roll(w, 3) == 0,
        .n_drafts_max = depths[roll(w, 4)],
        .ngram_min = 1,
        .ngram_max = 3,
        .ssd = roll(w, 4) ? NULL : w->ssd,
        .demote_idle_ns = 50000,
        .clock = {&rough_ops, w},
    };
    struct kv_pool *pool = forward_kv_pool(engine_forward(w->engine));
    pool->n_blocks_max = 2 + (uint32_t)roll(w, 14); /* one job needs two at most */
    assert_true(scheduler_new(&scheduler, w->engine, &settings, &err));
    size_t n_jobs = 1 + roll(w, JOBS_MAX), n_submitted = 0;
    for (size_t i = 0; i < n_jobs; i++) make_actor(w, &actors[i]);
    for (;;) {
        while (n_submitted < n_jobs && roll(w, 3) == 0)
            if (!scheduler_submit(scheduler, &actors[n_submitted++].job, &err)) fail_msg("%s", err.text);
        w->time.now_ns += (int64_t)roll(w, 100000);
        if (roll(w, 300) == 0) fail_soon(w);
        if (roll(w, 20) == 0) scheduler_give_up_prefix(scheduler);
        bool is_over = !scheduler_step(scheduler) && n_submitted == n_jobs;
        if (is_over && roll(w, 2)) w->time.now_ns += settings.demote_idle_ns; /* what rests is saved now */
        if (is_over && !ssd_cache_is_saving(w->ssd) && scheduler_due_ns(scheduler) > w->time.now_ns) break;
        if (roll(w, 200) == 0) break; /* the engine is closed in the middle of things */
    }
    struct scheduler_stats stats = scheduler_stats(scheduler);
    bool ran_out = stats.n_waiting == 0 && stats.n_running == 0 && n_submitted == n_jobs;
    seen->n_shared += stats.n_cached_tokens;
    seen->n_accepted += stats.n_accepted;
    seen->n_forced += stats.n_forced;
    seen->n_weighed += settings.weighs_drafts ? stats.drafts.n_passes : 0;
    seen->n_restarts += stats.drafts.n_restarts;
    scheduler_free(scheduler);
    for (size_t i = 0; i < n_submitted; i++) {
        assert_true(actors[i].is_done);
        if (ran_out) check_end(&actors[i]);
    }
    ssd_cache_finish(w->ssd);
    w->faulty.fail_at = 0;
    assert_int_equal(pool->n_blocks, 0);
    pool->n_blocks_max = UINT32_MAX;
}

/* --- the world --- */

static void open_states(struct world *w)
{
    struct err err = {0};
    const struct ssd_settings settings = {
        .dir = w->folder.path,
        .bytes_max = 6 << 20,
        .identity = {.model = {1}},
        .pool = forward_kv_pool(engine_forward(w->engine)),
        .fs = file_system_real(),
        .saver = {.ws = faulty_write_system(&w->faulty), .clock = clock_simulated(&w->time)}};
    if (!ssd_cache_open(&w->ssd, &w->alloc, &settings, &err)) fail_msg("%s", err.text);
}

static void world_open(struct world *w)
{
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(MODEL);
    memset(w, 0, sizeof *w);
    settings.n_threads = 1;
    settings.context_tokens = 128;
    settings.pass_rows = PASS_ROWS;
    settings.logit_rows = RUNNING * (1 + DRAFTS);
    if (!engine_open(&w->engine, &w->alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    temp_folder_make(&w->folder);
    w->random = 99;
    for (uint32_t i = 0; i < SPECS; i++) make_spec(w, i);
    kv_pool_trim(forward_kv_pool(engine_forward(w->engine)));
}

static void world_close(struct world *w)
{
    ssd_cache_close(w->ssd);
    engine_close(w->engine);
    temp_folder_remove(&w->folder);
    assert_int_equal(w->alloc.live, 0);
}

static void a_job_does_not_feel_its_neighbours(void **state)
{
    (void)state;
    static struct world w;
    struct seen seen = {0};
    uint64_t n_restored = 0, n_restarts = 0, n_failed = 0, n_index = 0;
    world_open(&w);
    uint64_t live = atomic_load(&w.alloc.live);
    for (uint64_t seed = first_seed; seed < first_seed + n_schedules; seed++) {
        if (seed % 500 == 1) print_message("seed %llu\n", (unsigned long long)seed);
        if (seed % 7 == 1 && w.ssd) { /* a restart: the index is made anew from the folder */
            n_restored += ssd_cache_stats(w.ssd).n_restored;
            n_failed += ssd_cache_stats(w.ssd).n_failed;
            n_restarts++;
            ssd_cache_close(w.ssd);
            w.ssd = NULL;
        }
        if (!w.ssd) {
            open_states(&w);
            n_index = atomic_load(&w.alloc.live) - live - ssd_cache_stats(w.ssd).n_states;
        }
        uint64_t n_lost = ssd_cache_stats(w.ssd).n_failed;
        run_schedule(&w, seed, &seen);
        kv_pool_trim(forward_kv_pool(engine_forward(w.engine)));
        /* those of the index itself, one for each state that it knows, and the ids of one that could not be saved */
        n_lost = ssd_cache_stats(w.ssd).n_failed - n_lost;
        uint64_t most = live + n_index + ssd_cache_stats(w.ssd).n_states + (n_failed + n_lost > 0 || w.n_faults > 0);
        if (atomic_load(&w.alloc.live) > most) fail_msg("seed %llu leaks", (unsigned long long)seed);
    }
    print_message("%llu schedules, %llu restarts; %llu prompt tokens shared, %llu drafts accepted\n",
                  (unsigned long long)n_schedules, (unsigned long long)n_restarts, (unsigned long long)seen.n_shared,
                  (unsigned long long)seen.n_accepted);
    print_message("%llu ids forced, %llu passes with drafts that were weighed, %llu restarts of the MTP layer\n",
                  (unsigned long long)seen.n_forced, (unsigned long long)seen.n_weighed,
                  (unsigned long long)seen.n_restarts);
    print_message("%llu states restored from disk, %llu not saved because of %llu faults\n",
                  (unsigned long long)n_restored, (unsigned long long)n_failed, (unsigned long long)w.n_faults);
    if (n_schedules > 100) {
        assert_true(n_restored > 0); /* or nothing came from disk */
        assert_true(w.n_faults > 0); /* few of them meet a save: those that do are e2e/state_test's */
        assert_true(n_failed <= w.n_faults);
        assert_true(seen.n_shared > 0);   /* or the test saw no prefix reuse */
        assert_true(seen.n_accepted > 0); /* or no speculation */
        assert_true(seen.n_forced > 0 && seen.n_weighed > 0 && seen.n_restarts > 0);
    }
    world_close(&w);
}

/* --- wrong on purpose --- */

/* The first row of a pass leaks into the others, a little. */
static void leak(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    const struct world *w = context;
    size_t hidden = engine_config(w->engine)->hidden;
    float *rows = (float *)(uintptr_t)x; /* an observer must not; this one is a mistake on purpose */
    for (size_t r = 1; layer == 1 && r < n_rows; r++)
        for (size_t i = 0; i < hidden; i++) rows[r * hidden + i] += 0.05f * rows[i];
}

/* The first row of every saved state is changed, under checksums that are right. */
static void change_states(struct world *w)
{
    DIR *dir = opendir(w->folder.path);
    const struct state_identity identity = {.model = {1}};
    struct kv_pool *pool = forward_kv_pool(engine_forward(w->engine));
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct err err = {0};
        struct token_list ids;
        struct kv kv;
        bool is_torn;
        if (!strstr(entry->d_name, ".weirkv")) continue;
        const char *path = temp_path(&w->folder, entry->d_name);
        token_list_init(&ids, &w->alloc, 1 << 20);
        kv_init(&kv, pool);
        if (!state_file_peek(path, &w->alloc, file_system_real(), &identity, &pool->layout, &ids, &err) ||
            !state_file_read(path, &w->alloc, file_system_real(), &identity, &kv, ids.ids, (uint32_t)ids.n, &is_torn,
                             &err))
            fail_msg("%s", err.text);
        float *row = (float *)(uintptr_t)kv_latent(&kv, 0, 0, NULL);
        for (uint32_t i = 0; i < pool->layout.latent_width; i++) row[i] = -row[i];
        if (!state_file_write(path, &w->alloc, write_system_real(), &identity, &kv, ids.ids, (uint32_t)ids.n, &err))
            fail_msg("%s", err.text);
        kv_fini(&kv);
        token_list_fini(&ids);
    }
    closedir(dir);
}

static void mistakes_are_seen(void **state)
{
    (void)state;
    enum { SEEDS_MAX = 200 };
    static struct world w;
    static const char *const names[] = {
        [ROWS_LEAK] = "rows leak", [STATES_CHANGE] = "states change", [FORCED_LIE] = "forced ids lie"};
    for (enum wrong wrong = ROWS_LEAK; wrong <= FORCED_LIE; wrong++) {
        struct seen unused = {0};
        uint64_t seed = 1;
        world_open(&w);
        w.wrong = wrong;
        const struct forward_observer observer = {.context = &w, .hidden = leak};
        if (wrong == ROWS_LEAK) forward_observe(engine_forward(w.engine), &observer);
        for (; w.n_wrong_ids == 0 && seed < SEEDS_MAX; seed++) {
            open_states(&w);
            run_schedule(&w, seed, &unused);
            ssd_cache_close(w.ssd);
            w.ssd = NULL;
            if (wrong == STATES_CHANGE) change_states(&w);
        }
        forward_observe(engine_forward(w.engine), NULL);
        print_message("%s: seen in schedule %llu\n", names[wrong], (unsigned long long)seed - 1);
        assert_true(w.n_wrong_ids > 0);
        world_close(&w);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_job_does_not_feel_its_neighbours),
                                       cmocka_unit_test(mistakes_are_seen)};
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) n_schedules = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
