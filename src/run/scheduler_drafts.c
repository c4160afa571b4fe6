/* Drafts: where those of a job's next pass come from, how many they are, and what became of them.
 *
 * Between passes the MTP layer's rows of a job end at kv.n_mtp_rows; the hidden states behind that wait in `pending`
 * until drafts are wanted. When they do not fit any more the layer begins anew: what it does not see costs hits, and
 * nothing else. Its failure is nobody's: the job then goes on without drafts, and the layer begins anew. */
#include "base/assert.h"
#include "run/drafts.h"
#include "run/scheduler_int.h"
#include <string.h>

enum {
    MTP_LAG_MAX = DRAFTS_PENDING_MAX, /* tokens that are computed again rather than beginning anew */
    CERTAIN_MAX = 24,                 /* ids that a grammar may force into one pass */
};

static const double mtp_chance = 0.8, ngram_chance = 0.4; /* of a draft, before anything is known */

static size_t hidden_of(const struct scheduler *s)
{
    return engine_config(s->engine)->hidden;
}

/* --- made and ended --- */

/* What the MTP layer's step is of a pass, by the weights that one row takes. */
static struct draft_prior prior_of(const struct scheduler *s)
{
    const struct config *c = engine_config(s->engine);
    struct draft_prior prior = {.chance = s->settings.draft == DRAFT_MTP ? mtp_chance : ngram_chance};
    double hidden = c->hidden, heads = c->n_heads, n_sparse = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) n_sparse += c->is_sparse[l];
    if (s->settings.draft != DRAFT_MTP || n_sparse <= 0) return prior;
    double attention = hidden * (c->q_rank + c->kv_rank + c->rope_dim) +
                       heads * (c->q_rank * (double)(c->nope_dim + c->rope_dim) +
                                c->kv_rank * (double)(c->nope_dim + c->value_dim) + c->value_dim * hidden);
    double sparse = attention + 3 * hidden * c->expert_inner * (c->n_experts_per_token + c->n_shared_experts);
    double dense = attention + 3 * hidden * c->dense_inner, head = hidden * c->vocab;
    prior.link_work =
        (sparse + 2 * hidden * hidden + head) / (n_sparse * sparse + (c->n_layers - n_sparse) * dense + head);
    prior.link_wanted = 1 / n_sparse;
    return prior;
}

bool drafting_init(struct scheduler *s, struct err *err)
{
    const struct scheduler_settings *with = &s->settings;
    uint32_t n_places = with->n_running_max, n_ids = context_of(s) + with->n_drafts_max;
    const struct prompt_lookup_limits limits = {
        .n_min = with->ngram_min, .n_max = with->ngram_max, .n_draft = with->n_drafts_max};
    const struct draft_prior prior = prior_of(s);
    draft_control_init(&s->control, &prior);
    s->draft_rows = alloc_get_array(s->alloc, n_places, sizeof *s->draft_rows, err);
    if (!s->draft_rows) return false;
    if (with->draft == DRAFT_MTP) {
        size_t n_rows = engine_settings_of(s->engine)->pass_rows;
        s->mtp_rows = alloc_get_array(s->alloc, n_rows, sizeof *s->mtp_rows, err);
        if (!s->mtp_rows) return false;
    }
    for (uint32_t i = 0; i < n_places; i++) {
        struct running *r = &s->running[i];
        if (with->draft == DRAFT_NGRAM && !prompt_lookup_init(&r->lookup, s->alloc, limits, n_ids, err)) return false;
        if (with->draft != DRAFT_MTP) continue;
        r->pending = alloc_get_array(s->alloc, DRAFTS_PENDING_MAX * hidden_of(s), sizeof *r->pending, err);
        if (!r->pending) return false;
    }
    return true;
}

void drafting_fini(struct scheduler *s)
{
    for (uint32_t i = 0; s->running && i < s->settings.n_running_max; i++) {
        prompt_lookup_fini(&s->running[i].lookup);
        alloc_put(s->alloc, s->running[i].pending);
    }
    alloc_put(s->alloc, s->mtp_rows);
    alloc_put(s->alloc, s->draft_rows);
}

static void begin_anew(struct scheduler *s, struct running *r)
{
    s->stats.drafts.n_restarts += r->kv.n_mtp_rows > r->kv.mtp_first;
    kv_restart_mtp(&r->kv);
    r->n_pending = 0;
}

/* MTP row p is made from the hidden state of token p and from token p + 1, so what was taken over has at least one row
 * less than tokens, and the hidden states that are missing come from computing those tokens again, where they are few.
 */
void drafting_start(struct scheduler *s, struct running *r, uint32_t n_cached)
{
    if (s->settings.draft == DRAFT_NGRAM) prompt_lookup_reset(&r->lookup);
    if (s->settings.draft != DRAFT_MTP) return;
    r->absorbs = !s->settings.weighs_drafts || draft_control_is_hopeful(&s->control);
    if (n_cached == 0) return;
    uint32_t n_complete = r->kv.n_mtp_rows < n_cached - 1 ? r->kv.n_mtp_rows : n_cached - 1;
    if (r->absorbs && n_cached - n_complete <= MTP_LAG_MAX)
        kv_truncate(&r->kv, n_complete);
    else
        begin_anew(s, r);
}

/* --- what was seen --- */

struct pass_meter meter_read(const struct scheduler *s)
{
    struct streamed *streamed = engine_streamed(s->engine);
    struct pass_meter m = {.ns = clock_now_ns(s->settings.clock)};
    if (!streamed) return m;
    const struct slots_stats *slots = slots_stats(streamed_slots(streamed));
    m.waited_ns = streamed_stats(streamed)->waited_ns;
    m.n_missed = slots->n_misses + slots->n_joined;
    m.n_wanted = slots->n_hits + m.n_missed;
    m.bytes = slots->bytes_loaded;
    return m;
}

static struct pass_seen between(const struct pass_meter *before, const struct pass_meter *after, size_t n_rows)
{
    return (struct pass_seen){.n_rows = (uint32_t)n_rows,
                              .ns = after->ns - before->ns,
                              .waited_ns = after->waited_ns - before->waited_ns,
                              .n_wanted = after->n_wanted - before->n_wanted,
                              .n_missed = after->n_missed - before->n_missed};
}

void drafting_saw_pass(struct scheduler *s, const struct pass_meter *before, const struct pass_meter *after,
                       size_t n_rows, uint64_t n_ids)
{
    struct draft_stats *stats = &s->stats.drafts;
    const struct draft_forecast f = s->forecast;
    struct pass_seen seen = between(before, after, n_rows);
    if (s->settings.draft == DRAFT_OFF || s->reader || seen.ns <= 0) return;
    int64_t round_ns = s->links_ns + clock_now_ns(s->settings.clock) - before->ns;
    bool has_drafts = f.ns > 0 && f.tokens > f.plain_tokens;
    if (has_drafts) {
        stats->n_passes++;
        stats->n_trials += f.is_trial;
        if (f.plain_ns > 0) {
            double each = f.plain_ns / f.plain_tokens;
            stats->expected_gain_ns += f.tokens * each - f.ns;
            stats->gain_ns += (double)n_ids * each - (double)round_ns;
            stats->n_verify_missed +=
                pass_cost_missed(&s->control.pass, (double)n_rows) - pass_cost_missed(&s->control.pass, f.plain_tokens);
        }
    }
    draft_control_saw_pass(&s->control, &seen, has_drafts);
    if (n_rows == f.n_rows) draft_control_saw_round(&s->control, &f, n_ids, round_ns);
}

void drafting_saw_drafts(struct scheduler *s, struct running *r, uint32_t n_came)
{
    uint32_t n_certain = r->n_certain, n_drafts = r->n_drafts - n_certain;
    r->usage.n_drafted += n_drafts;
    s->stats.n_drafted += n_drafts;
    if (s->settings.draft == DRAFT_OFF) return;
    s->stats.drafts.n_rows_with[n_drafts < DRAFT_DEPTHS ? n_drafts : DRAFT_DEPTHS - 1]++;
    if (n_came >= n_certain) draft_control_saw_drafts(&s->control, &r->hits, n_drafts, n_came - n_certain);
}

struct draft_totals draft_totals(const struct draft_stats *stats, uint64_t expert_bytes)
{
    uint64_t verified = stats->n_verify_missed > 0 ? (uint64_t)stats->n_verify_missed : 0;
    return (struct draft_totals){.n_experts = stats->n_step_missed + verified,
                                 .bytes = stats->step_bytes + verified * expert_bytes};
}

uint64_t scheduler_expert_bytes(const struct scheduler *scheduler)
{
    const struct plan *plan = engine_plan(scheduler->engine);
    return plan ? plan->classes.of[0].slot_bytes : 0;
}

/* --- how many --- */

/* Drafts that a job may have in its next pass: one id always comes without one. */
static uint32_t drafts_room(const struct scheduler *s, const struct running *r)
{
    uint32_t left = r->n_max - history_generated(&r->history), room = context_of(s) - r->history.n;
    ASSERT(left > 0);
    return left - 1 < room ? left - 1 : room;
}

static bool may_force(const struct scheduler *s, const struct running *r, uint32_t id)
{
    const struct sampler_rules *rules = r->job->rules;
    if (id >= s->settings.n_tokens) return false;
    if (stop_on_id(id, rules->eos, rules->n_eos, rules->sampling) != STOP_NONE) return false;
    for (uint32_t i = 0; i < rules->n_banned; i++)
        if (rules->banned[i] == id) return false;
    return true;
}

/* Ids that the job's grammar forces. What else could be wanted of their rows needs logits, and these are granted for as
 * many rows as there may be drafts. */
static void take_certain(struct scheduler *s, struct running *r)
{
    const struct job_events *events = &r->job->events;
    const struct sampler_rules *rules = r->job->rules;
    uint32_t n_max = drafts_room(s, r), n = 0, n_forced;
    size_t spare = engine_settings_of(s->engine)->pass_rows / s->settings.n_running_max;
    if (!events->forced) return;
    r->certain_is_plain = !rules->wants_logprobs && rules->sampling->n_bias == 0;
    if (n_max > CERTAIN_MAX) n_max = CERTAIN_MAX;
    if (!r->certain_is_plain && n_max > s->settings.n_drafts_max) n_max = s->settings.n_drafts_max;
    if (n_max >= spare) n_max = (uint32_t)spare - 1;
    n_forced = events->forced(events->context, r->drafts, n_max);
    ASSERT(n_forced <= n_max);
    while (n < n_forced && may_force(s, r, r->drafts[n])) n++;
    r->n_drafts = r->n_certain = n;
}

/* Drafts that could be had, besides what they cost. */
static uint32_t drafts_on_offer(struct scheduler *s, struct running *r)
{
    uint32_t n_max = drafts_room(s, r), n;
    if (r->n_certain > 0) return 0;
    if (n_max > s->settings.n_drafts_max) n_max = s->settings.n_drafts_max;
    if (s->settings.draft != DRAFT_NGRAM) return n_max;
    if (n_max == 0) return 0;
    n = prompt_lookup_draft(&r->lookup, r->history.ids, r->history.n, r->drafts);
    return n < n_max ? n : n_max;
}

/* Decides for all jobs that the last pass was of, and sets draft_rows, in their order. */
static void choose_depths(struct scheduler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct running *r = &s->running[i];
        if (r->n_kept == 0) continue;
        r->n_drafts = r->n_certain = 0;
        if (!r->answers) continue;
        take_certain(s, r);
        uint32_t n_max = drafts_on_offer(s, r);
        s->draft_rows[n++] = (struct draft_row){
            .hits = &r->hits, .n_max = n_max, .n_certain = r->n_certain, .n_behind = r->n_pending, .depth = n_max};
    }
    if (s->settings.draft == DRAFT_OFF) return;
    s->forecast = s->settings.weighs_drafts ? draft_control_choose(&s->control, s->draft_rows, n)
                                            : draft_control_foresee(&s->control, s->draft_rows, n);
}

/* --- the MTP layer --- */

/* Notes the hidden states of the pass's rows that hold, for later. */
static void keep_pending(struct scheduler *s, struct running *r)
{
    const struct forward *forward = engine_forward(s->engine);
    size_t hidden = hidden_of(s);
    if (r->n_pending + r->n_kept > DRAFTS_PENDING_MAX) {
        begin_anew(s, r);
        return;
    }
    for (uint32_t k = 0; k < r->n_kept; k++)
        memcpy(r->pending + r->n_pending++ * hidden, forward_final(forward, r->first_row + k), hidden * sizeof(float));
}

/* The pairs (hidden state of a token, token behind it) of a job, from what waited and from the pass. */
static size_t add_pairs(struct scheduler *s, struct running *r, size_t n, bool wants_draft)
{
    const struct forward *forward = engine_forward(s->engine);
    uint32_t first = r->kv.n_mtp_rows, count = r->n_pending + r->n_kept;
    ASSERT(first + count == r->kv.n_rows); /* no pair is ever left out */
    for (uint32_t k = 0; k < count; k++)
        s->mtp_rows[n++] = (struct forward_mtp_row){
            .kv = &r->kv,
            .token = r->history.ids[first + k + 1],
            .position = first + k,
            .hidden = k < r->n_pending ? r->pending + k * hidden_of(s)
                                       : forward_final(forward, r->first_row + k - r->n_pending),
            .wants_logits = wants_draft && k + 1 == count,
        };
    return n;
}

/* Whether the last pass read some of the job's prompt. */
static bool has_prompt_rows(const struct running *r)
{
    return r->kv.n_rows - r->n_kept < r->job->n_prompt;
}

/* All jobs of the pass: those that read a prompt or want drafts have their pairs taken in, the others' wait. */
static bool takes_in(const struct scheduler *s, const struct running *r, uint32_t depth)
{
    if (has_prompt_rows(r)) return r->absorbs;
    if (depth > 0 || !s->settings.weighs_drafts) return true;
    return r->n_pending + r->n_kept > DRAFTS_PENDING_MAX && draft_control_is_hopeful(&s->control);
}

static size_t pairs_of_pass(struct scheduler *s, uint32_t *depths)
{
    size_t n = 0, n_max = engine_settings_of(s->engine)->pass_rows, at = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct running *r = &s->running[i];
        if (r->n_kept == 0) continue;
        uint32_t depth = r->answers ? s->draft_rows[at++].depth : 0;
        r->is_absorbed = takes_in(s, r, depth) && n + r->n_pending + r->n_kept <= n_max;
        depths[i] = r->is_absorbed ? depth : 0;
        if (r->is_absorbed)
            n = add_pairs(s, r, n, depth > 0);
        else
            keep_pending(s, r);
    }
    return n;
}

/* Asked while the layer runs. A prompt takes it long enough for its client to leave; those beside it begin anew then.
 */
static bool step_is_wanted(void *context, uint32_t layer)
{
    struct scheduler *s = context;
    bool anybody = false;
    (void)layer;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct running *r = &s->running[i];
        if (r->n_kept == 0 || !r->is_absorbed) continue;
        bool has_left = job_is_cancelled(r->job);
        if (has_left && has_prompt_rows(r)) return false;
        anybody = anybody || !has_left;
    }
    return anybody;
}

static bool run_step(struct scheduler *s, size_t n_rows)
{
    struct err why = {0};
    struct draft_stats *stats = &s->stats.drafts;
    struct pass_meter before = meter_read(s);
    forward_set_poll(engine_forward(s->engine), step_is_wanted, s);
    bool ok = engine_mtp(s->engine, s->mtp_rows, n_rows, &why);
    forward_set_poll(engine_forward(s->engine), NULL, NULL);
    struct pass_meter after = meter_read(s);
    s->stats.n_called_off += why.kind == ERR_CANCELLED;
    struct pass_seen seen = between(&before, &after, n_rows);
    stats->n_steps++;
    stats->n_step_missed += seen.n_missed;
    stats->step_bytes += after.bytes - before.bytes;
    stats->steps_ns += seen.ns;
    if (ok && !s->reader && seen.ns > 0) draft_control_saw_link(&s->control, &seen);
    return ok;
}

/* Takes the draft behind MTP row `row` and makes the row of the next link of the chain. */
static void take_draft(struct scheduler *s, struct running *r, size_t row, struct forward_mtp_row *next)
{
    const struct forward *forward = engine_forward(s->engine);
    const struct config *config = engine_config(s->engine);
    const struct job_events *events = &r->job->events;
    uint32_t draft = forward_argmax(forward_logits(forward, row), s->settings.n_tokens);
    if (events->draft) draft = events->draft(events->context, r->history.n + r->n_drafts, draft);
    bool is_raw = config->mtp_chain == MTP_CHAIN_BLOCK_OUTPUT;
    r->drafts[r->n_drafts++] = draft;
    *next = (struct forward_mtp_row){.kv = &r->kv,
                                     .token = draft,
                                     .position = r->kv.n_rows + r->n_drafts - 1,
                                     .hidden = is_raw ? forward_stream(forward, row) : forward_final(forward, row),
                                     .wants_logits = true,
                                     .takes_selection = config->index_share_for_mtp,
                                     .selection_of = (uint32_t)row};
}

static uint32_t owner_of(const struct scheduler *s, const struct kv *kv)
{
    uint32_t i = 0;
    while (&s->running[i].kv != kv) i++;
    return i;
}

/* One link of every chain at once, until no job wants more. Rows of drafts are forgotten afterwards. */
static void chain_drafts(struct scheduler *s, size_t n_rows, const uint32_t *depths)
{
    while (n_rows > 0) {
        size_t n_next = 0;
        for (size_t row = 0; row < n_rows; row++) {
            struct forward_mtp_row next;
            if (!s->mtp_rows[row].wants_logits) continue;
            uint32_t i = owner_of(s, s->mtp_rows[row].kv);
            take_draft(s, &s->running[i], row, &next);
            if (s->running[i].n_drafts < depths[i]) s->mtp_rows[n_next++] = next;
        }
        n_rows = n_next > 0 && run_step(s, n_next) ? n_next : 0;
    }
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct kv *kv = &s->running[i].kv;
        if (kv->n_mtp_rows > kv->n_rows) kv->n_mtp_rows = kv->n_rows;
    }
}

static void run_mtp(struct scheduler *s)
{
    uint32_t depths[CURVE_ROWS] = {0};
    ASSERT(s->n_running <= CURVE_ROWS);
    size_t n = pairs_of_pass(s, depths);
    bool ok = n == 0 || run_step(s, n);
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct running *r = &s->running[i];
        if (r->n_kept == 0 || !r->is_absorbed) continue;
        if (ok)
            r->n_pending = 0;
        else
            begin_anew(s, r);
    }
    if (ok) chain_drafts(s, n, depths);
}

void drafting_prepare(struct scheduler *s)
{
    uint32_t at = 0;
    choose_depths(s);
    s->links_ns = clock_now_ns(s->settings.clock);
    if (s->settings.draft == DRAFT_MTP) run_mtp(s);
    s->links_ns = clock_now_ns(s->settings.clock) - s->links_ns;
    if (s->reader) s->forecast.parts_ns = 0; /* the MTP layer took in a prompt besides: no round like others */
    if (s->settings.draft != DRAFT_NGRAM) return;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct running *r = &s->running[i];
        if (r->n_kept > 0 && r->answers) r->n_drafts += s->draft_rows[at++].depth;
    }
}
