#include "base/assert.h"
#include "run/scheduler_int.h"
#include <inttypes.h>
#include <string.h>

static struct kv_pool *pool_of(const struct scheduler *s)
{
    return forward_kv_pool(engine_forward(s->engine));
}

/* Ids that a job may be given: what it asks for, or what the context has room for. */
static uint32_t answer_max(const struct scheduler *s, const struct job *job)
{
    uint64_t asked = (uint64_t)job->rules->sampling->max_tokens;
    uint32_t room = context_of(s) - job->n_prompt;
    return asked < room ? (uint32_t)asked : room;
}

/* A block that is shared is copied before it is written, which needs no block of its own: what jobs share is counted
 * for each of them, and a kept prefix lets go of its block when there is no other. */
static uint32_t blocks_needed(const struct scheduler *s, const struct job *job)
{
    return kv_blocks_for(job->n_prompt + answer_max(s, job));
}

/* --- made and ended --- */

static bool init_places(struct scheduler *s, struct err *err)
{
    for (uint32_t i = 0; i < s->settings.n_running_max; i++) {
        struct history *history = &s->running[i].history;
        if (!history_reserve(history, s->alloc, context_of(s) + s->settings.n_drafts_max, err)) return false;
    }
    return true;
}

static bool init_known(struct scheduler *s, struct err *err)
{
    const struct known_settings settings = {.pool = pool_of(s),
                                            .prefix_blocks_max = s->settings.prefix_blocks_max,
                                            .ssd = s->settings.ssd,
                                            .clock = s->settings.clock,
                                            .demote_idle_ns = s->settings.demote_idle_ns};
    return known_init(&s->known, s->alloc, &settings, err);
}

struct scheduler_settings scheduler_settings_for(const struct engine *engine)
{
    const struct draft_choice *drafts = &engine_settings_of(engine)->drafts;
    return (struct scheduler_settings){.draft = drafts->kind,
                                       .weighs_drafts = drafts->is_weighed,
                                       .n_drafts_max = drafts->n_max,
                                       .ngram_min = drafts->ngram_min,
                                       .ngram_max = drafts->ngram_max};
}

bool scheduler_new(struct scheduler **scheduler, struct engine *engine, const struct scheduler_settings *settings,
                   struct err *err)
{
    struct alloc *alloc = engine_alloc(engine);
    const struct engine_settings *with = engine_settings_of(engine);
    uint32_t n_drafts = settings->draft == DRAFT_OFF ? 0 : settings->n_drafts_max;
    ASSERT(settings->draft != DRAFT_MTP || engine_inventory(engine)->mtp == CAPABILITY_PRESENT);
    struct scheduler *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->engine = engine;
    s->settings = *settings;
    s->settings.n_drafts_max = n_drafts;
    ASSERT(n_drafts <= DRAFTS_MAX);
    ASSERT(settings->n_running_max > 0);
    ASSERT(with->logit_rows >= settings->n_running_max * (1 + n_drafts));
    ASSERT(with->pass_rows > settings->n_running_max * (1 + n_drafts));
    s->running = alloc_get_array(alloc, settings->n_running_max, sizeof *s->running, err);
    s->waiting = alloc_get_array(alloc, settings->n_waiting_max, sizeof *s->waiting, err);
    s->rows = alloc_get_array(alloc, with->pass_rows, sizeof *s->rows, err);
    if (!s->running || !s->waiting || !s->rows) goto fail;
    if (!init_places(s, err) || !drafting_init(s, err)) goto fail;
    if (!sampler_init(&s->sampler, alloc, engine_config(engine)->vocab, settings->n_tokens, err)) goto fail;
    if (!init_known(s, err)) goto fail;
    *scheduler = s;
    return true;
fail:
    scheduler_free(s);
    return false;
}

static void tell_done(struct scheduler *s, struct job *job, const struct job_result *result)
{
    s->stats.n_done[result->reason]++;
    job->events.done(job->events.context, result);
}

/* The place is given up: what is known of the sequence is kept for the next, and the job hears its end. */
static void finish(struct scheduler *s, struct running *r, enum stop_reason reason, const struct err *err)
{
    struct job *job = r->job;
    struct job_result result = {.reason = reason, .usage = r->usage, .n_held = r->kv.n_rows};
    if (err) result.err = *err;
    known_keep(&s->known, &r->kv, r->history.ids, r->kv.n_rows);
    kv_fini(&r->kv);
    known_release(&s->known, r->n_reserved);

    struct running place = *r; /* its memory goes to the end of the list, for the next job */
    uint32_t at = (uint32_t)(r - s->running);
    memmove(r, r + 1, (s->n_running - at - 1) * sizeof *r);
    s->running[--s->n_running] =
        (struct running){.history = place.history, .lookup = place.lookup, .pending = place.pending};
    tell_done(s, job, &result);
}

void scheduler_free(struct scheduler *scheduler)
{
    struct scheduler *s = scheduler;
    if (!s) return;
    while (s->n_running > 0) finish(s, &s->running[0], STOP_CANCELLED, NULL);
    for (uint32_t i = 0; i < s->n_waiting; i++)
        tell_done(s, s->waiting[i], &(struct job_result){.reason = STOP_CANCELLED});
    known_fini(&s->known); /* saves: a restart goes on where this ended */
    for (uint32_t i = 0; s->running && i < s->settings.n_running_max; i++) history_fini(&s->running[i].history);
    drafting_fini(s);
    sampler_fini(&s->sampler);
    alloc_put(s->alloc, s->rows);
    alloc_put(s->alloc, s->waiting);
    alloc_put(s->alloc, s->running);
    alloc_put(s->alloc, s);
}

/* --- the queue --- */

static bool check_job(const struct scheduler *s, const struct job *job, struct err *err)
{
    uint32_t context = context_of(s), vocab = engine_config(s->engine)->vocab;
    if (job->n_prompt == 0) return err_set(err, ERR_USER, "the prompt is empty");
    if (job->n_prompt >= context)
        return err_set(err, ERR_USER,
                       "this model's maximum context length is %" PRIu32 " tokens, one of them for an answer, and the "
                       "prompt has %" PRIu32 "; give a larger --context-length or a shorter prompt",
                       context, job->n_prompt);
    for (uint32_t i = 0; i < job->n_prompt; i++)
        if (job->prompt[i] >= vocab)
            return err_set(err, ERR_USER, "prompt token %" PRIu32 " is %" PRIu32 ", outside the vocabulary of %" PRIu32,
                           i, job->prompt[i], vocab);
    if (blocks_needed(s, job) > pool_of(s)->n_blocks_max)
        return err_set(err, ERR_USER,
                       "prompt and answer may need %" PRIu32 " blocks of state and there are %" PRIu32
                       "; ask for fewer tokens or give a larger --ram-budget",
                       blocks_needed(s, job), pool_of(s)->n_blocks_max);
    return true;
}

bool scheduler_submit(struct scheduler *scheduler, struct job *job, struct err *err)
{
    struct scheduler *s = scheduler;
    if (!check_job(s, job, err)) {
        s->stats.n_refused++;
        return false;
    }
    if (s->n_waiting == s->settings.n_waiting_max) {
        s->stats.n_refused++;
        return err_set(err, ERR_BUSY, "the queue is full: %" PRIu32 " requests are waiting", s->n_waiting);
    }
    s->stats.n_submitted++;
    s->waiting[s->n_waiting++] = job;
    return true;
}

static void take_from_queue(struct scheduler *s, uint32_t at)
{
    memmove(&s->waiting[at], &s->waiting[at + 1], (--s->n_waiting - at) * sizeof *s->waiting);
}

/* The next to be admitted: the oldest of the higher priority. Nobody overtakes it, however small. */
static uint32_t first_in_line(const struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_waiting; i++)
        if (s->waiting[i]->priority == JOB_INTERACTIVE) return i;
    return 0;
}

static uint64_t bytes_read(const struct scheduler *s)
{
    struct streamed *streamed = engine_streamed(s->engine);
    return streamed ? reader_stats(streamed_reader(streamed))->bytes_landed : 0;
}

/* Tokens to read until the prompt of r is in the state: prompts are read one after the other. */
static uint32_t rows_until_read(const struct scheduler *s, const struct running *r)
{
    uint32_t n = 0;
    for (const struct running *p = s->running; p <= r; p++)
        if (!p->answers) n += p->job->n_prompt - p->kv.n_rows;
    return n;
}

/* From now on: what the pass that runs has taken already is over. */
static bool predict(const struct scheduler *s, const struct running *r, struct finish_interval *out)
{
    if (!finish_guess_ask(&s->finish, rows_until_read(s, r), out)) return false;
    int64_t done = s->is_in_pass ? clock_now_ns(s->settings.clock) - s->pass_began_ns : 0;
    out->low_ns = out->low_ns > done ? out->low_ns - done : 0;
    out->high_ns = out->high_ns > done ? out->high_ns - done : 0;
    return true;
}

/* The first prediction for a prompt of several passes is the one that counts. */
static void promise(struct scheduler *s, struct running *r)
{
    bool is_long = r->job->n_prompt - r->kv.n_rows > engine_settings_of(s->engine)->pass_rows;
    if (r->has_promise || !is_long || !predict(s, r, &r->promise)) return;
    r->has_promise = true;
    r->promised_ns = clock_now_ns(s->settings.clock);
}

static void judge_promise(struct scheduler *s, struct running *r)
{
    if (!r->has_promise) return;
    finish_guess_judge(&s->finish, &r->promise, clock_now_ns(s->settings.clock) - r->promised_ns);
    s->stats.n_finishes_told = s->finish.n_judged;
    s->stats.n_finishes_held = s->finish.n_held;
}

static struct job_progress progress_of(const struct scheduler *s, const struct running *r)
{
    struct finish_interval left = {0};
    bool is_known = !r->answers && predict(s, r, &left);
    return (struct job_progress){.bytes_read = bytes_read(s) - r->bytes_before,
                                 .left_ns_low = is_known ? left.low_ns : 0,
                                 .left_ns_high = is_known ? left.high_ns : 0,
                                 .n_prompt = r->job->n_prompt,
                                 .n_cached = r->usage.n_cached,
                                 .n_done = r->kv.n_rows < r->job->n_prompt ? r->kv.n_rows : r->job->n_prompt,
                                 .layer = s->layer,
                                 .n_layers = engine_config(s->engine)->n_layers};
}

/* At least one token is left over: the logits behind the last one are wanted. */
static uint32_t take_known(struct scheduler *s, struct running *r)
{
    const struct job *job = r->job;
    if (job->events.prompt_logits) return 0;
    return known_take(&s->known, &r->kv, job->prompt, job->n_prompt, job->n_prompt - 1);
}

static void admit(struct scheduler *s, struct job *job)
{
    struct running *r = &s->running[s->n_running++];
    r->job = job;
    r->n_reserved = blocks_needed(s, job);
    r->n_max = answer_max(s, job);
    r->thinks = job->thinking.is_open;
    kv_init(&r->kv, pool_of(s));
    history_start(&r->history, job->prompt, job->n_prompt);
    uint32_t n_cached = take_known(s, r);
    drafting_start(s, r, n_cached);
    r->usage = (struct job_usage){.n_prompt = job->n_prompt, .n_cached = n_cached};
    s->stats.n_cached_tokens += n_cached;
    r->bytes_before = bytes_read(s);
    promise(s, r);
    struct job_progress progress = progress_of(s, r);
    if (job->events.started) job->events.started(job->events.context, &progress);
}

static bool admit_next(struct scheduler *s)
{
    if (s->n_waiting == 0) known_await_nobody(&s->known);
    if (s->n_waiting == 0 || s->n_running == s->settings.n_running_max) return false;
    uint32_t at = first_in_line(s);
    struct job *job = s->waiting[at];
    if (!known_reserve(&s->known, blocks_needed(s, job), s->n_running == 0)) return false;
    take_from_queue(s, at);
    admit(s, job);
    return true;
}

bool scheduler_end_cancelled(struct scheduler *scheduler)
{
    struct scheduler *s = scheduler;
    bool any = false;
    for (uint32_t i = s->n_running; i-- > 0;)
        if (job_is_cancelled(s->running[i].job)) {
            finish(s, &s->running[i], STOP_CANCELLED, NULL);
            any = true;
        }
    for (uint32_t i = s->n_waiting; i-- > 0;) {
        struct job *job = s->waiting[i];
        if (!job_is_cancelled(job)) continue;
        take_from_queue(s, i);
        tell_done(s, job, &(struct job_result){.reason = STOP_CANCELLED});
        any = true;
    }
    return any;
}

/* --- one pass --- */

static void add_row(struct scheduler *s, struct running *r, size_t n_rows, uint32_t token, bool wants_logits)
{
    s->rows[n_rows] = (struct forward_row){
        .kv = &r->kv, .token = token, .position = r->kv.n_rows + r->n_rows, .wants_logits = wants_logits};
    r->n_rows++;
}

static size_t add_answer_rows(struct scheduler *s, struct running *r, size_t n_rows)
{
    ASSERT(r->history.n == r->kv.n_rows + 1); /* the id given out last is the one to feed */
    r->first_row = (uint32_t)n_rows;
    for (uint32_t i = 0; i <= r->n_drafts; i++) {
        uint32_t id = i == 0 ? r->history.ids[r->history.n - 1] : r->drafts[i - 1];
        add_row(s, r, n_rows++, id, i >= r->n_certain || !r->certain_is_plain);
    }
    return n_rows;
}

/* Rows of a prompt that this pass may read without keeping the answering jobs waiting for too long. */
static size_t prompt_rows_max(const struct scheduler *s, size_t n_answer_rows)
{
    size_t room = engine_settings_of(s->engine)->pass_rows - n_answer_rows;
    if (n_answer_rows == 0 || s->prompt_row_ns <= 0) return room;
    double limit = (double)s->settings.decode_stall_ns_max / s->prompt_row_ns;
    if (limit < 1) return 1;
    return limit < (double)room ? (size_t)limit : room;
}

static size_t add_prompt_rows(struct scheduler *s, struct running *r, size_t n_rows)
{
    bool all_logits = r->job->events.prompt_logits != NULL;
    size_t n_max = prompt_rows_max(s, n_rows), n_logits = engine_settings_of(s->engine)->logit_rows;
    for (size_t i = 0; i < n_rows; i++) n_logits -= s->rows[i].wants_logits;
    if (all_logits && n_max > n_logits) n_max = n_logits;
    ASSERT(n_max > 0); /* the place that it holds could be answering, and the engine grants rows for all places */
    r->first_row = (uint32_t)n_rows;
    while (r->n_rows < n_max && r->kv.n_rows + r->n_rows < r->job->n_prompt) {
        uint32_t position = r->kv.n_rows + r->n_rows;
        add_row(s, r, n_rows++, r->job->prompt[position], all_logits || position + 1 == r->job->n_prompt);
    }
    s->reader = r;
    return n_rows;
}

static bool stands_still(const struct running *r)
{
    return r->answers && job_is_paused(r->job);
}

/* A job whose last pass failed gets one to itself. */
static struct running *loner(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i].runs_alone && !stands_still(&s->running[i])) return &s->running[i];
    return NULL;
}

static size_t compose(struct scheduler *s)
{
    struct running *alone = loner(s);
    size_t n_rows = 0;
    s->reader = NULL;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct running *r = &s->running[i];
        r->n_rows = r->n_kept = 0;
        if (r->answers && !stands_still(r) && (!alone || alone == r)) n_rows = add_answer_rows(s, r, n_rows);
    }
    for (uint32_t i = 0; i < s->n_running && !s->reader; i++) {
        struct running *r = &s->running[i];
        if (!r->answers && (!alone || alone == r)) n_rows = add_prompt_rows(s, r, n_rows);
    }
    return n_rows;
}

/* Kept prefixes make way for rows that are about to be written. */
static void make_room(struct scheduler *s)
{
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct running *r = &s->running[i];
        if (r->n_rows > 0) n_new += kv_blocks_for(r->kv.n_rows + r->n_rows) - kv_blocks_for(r->kv.n_rows) + 1;
    }
    known_make_room(&s->known, n_new);
}

/* Asked by the forward pass: goes on unless nobody wants it any more, or its prompt's owner left. */
static bool still_wanted(void *context, uint32_t layer)
{
    struct scheduler *s = context;
    bool anybody = false;
    if (s->reader) {
        if (job_is_cancelled(s->reader->job)) return false;
        const struct job_events *events = &s->reader->job->events;
        bool is_new_layer = layer != s->layer;
        s->layer = layer;
        struct job_progress progress = progress_of(s, s->reader);
        if (is_new_layer && events->progress) events->progress(events->context, &progress);
    }
    for (uint32_t i = 0; i < s->n_running; i++)
        anybody = anybody || (s->running[i].n_rows > 0 && !job_is_cancelled(s->running[i].job));
    return anybody;
}

/* --- what a pass gave --- */

/* What must come next whatever the logits say: the end of thinking that was asked for or has lasted long enough. */
static bool is_forced(const struct running *r, uint32_t *id)
{
    const struct job_thinking *t = &r->job->thinking;
    *id = t->end;
    if (!r->thinks) return false;
    return atomic_load(&r->job->ends_thinking) || (t->n_max > 0 && r->n_thought >= t->n_max);
}

/* The id behind row `j` of the job, whose drafts before it are already in the history. */
static bool pick(struct scheduler *s, struct running *r, uint32_t j, struct sampled *out, struct err *err)
{
    const struct job_events *events = &r->job->events;
    *out = (struct sampled){0};
    if (is_forced(r, &out->id)) return true;
    if (j < r->n_certain && r->certain_is_plain) { /* the one id that is allowed */
        out->id = r->drafts[j];
        return true;
    }
    const struct sampler_input input = {
        .logits = forward_logits(engine_forward(s->engine), r->first_row + j),
        .history = &r->history,
        .allowed = events->allowed ? events->allowed(events->context) : NULL,
    };
    return sampler_pick(&s->sampler, r->job->rules, &input, out, err);
}

static void count_thinking(struct running *r, uint32_t id)
{
    const struct job_thinking *t = &r->job->thinking;
    if (t->begin == t->end) return; /* the job said nothing about thinking */
    if (r->thinks && id == t->end)
        r->thinks = false;
    else if (r->thinks)
        r->n_thought++;
    else if (id == t->begin)
        r->thinks = true;
}

/* Gives one id out. The reason for which the answer ends with it, or STOP_NONE. */
static enum stop_reason emit(struct scheduler *s, struct running *r, const struct sampled *sampled)
{
    const struct sampler_rules *rules = r->job->rules;
    enum stop_reason reason = stop_on_id(sampled->id, rules->eos, rules->n_eos, rules->sampling);
    if (reason != STOP_NONE) return reason;
    history_push(&r->history, sampled->id);
    count_thinking(r, sampled->id);
    r->usage.n_generated++;
    s->stats.n_generated++;
    reason = r->job->events.token(r->job->events.context, sampled);
    if (reason == STOP_NONE && history_generated(&r->history) == r->n_max) reason = STOP_LENGTH;
    return reason;
}

static void count_accepted(struct scheduler *s, struct running *r, uint32_t j)
{
    bool is_certain = j < r->n_certain;
    r->usage.n_accepted += !is_certain;
    r->usage.n_forced += is_certain;
    s->stats.n_accepted += !is_certain;
    s->stats.n_forced += is_certain;
}

/* Ids from the rows of an answer: row 0's always, the next row's as long as the draft it stood for is what came out.
 * Rows behind the last id that held are rolled back. False: the job is over. */
static bool harvest(struct scheduler *s, struct running *r)
{
    struct err err = {0};
    uint32_t first = r->kv.n_rows - r->n_rows, n_came = 0; /* first: position of row 0 */
    enum stop_reason reason = STOP_NONE;
    r->usage.n_passes++;
    for (uint32_t j = 0; reason == STOP_NONE; j++) {
        struct sampled sampled;
        if (!pick(s, r, j, &sampled, &err)) {
            kv_truncate(&r->kv, first + j + 1);
            finish(s, r, STOP_ERROR, &err);
            return false;
        }
        bool held = j < r->n_drafts && sampled.id == r->drafts[j];
        n_came += held;
        reason = emit(s, r, &sampled);
        if (held && reason == STOP_NONE) {
            count_accepted(s, r, j);
            continue;
        }
        kv_truncate(&r->kv, first + j + 1);
        r->n_kept = j + 1;
        break;
    }
    drafting_saw_drafts(s, r, n_came);
    if (reason == STOP_NONE) return true;
    finish(s, r, reason, NULL);
    return false;
}

static bool show_prompt_logits(struct scheduler *s, struct running *r, struct err *err)
{
    const struct job_events *events = &r->job->events;
    uint32_t first = r->kv.n_rows - r->n_rows;
    for (uint32_t i = 0; events->prompt_logits && i < r->n_rows; i++) {
        const float *logits = forward_logits(engine_forward(s->engine), r->first_row + i);
        if (!events->prompt_logits(events->context, first + i, logits, err)) return false;
    }
    return true;
}

static bool harvest_prompt(struct scheduler *s, struct running *r)
{
    struct err err = {0};
    s->stats.n_prompt_tokens += r->n_rows;
    promise(s, r);
    struct job_progress progress = progress_of(s, r);
    if (r->job->events.progress) r->job->events.progress(r->job->events.context, &progress);
    r->n_kept = r->n_rows;
    if (!show_prompt_logits(s, r, &err)) {
        finish(s, r, STOP_ERROR, &err);
        return false;
    }
    if (r->kv.n_rows < r->job->n_prompt) return true;
    r->answers = true;
    judge_promise(s, r);
    if (r->n_max == 0) {
        finish(s, r, STOP_LENGTH, NULL);
        return false;
    }
    /* Only the last row has logits: it is the one row of this harvest. */
    uint32_t first_row = r->first_row, n_rows = r->n_rows;
    r->first_row += n_rows - 1;
    r->n_rows = 1;
    if (!harvest(s, r)) return false;
    r->first_row = first_row;
    r->n_kept = n_rows;
    return true;
}

static void harvest_all(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running;) {
        struct running *r = &s->running[i];
        r->runs_alone = r->runs_alone && r->n_rows == 0;
        bool goes_on = r->n_rows == 0 || (r->answers ? harvest(s, r) : harvest_prompt(s, r));
        if (goes_on) i++;
    }
}

/* Whose fault a failed pass was shows when each of its jobs has one to itself. */
static void pass_failed(struct scheduler *s, const struct err *err)
{
    struct running *only = NULL;
    uint32_t n = 0;
    if (err->kind == ERR_CANCELLED) {
        s->stats.n_called_off++;
        return;
    }
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i].n_rows > 0) {
            only = &s->running[i];
            only->runs_alone = true;
            n++;
        }
    if (n == 1) finish(s, only, STOP_ERROR, err);
}

static void measure(struct scheduler *s, int64_t ns, size_t n_prompt_rows)
{
    if (n_prompt_rows == 0) return;
    double each = (double)ns / (double)n_prompt_rows;
    finish_guess_add(&s->finish, (uint32_t)n_prompt_rows, ns);
    s->prompt_row_ns = s->prompt_row_ns > 0 ? 0.7 * s->prompt_row_ns + 0.3 * each : each;
}

static void run_pass(struct scheduler *s, size_t n_rows)
{
    struct err err = {0};
    struct forward *forward = engine_forward(s->engine);
    size_t n_prompt_rows = s->reader ? s->reader->n_rows : 0;
    s->layer = UINT32_MAX;
    s->stats.n_passes++;
    make_room(s);
    forward_set_poll(forward, still_wanted, s);
    struct pass_meter before = meter_read(s);
    uint64_t n_given = s->stats.n_generated;
    s->pass_began_ns = before.ns;
    s->is_in_pass = true;
    bool ok = engine_pass(s->engine, s->rows, n_rows, &err);
    s->is_in_pass = false;
    struct pass_meter after = meter_read(s);
    if (ok) measure(s, after.ns - before.ns, n_prompt_rows);
    forward_set_poll(forward, NULL, NULL);
    s->layer = 0;
    if (!ok) {
        pass_failed(s, &err);
        return;
    }
    harvest_all(s);
    drafting_saw_pass(s, &before, &after, n_rows, s->stats.n_generated - n_given);
    drafting_prepare(s);
}

bool scheduler_step(struct scheduler *scheduler)
{
    struct scheduler *s = scheduler;
    bool did = scheduler_end_cancelled(s);
    while (admit_next(s)) did = true;
    size_t n_rows = compose(s);
    if (n_rows > 0) run_pass(s, n_rows);
    known_tend(&s->known, s->n_running > 0);
    return did || n_rows > 0;
}

int64_t scheduler_due_ns(const struct scheduler *scheduler)
{
    return known_due_ns(&scheduler->known);
}

struct engine *scheduler_engine(const struct scheduler *scheduler)
{
    return scheduler->engine;
}

uint32_t scheduler_recall(struct scheduler *scheduler, struct kv *kv, const uint32_t *ids, uint32_t n)
{
    return known_take(&scheduler->known, kv, ids, n, n);
}

void scheduler_remember(struct scheduler *scheduler, const struct kv *kv, const uint32_t *ids, uint32_t n)
{
    known_keep(&scheduler->known, kv, ids, n);
}

bool scheduler_make_room(struct scheduler *scheduler, uint32_t n_tokens)
{
    const struct kv_pool *pool = pool_of(scheduler);
    uint32_t n_blocks = kv_blocks_for(n_tokens);
    known_make_room(&scheduler->known, n_blocks);
    return pool->n_blocks_max - pool->n_blocks >= n_blocks;
}

struct scheduler_stats scheduler_stats(const struct scheduler *scheduler)
{
    struct scheduler_stats stats = scheduler->stats;
    stats.n_waiting = scheduler->n_waiting;
    stats.n_running = scheduler->n_running;
    return stats;
}

const struct draft_control *scheduler_draft_control(const struct scheduler *scheduler)
{
    return &scheduler->control;
}

struct prefix_stats scheduler_prefix_stats(const struct scheduler *scheduler)
{
    return prefix_cache_stats(scheduler->known.prefixes);
}

bool scheduler_give_up_prefix(struct scheduler *scheduler)
{
    return prefix_cache_give_up_one(scheduler->known.prefixes);
}
