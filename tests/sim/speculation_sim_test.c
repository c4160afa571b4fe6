/* Speculation never changes an answer: random schedules on a small container that streams from a simulated disk, with
 * memory for any number of experts down to the smallest plan and budgets that shrink on the way. Jobs greedy and drawn,
 * with penalties, constraints, stretches that a grammar forces, stop strings and tool calls share passes, are cancelled
 * in the middle of a round and go on behind restored prefixes, some of which end in the middle of another's answer. The
 * way of drafting is another one in each schedule: none, the MTP layer with 1, 2, 3 or 7 drafts or as many as pay, the
 * text itself. Random weights never guess right, so drafts are made to come true as often as each job's coin says; some
 * of any round hold and some do not. Every id is the one that the job gets alone, token by token, without a scheduler.
 *
 *   speculation_sim_test [FIRST_SEED [COUNT]]
 * runs other schedules than the ones of every commit; the seed of a failure is printed. */
#include "run/random.h"
#include "run/scheduler.h"
#include "run/session.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <stdlib.h>

enum {
    VOCAB = 64,
    END = VOCAB - 1,
    SPECS = 60,
    PROMPT_MAX = 48,
    ANSWER_MAX = 22,
    CONTEXT = 80,
    JOBS_MAX = 8,
    RUNNING = 4,
    DRAFTS = 7,
};

#ifdef WEIR_SLOW_ASSERTS /* sanitizer builds are many times slower and look for other things */
enum { SCHEDULES = 60 };
#else
enum { SCHEDULES = 600 };
#endif

static uint64_t first_seed = 1, n_schedules = SCHEDULES;

static const char config_text[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 64, \"hidden_size\": 64, \"num_hidden_layers\": 4,"
    " \"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"first_k_dense_replace\": 1, \"n_routed_experts\": 12,"
    " \"num_experts_per_tok\": 3, \"n_shared_experts\": 1, \"routed_scaling_factor\": 2.5, \"num_attention_heads\": 2,"
    " \"q_lora_rank\": 32, \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 4, \"v_head_dim\": 16,"
    " \"index_topk\": 16, \"index_n_heads\": 2, \"index_head_dim\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,"
    " \"eos_token_id\": 63, \"num_nextn_predict_layers\": 1, \"index_share_for_mtp_iteration\": true,"
    " \"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]}";

enum language { ANYTHING, TWO_THIRDS, STRETCHES, LANGUAGES };

/* A job that may occur in schedules, and what it gives alone. */
struct spec {
    uint32_t prompt[PROMPT_MAX], n_prompt;
    struct sampling sampling;
    struct sampler_rules rules;
    enum language language;
    uint32_t stop_pair, tool; /* the ids that end it: two in a row, as residues; one. VOCAB: none */
    uint32_t answer[ANSWER_MAX], n_answer;
    enum stop_reason reason;
};

static struct temp_folder folder;
static struct spec specs[SPECS];

static uint64_t roll(uint64_t *random, uint64_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % n;
}

/* --- the languages: what may come behind an answer's ids --- */

static uint32_t forced_id(const struct spec *spec, const uint32_t *ids, uint32_t n)
{
    uint32_t last = n > 0 ? ids[n - 1] : spec->prompt[0];
    return (last * 5 + n) % END;
}

static bool is_forced(const struct spec *spec, uint32_t n)
{
    return spec->language == STRETCHES && n / 3 % 2 == 1;
}

static const uint64_t *allowed_behind(const struct spec *spec, const uint32_t *ids, uint32_t n, uint64_t mask[1])
{
    uint32_t last = n > 0 ? ids[n - 1] : 0;
    if (spec->language == ANYTHING || (spec->language == STRETCHES && !is_forced(spec, n))) return NULL;
    mask[0] = 0;
    if (is_forced(spec, n)) mask[0] = UINT64_C(1) << forced_id(spec, ids, n);
    for (uint32_t id = 0; spec->language == TWO_THIRDS && id < VOCAB; id++)
        if ((id * 7 + last * 3 + n) % 3 != 0) mask[0] |= UINT64_C(1) << id;
    return mask;
}

/* What whoever reads an answer says behind its newest id. */
static enum stop_reason verdict(const struct spec *spec, const uint32_t *ids, uint32_t n)
{
    if (ids[n - 1] == spec->tool) return STOP_TOOL;
    if (n > 1 && spec->stop_pair < VOCAB && (ids[n - 2] + 3 * ids[n - 1]) % 11 == spec->stop_pair) return STOP_STRING;
    return STOP_NONE;
}

/* --- alone --- */

static void answer_alone(struct engine *engine, struct spec *spec)
{
    struct session session;
    struct sampler sampler = {0};
    struct history history = {0};
    struct err err = {0};
    uint32_t max = (uint32_t)spec->sampling.max_tokens;
    session_init(&session, engine);
    bool ok = sampler_init(&sampler, engine_alloc(engine), VOCAB, VOCAB, &err) &&
              history_reserve(&history, engine_alloc(engine), CONTEXT, &err);
    history_start(&history, spec->prompt, spec->n_prompt);
    ok = ok && session_feed(&session, spec->prompt, spec->n_prompt, NULL, NULL, &err);
    while (ok && spec->reason == STOP_NONE) {
        uint64_t mask[1];
        struct sampled sampled;
        const struct sampler_input input = {.logits = session.logits,
                                            .history = &history,
                                            .allowed = allowed_behind(spec, spec->answer, spec->n_answer, mask)};
        ok = sampler_pick(&sampler, &spec->rules, &input, &sampled, &err);
        if (!ok) break;
        spec->reason = stop_on_id(sampled.id, spec->rules.eos, spec->rules.n_eos, &spec->sampling);
        if (spec->reason != STOP_NONE) break;
        history_push(&history, sampled.id);
        spec->answer[spec->n_answer++] = sampled.id;
        spec->reason = verdict(spec, spec->answer, spec->n_answer);
        if (spec->reason == STOP_NONE && spec->n_answer == max) spec->reason = STOP_LENGTH;
        ok = session_feed(&session, &sampled.id, 1, NULL, NULL, &err);
    }
    if (!ok) fail_msg("alone: %s", err.text);
    history_fini(&history);
    sampler_fini(&sampler);
    session_fini(&session);
}

/* Prompts of a family begin alike. Every third one goes on in the middle of the answer of the one before it. */
static void make_prompt(uint64_t *random, uint32_t i)
{
    struct spec *spec = &specs[i];
    const struct spec *before = i > 0 ? &specs[i - 1] : NULL;
    uint32_t family = i % 4, n_common = 6 + family * 5;
    if (i % 3 == 2 && before->n_answer > 2 && before->n_prompt < PROMPT_MAX - ANSWER_MAX) {
        uint32_t n = 1 + (uint32_t)roll(random, before->n_answer - 1);
        memcpy(spec->prompt, before->prompt, sizeof spec->prompt);
        memcpy(spec->prompt + before->n_prompt, before->answer, n * sizeof *spec->prompt);
        spec->n_prompt = before->n_prompt + n;
        return;
    }
    spec->n_prompt = n_common + (uint32_t)roll(random, 5);
    for (uint32_t k = 0; k < spec->n_prompt; k++)
        spec->prompt[k] = (k < n_common ? family * 31 + k * 7 % 5 : (uint32_t)roll(random, END)) % END;
}

static void make_spec(struct engine *engine, uint64_t *random, uint32_t i)
{
    static const uint32_t eos[] = {END};
    struct spec *spec = &specs[i];
    make_prompt(random, i);
    spec->sampling = sampling_built_in();
    spec->sampling.max_tokens = 1 + (int64_t)roll(random, ANSWER_MAX);
    spec->sampling.temperature = i % 2 ? 0 : 0.9;
    if (i % 5 == 1) spec->sampling.top_k = 7;
    if (i % 3 == 0) spec->sampling.repetition_penalty = 1.3;
    if (i % 4 == 0) spec->sampling.presence_penalty = 0.7;
    if (i % 5 == 0) spec->sampling.frequency_penalty = 0.4;
    spec->language = (enum language)(i / 2 % LANGUAGES);
    spec->stop_pair = i % 4 == 3 ? (uint32_t)roll(random, 11) : VOCAB;
    spec->tool = i % 6 == 4 ? (uint32_t)roll(random, VOCAB) : VOCAB;
    spec->rules = (struct sampler_rules){.sampling = &spec->sampling,
                                         .key = random_key_from_seed(i),
                                         .eos = eos,
                                         .n_eos = 1,
                                         .wants_logprobs = i % 7 == 0};
    answer_alone(engine, spec);
}

/* --- the world --- */

enum wrong { RIGHT, ROWS_LEAK };

struct world {
    uint64_t seed, random;
    struct alloc alloc;
    struct sim_clock clock;
    struct aio_sim device;
    struct engine *engine;
    struct draft_choice drafts; /* that the engine's plan is made for */
    enum wrong wrong;
    uint64_t n_wrong_ids;
};

struct actor {
    struct world *world;
    const struct spec *spec;
    struct job job;
    uint32_t got[ANSWER_MAX], n_got, cancel_after, percent;
    uint64_t mask[1];
    bool is_done;
    struct job_result result;
};

/* What all schedules together came across, by way of drafting. */
enum way { WAY_OFF, WAY_1, WAY_2, WAY_3, WAY_7, WAY_AUTO, WAY_NGRAM, WAYS };
static struct seen {
    uint64_t n_schedules, n_drafted, n_accepted, n_forced, n_cancelled, n_cached, n_restarts, n_smallest;
} seen[WAYS];

static bool make_device(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    struct world *w = context;
    return aio_sim_new(aio, alloc, depth, &w->device, &w->clock, err);
}

static void open_engine(struct world *w, double share)
{
    struct err err = {0};
    struct engine_settings s = engine_settings_default(folder.path);
    s.n_threads = 1;
    s.context_tokens = CONTEXT;
    s.n_sequences = RUNNING;
    s.logit_rows = RUNNING * (1 + DRAFTS);
    s.pass_rows = 40;
    s.drafts = w->drafts;
    s.prompt_cache_bytes = 0;
    s.ram_budget_bytes = UINT64_C(1) << 29;
    s.experts_resident = share;
    s.streamed.direct = DIRECT_OFF;
    s.streamed.prefetch = roll(&w->random, 2);
    s.streamed.device = (struct device_source){make_device, w};
    s.streamed.clock = clock_simulated(&w->clock);
    w->device = (struct aio_sim){.seed = w->seed, .delay_ns_max = (int64_t)roll(&w->random, 20000000)};
    if (!engine_open(&w->engine, &w->alloc, file_system_real(), &s, &err))
        fail_msg("seed %llu: %s", (unsigned long long)w->seed, err.text);
}

static void close_engine(struct world *w)
{
    engine_close(w->engine);
    assert_int_equal(w->alloc.live, 0);
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct actor *a = context;
    assert_false(a->is_done);
    if (a->n_got >= a->spec->n_answer || sampled->id != a->spec->answer[a->n_got]) {
        if (a->world->wrong == RIGHT)
            fail_msg("seed %llu: id %u of an answer is %u", (unsigned long long)a->world->seed, a->n_got, sampled->id);
        a->world->n_wrong_ids++;
        return STOP_ID;
    }
    a->got[a->n_got++] = sampled->id;
    if (a->n_got == a->cancel_after) job_cancel(&a->job);
    return verdict(a->spec, a->got, a->n_got);
}

static enum stop_reason accept_token(void *context, const struct sampled *sampled)
{
    (void)context;
    (void)sampled;
    return STOP_NONE;
}

static void see_done(void *context, const struct job_result *result)
{
    struct actor *a = context;
    assert_false(a->is_done);
    a->is_done = true;
    a->result = *result;
}

static const uint64_t *see_allowed(void *context)
{
    struct actor *a = context;
    return allowed_behind(a->spec, a->got, a->n_got, a->mask);
}

static uint32_t see_forced(void *context, uint32_t *ids, uint32_t n_max)
{
    const struct actor *a = context;
    uint32_t all[ANSWER_MAX + 64], n = a->n_got;
    memcpy(all, a->got, n * sizeof *all);
    while (n - a->n_got < n_max && n < ANSWER_MAX + 64 && is_forced(a->spec, n)) {
        all[n] = forced_id(a->spec, all, n);
        ids[n - a->n_got] = all[n];
        n++;
    }
    return n - a->n_got;
}

static uint32_t see_draft(void *context, uint32_t at, uint32_t id)
{
    const struct actor *a = context;
    uint32_t place = at - a->spec->n_prompt;
    uint64_t coin = (a->world->seed * 131 + at) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    return place < a->spec->n_answer && coin % 100 < a->percent ? a->spec->answer[place] : id;
}

static void make_actor(struct world *w, struct actor *a)
{
    static const uint32_t percents[] = {0, 60, 90, 100};
    *a = (struct actor){.world = w,
                        .spec = &specs[roll(&w->random, SPECS)],
                        .cancel_after = UINT32_MAX,
                        .percent = percents[roll(&w->random, 4)]};
    if (roll(&w->random, 6) == 0) a->cancel_after = 1 + (uint32_t)roll(&w->random, ANSWER_MAX);
    a->job.prompt = a->spec->prompt;
    a->job.n_prompt = a->spec->n_prompt;
    a->job.rules = &a->spec->rules;
    a->job.events = (struct job_events){.context = a,
                                        .token = see_token,
                                        .done = see_done,
                                        .allowed = see_allowed,
                                        .forced = a->spec->language == STRETCHES ? see_forced : NULL,
                                        .draft = see_draft};
}

static void check_end(const struct actor *a)
{
    assert_true(a->is_done);
    if (a->world->wrong != RIGHT) return;
    if (a->result.reason == STOP_CANCELLED) {
        assert_true(a->n_got >= a->cancel_after);
        return;
    }
    assert_int_equal(a->result.reason, a->spec->reason);
    assert_int_equal(a->n_got, a->spec->n_answer);
    assert_int_equal(a->result.usage.n_generated, a->n_got);
    assert_true(a->result.usage.n_accepted <= a->result.usage.n_drafted);
}

static struct scheduler_settings settings_of(struct world *w, enum way way)
{
    static const uint32_t depths[WAYS] = {0, 1, 2, 3, 7, 7, 5};
    return (struct scheduler_settings){.n_tokens = VOCAB,
                                       .n_running_max = 1 + (uint32_t)roll(&w->random, RUNNING),
                                       .n_waiting_max = JOBS_MAX,
                                       .prefix_blocks_max = (uint32_t)roll(&w->random, 12),
                                       .decode_stall_ns_max = INT64_C(1000000000),
                                       .draft = way == WAY_OFF     ? DRAFT_OFF
                                                : way == WAY_NGRAM ? DRAFT_NGRAM
                                                                   : DRAFT_MTP,
                                       .weighs_drafts = way == WAY_AUTO,
                                       .n_drafts_max = depths[way],
                                       .ngram_min = 1,
                                       .ngram_max = 3,
                                       .demote_idle_ns = INT64_MAX,
                                       .clock = clock_simulated(&w->clock)};
}

static void run_jobs(struct world *w, struct scheduler *scheduler, struct seen *s)
{
    static struct actor actors[JOBS_MAX];
    struct err err = {0};
    size_t n_jobs = 1 + roll(&w->random, JOBS_MAX), n_submitted = 0;
    for (size_t i = 0; i < n_jobs; i++) make_actor(w, &actors[i]);
    for (bool is_busy = true; is_busy || n_submitted < n_jobs;) {
        while (n_submitted < n_jobs && roll(&w->random, 3) == 0)
            if (!scheduler_submit(scheduler, &actors[n_submitted++].job, &err)) fail_msg("%s", err.text);
        w->clock.now_ns += (int64_t)roll(&w->random, 3000000);
        if (roll(&w->random, 50) == 0) streamed_set_budget(engine_streamed(w->engine), 1); /* all but one expert go */
        if (roll(&w->random, 10) == 0) scheduler_give_up_prefix(scheduler);
        is_busy = scheduler_step(scheduler);
    }
    for (size_t i = 0; i < n_jobs; i++) {
        check_end(&actors[i]);
        s->n_cancelled += actors[i].result.reason == STOP_CANCELLED;
    }
}

static void run_schedule(struct world *w, uint64_t seed)
{
    struct err err = {0};
    struct scheduler *scheduler;
    enum way way = (enum way)(seed % WAYS);
    struct seen *s = &seen[way];
    w->seed = seed;
    w->random = seed * UINT64_C(0x9e3779b97f4a7c15);
    bool is_smallest = roll(&w->random, 4) == 0;
    open_engine(w, is_smallest ? 1e-9 : (double)(1 + roll(&w->random, 100)) / 100);
    const struct scheduler_settings settings = settings_of(w, way);
    forward_kv_pool(engine_forward(w->engine))->n_blocks_max = 2 + (uint32_t)roll(&w->random, 12);
    assert_true(scheduler_new(&scheduler, w->engine, &settings, &err));
    for (int wave = 0; wave < 2; wave++) run_jobs(w, scheduler, s); /* the second finds what the first left */
    struct scheduler_stats stats = scheduler_stats(scheduler);
    s->n_schedules++;
    s->n_drafted += stats.n_drafted;
    s->n_accepted += stats.n_accepted;
    s->n_forced += stats.n_forced;
    s->n_cached += stats.n_cached_tokens;
    s->n_restarts += stats.drafts.n_restarts;
    s->n_smallest += is_smallest;
    scheduler_free(scheduler);
    assert_int_equal(forward_kv_pool(engine_forward(w->engine))->n_blocks, 0);
    close_engine(w);
}

static void answers_do_not_depend_on_drafts(void **state)
{
    static const char *const names[WAYS] = {"none", "MTP 1", "MTP 2", "MTP 3", "MTP 7", "MTP auto", "ngram"};
    struct world w = {0};
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + n_schedules; seed++) run_schedule(&w, seed);
    for (int way = 0; way < WAYS; way++) {
        const struct seen *s = &seen[way];
        print_message("%-8s %5llu schedules, %llu of %llu drafts came true, %llu ids forced, %llu jobs cancelled, %llu "
                      "tokens restored, %llu restarts, %llu with the smallest plan\n",
                      names[way], (unsigned long long)s->n_schedules, (unsigned long long)s->n_accepted,
                      (unsigned long long)s->n_drafted, (unsigned long long)s->n_forced,
                      (unsigned long long)s->n_cancelled, (unsigned long long)s->n_cached,
                      (unsigned long long)s->n_restarts, (unsigned long long)s->n_smallest);
        if (n_schedules < 50) continue;
        assert_true((s->n_accepted > 0) == (way != WAY_OFF)); /* or the test saw no speculation */
        assert_true(s->n_accepted == 0 || s->n_accepted < s->n_drafted);
        assert_true(s->n_forced > 0 && s->n_cancelled > 0 && s->n_cached > 0 && s->n_smallest > 0);
    }
}

/* --- wrong on purpose --- */

/* The first row of a pass leaks into the others, a little. */
static void leak(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct world *w = context;
    size_t hidden = engine_config(w->engine)->hidden;
    float *rows = (float *)(uintptr_t)x; /* an observer must not; this one is a mistake on purpose */
    for (size_t r = 1; layer == 1 && r < n_rows; r++)
        for (size_t i = 0; i < hidden; i++) rows[r * hidden + i] += 0.05f * rows[i];
}

static void rows_that_leak_are_seen(void **state)
{
    struct world w = {.wrong = ROWS_LEAK, .random = 5};
    const struct forward_observer observer = {.context = &w, .hidden = leak};
    struct seen unused = {0};
    struct err err = {0};
    struct scheduler *scheduler;
    (void)state;
    open_engine(&w, 1);
    forward_observe(engine_forward(w.engine), &observer);
    const struct scheduler_settings settings = settings_of(&w, WAY_3);
    assert_true(scheduler_new(&scheduler, w.engine, &settings, &err));
    for (int i = 0; i < 50 && w.n_wrong_ids == 0; i++) run_jobs(&w, scheduler, &unused);
    scheduler_free(scheduler);
    assert_true(w.n_wrong_ids > 0);
    close_engine(&w);
}

/* --- the selection of a round --- */

/* What the MTP layer selected, step by step. */
struct selections {
    const struct world *world;
    uint64_t n_drafted;
    uint32_t n_taken; /* selections that are the one before but for its lowest position and a new last one */
    uint32_t last[CONTEXT], n_last;
};

static void see_selected(void *context, uint32_t layer, size_t row, const uint32_t *positions, size_t n)
{
    struct selections *s = context;
    if (layer != engine_config(s->world->engine)->n_layers || n == 0) return;
    s->n_taken += row == 0 && n == s->n_last && memcmp(positions, s->last + 1, (n - 1) * sizeof *positions) == 0;
    memcpy(s->last, positions, n * sizeof *positions);
    s->n_last = (uint32_t)n;
}

static struct selections selections_of(bool shares)
{
    struct world w = {.random = 11};
    struct selections s = {.world = &w};
    const struct forward_observer observer = {.context = &s, .selected = see_selected};
    struct sampling sampling = sampling_built_in();
    const struct sampler_rules rules = {.sampling = &sampling};
    struct spec spec = {.n_prompt = 40, .stop_pair = VOCAB, .tool = VOCAB};
    struct actor a = {.world = &w, .spec = &spec};
    struct scheduler *scheduler;
    struct err err = {0};
    struct engine_settings with =
        engine_settings_default("tests/fixtures/glm52-tiny/mtp"); /* whose layer has an indexer */
    with.n_threads = 1;
    with.context_tokens = CONTEXT;
    with.pass_rows = 40;
    with.logit_rows = RUNNING * (1 + DRAFTS);
    if (!engine_open(&w.engine, &w.alloc, file_system_real(), &with, &err)) fail_msg("%s", err.text);
    ((struct config *)(uintptr_t)engine_config(w.engine))->index_share_for_mtp = shares; /* as another model has it */
    forward_observe(engine_forward(w.engine), &observer);
    struct scheduler_settings settings = settings_of(&w, WAY_3);
    settings.n_tokens = engine_config(w.engine)->vocab;
    assert_true(scheduler_new(&scheduler, w.engine, &settings, &err));
    for (uint32_t i = 0; i < spec.n_prompt; i++) spec.prompt[i] = i * 11 % END;
    sampling.temperature = 0;
    sampling.max_tokens = 16;
    a.job.prompt = spec.prompt;
    a.job.n_prompt = spec.n_prompt;
    a.job.rules = &rules;
    a.job.events = (struct job_events){.context = &a, .token = accept_token, .done = see_done};
    assert_true(scheduler_submit(scheduler, &a.job, &err));
    while (!a.is_done) assert_true(scheduler_step(scheduler));
    s.n_drafted = a.result.usage.n_drafted;
    scheduler_free(scheduler);
    close_engine(&w);
    return s;
}

/* index_share_for_mtp_iteration: the later drafts of a round attend what the first one selected, and their own position
 * instead of the lowest; without it every one of them selects anew. */
static void a_round_shares_its_selection(void **state)
{
    (void)state;
    struct selections shared = selections_of(true), anew = selections_of(false);
    print_message("of %llu drafts %u took their selection over; of %llu without sharing %u\n",
                  (unsigned long long)shared.n_drafted, shared.n_taken, (unsigned long long)anew.n_drafted,
                  anew.n_taken);
    assert_true(shared.n_drafted > 20 && anew.n_drafted > 20);
    assert_true(shared.n_taken >= shared.n_drafted * 2 / 3 - 2); /* of three drafts the second and the third */
    assert_true(anew.n_taken < shared.n_taken / 4);              /* or the two could not be told apart */
}

/* --- the memory that drafts take --- */

struct watched {
    struct alloc *alloc;
    struct job job;
    uint32_t n_got;
    uint64_t calls_first, calls_last; /* of the allocator, behind the fifth id and behind the newest */
    bool is_done;
    struct job_result result;
};

static enum stop_reason watch_token(void *context, const struct sampled *sampled)
{
    struct watched *w = context;
    (void)sampled;
    w->calls_last = atomic_load(&w->alloc->calls);
    if (++w->n_got == 5) w->calls_first = w->calls_last;
    return STOP_NONE;
}

static void watch_done(void *context, const struct job_result *result)
{
    struct watched *w = context;
    w->is_done = true;
    w->result = *result;
}

static uint64_t calls_of_an_answer(struct world *world, struct scheduler *scheduler, uint64_t *n_drafted)
{
    static const uint32_t prompt[] = {1, 2, 3, 4, 1, 2, 3};
    struct err err = {0};
    struct sampling sampling = sampling_built_in();
    sampling.temperature = 0;
    sampling.max_tokens = 40; /* with the prompt, less than a block */
    const struct sampler_rules rules = {.sampling = &sampling};
    struct watched w = {.alloc = &world->alloc, .job = {.prompt = prompt, .n_prompt = 7, .rules = &rules}};
    w.job.events = (struct job_events){.context = &w, .token = watch_token, .done = watch_done};
    assert_true(scheduler_submit(scheduler, &w.job, &err));
    while (!w.is_done) {
        world->clock.now_ns += 1000000;
        assert_true(scheduler_step(scheduler));
    }
    assert_int_equal(w.result.reason, STOP_LENGTH);
    assert_int_equal(w.n_got, 40);
    *n_drafted = w.result.usage.n_drafted;
    return w.calls_last - w.calls_first;
}

static uint64_t planned_for_drafting(const struct world *w)
{
    const struct plan *plan = engine_plan(w->engine);
    for (uint32_t i = 0; i < plan->n_items; i++)
        if (strcmp(plan->items[i].name, "drafting") == 0) return plan->items[i].bytes;
    return 0;
}

/* Drafting takes what it needs when the scheduler is made, no more than the plan has for it, and nothing while an
 * answer goes on inside a block of state. */
static void drafts_take_no_memory(void **state)
{
    struct err err = {0};
    uint64_t plain_bytes = 0;
    (void)state;
    for (enum way way = WAY_OFF; way < WAYS; way++) {
        struct world w = {.random = 3};
        struct scheduler *scheduler;
        struct scheduler_settings settings = settings_of(&w, way);
        uint64_t n_drafted = 0;
        w.drafts = (struct draft_choice){
            .kind = settings.draft, .n_max = settings.n_drafts_max, .ngram_min = 1, .ngram_max = 3};
        open_engine(&w, 0.5);
        w.device.delay_ns_max = 0; /* every half a second the limits of control groups are read, which takes memory */
        settings.n_running_max = RUNNING;
        uint64_t before = atomic_load(&w.alloc.live_bytes);
        assert_true(scheduler_new(&scheduler, w.engine, &settings, &err));
        uint64_t bytes = atomic_load(&w.alloc.live_bytes) - before;
        if (way == WAY_OFF) plain_bytes = bytes;
        uint64_t planned = planned_for_drafting(&w);
        assert_int_equal(planned, RUNNING * drafts_bytes(&w.drafts, engine_config(w.engine), CONTEXT));
        uint64_t rows = engine_settings_of(w.engine)->pass_rows * sizeof(struct forward_mtp_row); /* of one pass */
        uint64_t more = bytes - plain_bytes, ids = RUNNING * DRAFTS * sizeof(uint32_t);
        if (more > planned + rows + ids) fail_msg("way %d takes %llu bytes", way, (unsigned long long)more);

        uint64_t calls = calls_of_an_answer(&w, scheduler, &n_drafted);
        print_message("way %d: %llu bytes more, %llu allocations in the middle of an answer\n", way,
                      (unsigned long long)more, (unsigned long long)calls);
        assert_int_equal(calls, 0);
        assert_true(n_drafted > 0 || way == WAY_OFF || way == WAY_AUTO); /* or nothing was seen */
        scheduler_free(scheduler);
        close_engine(&w);
    }
}

static int make_model(void **state)
{
    struct made_model made;
    struct world w = {.random = 1};
    uint64_t random = 7;
    (void)state;
    temp_folder_make(&folder);
    made_model_init(&made, config_text, MADE_MTP | MADE_INDEXERS, 4, 1, 1);
    for (size_t t = 0; t < made.n_tensors; t++) {
        struct made_tensor *tensor = &made.tensors[t];
        bool is_router = strstr(tensor->name, "mlp.gate.weight") != NULL;
        bool is_bias = strstr(tensor->name, "e_score_correction_bias") != NULL;
        for (uint64_t i = 0; (is_router || is_bias) && i < tensor->bytes / 4; i++)
            made_set_float(tensor, i, is_bias ? 0.0f : 0.2f * ((float)roll(&random, 2001) / 1000.0f - 1.0f));
    }
    made_write(&made, folder.path);
    made_model_fini(&made);
    open_engine(&w, 1);
    for (uint32_t i = 0; i < SPECS; i++) make_spec(w.engine, &random, i);
    close_engine(&w);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_do_not_depend_on_drafts),
        cmocka_unit_test(rows_that_leak_are_seen),
        cmocka_unit_test(a_round_shares_its_selection),
        cmocka_unit_test(drafts_take_no_memory),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) n_schedules = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
