/* What the server counts: /stats as JSON, /metrics for scrapers, /fit for the memory plan. */
#include "serve/small_api.h"

#include "serve/call.h"
#include "serve/drafts_json.h"
#include "serve/jot.h"
#include "serve/own_turns.h"
#include "serve/responses_store.h"
#include <inttypes.h>
#include <string.h>

enum { BODY_BYTES_MAX = 1 << 20 };

struct numbers {
    const struct served_model *model;
    struct service_stats service;
    struct response_store_stats responses;
    struct own_turns_stats own_turns;
    double uptime_s, tokens_per_second;
};

/* Of several models the one whose engine is open, or else the first. */
static const struct served_model *told_model(const struct server *server)
{
    const struct server_settings *s = &server->settings;
    for (size_t i = 0; i < s->n_models; i++)
        if (service_state(s->models[i].service, NULL) == SERVICE_READY) return &s->models[i];
    return s->models;
}

static struct numbers take(struct server *server)
{
    struct numbers n = {.model = told_model(server)};
    service_stats(n.model->service, &n.service);
    n.responses = response_store_stats(server->responses);
    n.own_turns = own_turns_stats(server_own_turns(server, n.model));
    n.uptime_s = (double)(server_now(server) - server->started_ns) / 1e9;
    double decode_s = (double)n.service.decode_ns / 1e9;
    n.tokens_per_second = decode_s > 0 ? (double)n.service.n_decoded / decode_s : 0;
    return n;
}

static int64_t load(_Atomic uint64_t *count)
{
    return (int64_t)atomic_load(count);
}

static void put_engine(struct jot *json, const struct numbers *n)
{
    jot_put_open(json, "engine");
    jot_put_integer(json, "pid", n->service.engine_pid);
    jot_put_integer(json, "restarts", n->service.n_restarts);
    jot_close(json);
}

static void put_models(struct jot *json, const struct server *server)
{
    struct service_stats stats;
    jot_put_open_list(json, "models");
    for (size_t i = 0; i < server->settings.n_models; i++) {
        service_stats(server->settings.models[i].service, &stats);
        jot_open(json);
        jot_put_words(json, "id", server->settings.models[i].name);
        jot_put_integer(json, "pid", stats.engine_pid);
        jot_put_integer(json, "opened", stats.n_opened);
        jot_put_integer(json, "restarts", stats.n_restarts);
        jot_put_integer(json, "open", stats.n_open);
        jot_close(json);
    }
    jot_close_list(json);
}

static void put_requests(struct jot *json, struct server *server, const struct numbers *n)
{
    struct server_counts *c = &server->counts;
    jot_put_open(json, "requests");
    jot_put_integer(json, "total", load(&c->n_requests));
    jot_put_integer(json, "ok", load(&c->n_ok));
    jot_put_integer(json, "refused", load(&c->n_refused));
    jot_put_integer(json, "failed", load(&c->n_failed));
    jot_put_integer(json, "left", load(&c->n_left));
    jot_put_integer(json, "open", n->service.n_open);
    jot_put_integer(json, "running", n->service.scheduler.n_running);
    jot_put_integer(json, "waiting", n->service.scheduler.n_waiting);
    jot_put_integer(json, "queue_full", (int64_t)n->service.n_refused_full);
    jot_put_integer(json, "paused", n->service.n_paused);
    jot_put_integer(json, "pauses", (int64_t)n->service.n_pauses);
    jot_close(json);
    jot_put_open(json, "answers");
    for (int reason = STOP_EOS; reason <= STOP_ERROR; reason++) {
        static const char *const names[] = {
            [STOP_EOS] = "eos",   [STOP_ID] = "stop_id",    [STOP_STRING] = "stop_string",  [STOP_GRAMMAR] = "grammar",
            [STOP_TOOL] = "tool", [STOP_LENGTH] = "length", [STOP_CANCELLED] = "cancelled", [STOP_ERROR] = "error"};
        jot_put_integer(json, names[reason], (int64_t)n->service.scheduler.n_done[reason]);
    }
    jot_close(json);
}

static void put_tokens(struct jot *json, struct server *server, const struct numbers *n)
{
    struct server_counts *c = &server->counts;
    const struct scheduler_stats *s = &n->service.scheduler;
    jot_put_open(json, "tokens");
    jot_put_integer(json, "prompt", load(&c->n_prompt_tokens));
    jot_put_integer(json, "cached", load(&c->n_cached_tokens));
    jot_put_integer(json, "answer", load(&c->n_answer_tokens));
    jot_put_integer(json, "reasoning", load(&c->n_reasoning_tokens));
    jot_put_real(json, "per_second_last", n->service.last_tokens_per_second);
    jot_put_real(json, "per_second_mean", n->tokens_per_second);
    jot_close(json);
    jot_put_open(json, "passes");
    jot_put_integer(json, "total", (int64_t)s->n_passes);
    jot_put_integer(json, "called_off", (int64_t)s->n_called_off);
    jot_close(json);
    jot_put_open(json, "predicted_finishes");
    jot_put_integer(json, "told", (int64_t)s->n_finishes_told);
    jot_put_integer(json, "held", (int64_t)s->n_finishes_held);
    jot_close(json);
    drafts_put_stats(json, &n->service);
}

/* The states on disk; nothing without --ssd-cache. */
static void put_disk_states(struct jot *json, const struct ssd_stats *s)
{
    jot_put_open(json, "ssd_cache");
    jot_put_integer(json, "states", s->n_states);
    jot_put_integer(json, "bytes", (int64_t)s->bytes);
    jot_put_integer(json, "foreign", s->n_foreign);
    jot_put_integer(json, "damaged", s->n_damaged);
    jot_put_integer(json, "saved", (int64_t)s->n_saved);
    jot_put_integer(json, "tokens_saved", (int64_t)s->n_tokens_saved);
    jot_put_integer(json, "bytes_written", (int64_t)s->bytes_written);
    jot_put_real(json, "save_seconds", (double)s->save_ns / 1e9);
    jot_put_real(json, "save_seconds_longest_step", (double)s->save_ns_longest / 1e9);
    jot_put_integer(json, "restored", (int64_t)s->n_restored);
    jot_put_integer(json, "tokens_restored", (int64_t)s->n_tokens_restored);
    jot_put_integer(json, "bytes_read", (int64_t)s->bytes_read);
    jot_put_real(json, "restore_seconds", (double)s->restore_ns / 1e9);
    jot_put_integer(json, "torn", (int64_t)s->n_torn);
    jot_put_integer(json, "removed", (int64_t)s->n_removed);
    jot_put_integer(json, "too_large", (int64_t)s->n_too_large);
    jot_put_integer(json, "failed", (int64_t)s->n_failed);
    jot_close(json);
}

static void put_memory(struct jot *json, struct server *server, const struct numbers *n)
{
    const struct service_stats *s = &n->service;
    jot_put_open(json, "prefix_cache");
    jot_put_integer(json, "entries", s->prefixes.n_entries);
    jot_put_integer(json, "blocks", s->prefixes.n_blocks);
    jot_put_integer(json, "hits", (int64_t)s->prefixes.n_hits);
    jot_put_integer(json, "misses", (int64_t)s->prefixes.n_misses);
    jot_put_integer(json, "tokens_saved", (int64_t)s->prefixes.n_tokens_saved);
    jot_close(json);
    if (s->has_ssd) put_disk_states(json, &s->ssd);
    jot_put_open(json, "state");
    jot_put_integer(json, "blocks", s->kv_blocks);
    jot_put_integer(json, "bytes", (int64_t)(s->kv_blocks * s->kv_block_bytes));
    jot_close(json);
    jot_put_open(json, "memory");
    jot_put_integer(json, "allocated_bytes", load(&server->alloc->live_bytes));
    if (s->is_streamed) jot_put_integer(json, "budget_bytes", (int64_t)s->budget_bytes);
    if (s->is_streamed) jot_put_integer(json, "held_bytes", (int64_t)s->held_bytes);
    if (s->is_streamed) jot_put_integer(json, "shrinks", (int64_t)s->n_shrinks);
    jot_close(json);
    jot_put_open(json, "masks");
    jot_put_integer(json, "made", (int64_t)s->masks.n_masks);
    jot_put_real(json, "made_seconds", (double)s->masks.made_ns / 1e9);
    jot_put_real(json, "longest_seconds", (double)s->masks.made_ns_max / 1e9);
    jot_put_integer(json, "waits", (int64_t)s->masks.n_waits);
    jot_put_real(json, "waited_seconds", (double)s->masks.waited_ns / 1e9);
    jot_close(json);
    jot_put_open(json, "own_turns");
    jot_put_integer(json, "entries", (int64_t)n->own_turns.n);
    jot_put_integer(json, "bytes", (int64_t)n->own_turns.bytes);
    jot_put_integer(json, "reused", (int64_t)n->own_turns.n_reused);
    jot_close(json);
    jot_put_open(json, "stored_responses");
    jot_put_integer(json, "entries", (int64_t)n->responses.n);
    jot_put_integer(json, "bytes", (int64_t)n->responses.bytes);
    jot_close(json);
    if (!s->is_streamed) return;
    jot_put_open(json, "experts");
    jot_put_integer(json, "slots", s->slots.n_slots);
    jot_put_integer(json, "resident", s->slots.n_resident);
    jot_put_integer(json, "leased", s->slots.n_leased);
    jot_put_integer(json, "loading", s->slots.n_loading);
    jot_put_integer(json, "hits", (int64_t)s->slots.n_hits);
    jot_put_integer(json, "misses", (int64_t)s->slots.n_misses);
    jot_put_integer(json, "joined", (int64_t)s->slots.n_joined);
    jot_put_integer(json, "hints", (int64_t)s->slots.n_hints);
    jot_put_integer(json, "hint_hits", (int64_t)s->slots.n_hint_hits);
    jot_put_integer(json, "evictions", (int64_t)s->slots.n_evictions);
    jot_put_integer(json, "bytes_wanted", (int64_t)s->slots.bytes_wanted);
    jot_put_integer(json, "bytes_read", (int64_t)s->slots.bytes_loaded);
    jot_put_real(json, "wait_seconds", (double)s->streamer.waited_ns / 1e9);
    jot_close(json);
}

/* Where the time of passes went. */
static void put_stages(struct jot *json, const struct stage_times *times)
{
    jot_put_open(json, "stage_seconds");
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        jot_put_real(json, stage_name((enum stage)stage), (double)times->ns[stage] / 1e9);
    jot_close(json);
}

/* Bytes count for what the read was when it was done: a hint that came to be wanted is demand. */
static uint64_t demanded_bytes(const struct reader_stats *r)
{
    return r->bytes[READ_DEMAND] + r->bytes[READ_SWEEP];
}

static uint64_t hinted_bytes(const struct reader_stats *r)
{
    return r->bytes[READ_HINT] + r->bytes[READ_GUESS];
}

static void put_disk(struct jot *json, const struct reader_stats *r)
{
    jot_put_open(json, "disk");
    jot_put_integer(json, "bytes_demanded", (int64_t)demanded_bytes(r));
    jot_put_integer(json, "bytes_hinted", (int64_t)hinted_bytes(r));
    jot_put_real(json, "busy_seconds", (double)r->busy_ns / 1e9);
    jot_put_integer(json, "reads_in_flight_most", r->n_flying_max);
    jot_put_integer(json, "short_reads", (int64_t)r->n_short);
    jot_put_integer(json, "interrupted", (int64_t)r->n_interrupted);
    jot_put_integer(json, "io_errors", (int64_t)r->n_eio);
    jot_put_integer(json, "failed", (int64_t)r->n_failed);
    jot_put_integer(json, "cancelled", (int64_t)r->n_cancelled);
    jot_close(json);
}

void small_stats(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct err err = {0};
    struct numbers n = take(server);
    (void)worker;
    buf_init(&body, server->alloc, BODY_BYTES_MAX);
    struct jot json = jot_to(&body);
    jot_open(&json);
    jot_put_words(&json, "model", n.model->name);
    jot_put_words(&json, "build", n.model->fingerprint);
    jot_put_words(&json, "numerics", n.model->numerics);
    jot_put_words(&json, "kv", n.model->kv);
    jot_put_real(&json, "uptime_seconds", n.uptime_s);
    if (n.model->is_isolated) put_engine(&json, &n);
    if (server->settings.n_models > 1) put_models(&json, server);
    put_requests(&json, server, &n);
    put_tokens(&json, server, &n);
    put_memory(&json, server, &n);
    put_stages(&json, &n.service.stages);
    if (n.service.is_streamed) put_disk(&json, &n.service.reader);
    jot_close(&json);
    bool ok = jot_end(&json, &err);
    server_reply(exchange, &body, ok, &err);
    buf_fini(&body);
}

/* --- text for scrapers, format 0.0.4 --- */

struct metric {
    const char *name, *type, *help;
    double value;
};

static bool add_metric(struct buf *out, const struct metric *m, struct err *err)
{
    return buf_printf(out, err, "# HELP weir_%s %s\n# TYPE weir_%s %s\nweir_%s %.17g\n", m->name, m->help, m->name,
                      m->type, m->name, m->value);
}

/* As a label's value: what would end it is left out. */
static bool add_label(struct buf *out, const char *text, struct err *err)
{
    for (; *text; text++)
        if (*text != '"' && *text != '\\' && *text != '\n' && !buf_add_char(out, *text, err)) return false;
    return true;
}

/* Of several models the one whose numbers the others are changes with the engine that is open; these are of all. */
static bool add_models(struct buf *out, const struct server *server, struct err *err)
{
    struct service_stats stats;
    const struct served_model *models = server->settings.models;
    if (server->settings.n_models == 1) return true;
    if (!buf_printf(out, err,
                    "# HELP weir_model_opened_total How often its engine was opened.\n"
                    "# TYPE weir_model_opened_total counter\n"))
        return false;
    for (size_t i = 0; i < server->settings.n_models; i++) {
        service_stats(models[i].service, &stats);
        if (!buf_printf(out, err, "weir_model_opened_total{model=\"") || !add_label(out, models[i].name, err) ||
            !buf_printf(out, err, "\"} %" PRIu32 "\n", stats.n_opened))
            return false;
    }
    return true;
}

static bool add_stages(struct buf *out, const struct stage_times *times, struct err *err)
{
    static const char head[] = "# HELP weir_stage_seconds_total Time of passes, by what they did.\n"
                               "# TYPE weir_stage_seconds_total counter\n";
    bool ok = buf_add_text(out, head, err);
    for (int stage = 0; ok && stage < STAGE_COUNT; stage++)
        ok = buf_printf(out, err, "weir_stage_seconds_total{stage=\"%s\"} %.17g\n", stage_name((enum stage)stage),
                        (double)times->ns[stage] / 1e9);
    return ok;
}

static bool add_disk(struct buf *out, const struct service_stats *s, struct err *err)
{
    const struct reader_stats *r = &s->reader;
    const struct metric metrics[] = {
        {"held_bytes", "gauge", "Memory that the engine's process holds.", (double)s->held_bytes},
        {"disk_busy_seconds_total", "counter", "Time with at least one read in flight.", (double)r->busy_ns / 1e9},
        {"disk_bytes_demanded_total", "counter", "Bytes read because they were wanted.", (double)demanded_bytes(r)},
        {"disk_bytes_hinted_total", "counter", "Bytes read ahead, and not wanted meanwhile.", (double)hinted_bytes(r)},
        {"disk_io_errors_total", "counter", "Reads that were tried again.", (double)r->n_eio},
        {"disk_failed_total", "counter", "Reads that failed.", (double)r->n_failed},
    };
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (!add_metric(out, &metrics[i], err)) return false;
    return true;
}

static bool add_metrics(struct buf *out, struct server *server, const struct numbers *n, struct err *err)
{
    struct server_counts *c = &server->counts;
    const struct service_stats *s = &n->service;
    const struct metric metrics[] = {
        {"uptime_seconds", "gauge", "Since the server was started.", n->uptime_s},
        {"requests_total", "counter", "Requests that came to an end.", (double)load(&c->n_requests)},
        {"requests_ok_total", "counter", "Of these, answered.", (double)load(&c->n_ok)},
        {"requests_refused_total", "counter", "Of these, refused.", (double)load(&c->n_refused)},
        {"requests_failed_total", "counter", "Of these, failed by the server.", (double)load(&c->n_failed)},
        {"requests_left_total", "counter", "Of these, left by their client.", (double)load(&c->n_left)},
        {"requests_queue_full_total", "counter", "Refused because the queue was full.", (double)s->n_refused_full},
        {"requests_open", "gauge", "Running or waiting.", s->n_open},
        {"requests_running", "gauge", "Sharing passes.", s->scheduler.n_running},
        {"requests_waiting", "gauge", "In the queue.", s->scheduler.n_waiting},
        {"answers_cancelled_total", "counter", "Answers nobody wanted any more.",
         (double)s->scheduler.n_done[STOP_CANCELLED]},
        {"answers_error_total", "counter", "Answers that failed.", (double)s->scheduler.n_done[STOP_ERROR]},
        {"prompt_tokens_total", "counter", "Tokens of prompts.", (double)load(&c->n_prompt_tokens)},
        {"cached_tokens_total", "counter", "Of these, known already.", (double)load(&c->n_cached_tokens)},
        {"answer_tokens_total", "counter", "Tokens of answers.", (double)load(&c->n_answer_tokens)},
        {"decode_seconds_total", "counter", "Time between the first and the last token of answers.",
         (double)s->decode_ns / 1e9},
        {"passes_total", "counter", "Passes of the engine.", (double)s->scheduler.n_passes},
        {"predicted_finishes_total", "counter", "Predictions for long prompts.", (double)s->scheduler.n_finishes_told},
        {"predicted_finishes_held_total", "counter", "Of these, true.", (double)s->scheduler.n_finishes_held},
        {"drafted_tokens_total", "counter", "Tokens that were drafted.", (double)s->scheduler.n_drafted},
        {"accepted_tokens_total", "counter", "Of these, accepted.", (double)s->scheduler.n_accepted},
        {"answers_paused_total", "counter", "Times that an answer stood still for a slow client.", (double)s->n_pauses},
        {"answers_paused", "gauge", "Answers that stand still.", s->n_paused},
        {"masks_total", "counter", "Masks of constrained answers.", (double)s->masks.n_masks},
        {"mask_seconds_total", "counter", "Time spent making them, beside the engine.", (double)s->masks.made_ns / 1e9},
        {"mask_wait_seconds_total", "counter", "Time that the engine waited for them.",
         (double)s->masks.waited_ns / 1e9},
        {"own_turns_reused_total", "counter", "Turns with calls whose own tokens a later prompt took.",
         (double)n->own_turns.n_reused},
        {"engine_restarts_total", "counter", "Of an engine in a process of its own.", s->n_restarts},
        {"budget_bytes", "gauge", "Memory budget in force.", (double)s->budget_bytes},
        {"forced_tokens_total", "counter", "Tokens that a constraint forced, without a pass of their own.",
         (double)s->scheduler.n_forced},
        {"draft_passes_total", "counter", "Passes with drafts.", (double)s->scheduler.drafts.n_passes},
        {"draft_gain_seconds", "gauge", "Gained by drafts over none; below 0: lost.",
         s->scheduler.drafts.gain_ns / 1e9},
        {"draft_bytes_read_total", "counter", "Bytes that drafts added to what was read.",
         (double)draft_totals(&s->scheduler.drafts, s->expert_bytes).bytes},
        {"prefix_hits_total", "counter", "Prompts with a known beginning.", (double)s->prefixes.n_hits},
        {"prefix_entries", "gauge", "Kept prefixes.", s->prefixes.n_entries},
        {"state_saved_total", "counter", "States written to disk.", (double)s->ssd.n_saved},
        {"state_written_bytes_total", "counter", "Bytes of them.", (double)s->ssd.bytes_written},
        {"state_restored_total", "counter", "States read back from disk.", (double)s->ssd.n_restored},
        {"state_restored_tokens_total", "counter", "Tokens of them.", (double)s->ssd.n_tokens_restored},
        {"state_failed_total", "counter", "States that could not be written or read.", (double)s->ssd.n_failed},
        {"state_bytes", "gauge", "State of sequences.", (double)(s->kv_blocks * s->kv_block_bytes)},
        {"memory_bytes", "gauge", "Memory that was asked for.", (double)load(&server->alloc->live_bytes)},
        {"expert_slots", "gauge", "Expert slots.", s->slots.n_slots},
        {"expert_slots_resident", "gauge", "Slots with an expert in them.", s->slots.n_resident},
        {"expert_hits_total", "counter", "Experts that were there.", (double)s->slots.n_hits},
        {"expert_misses_total", "counter", "Experts that had to be read.", (double)s->slots.n_misses},
        {"expert_bytes_read_total", "counter", "Bytes read into slots.", (double)s->slots.bytes_loaded},
        {"expert_wait_seconds_total", "counter", "Time spent waiting for experts.",
         (double)s->streamer.waited_ns / 1e9},
    };
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (!add_metric(out, &metrics[i], err)) return false;
    if (s->is_streamed && !add_disk(out, s, err)) return false;
    return add_stages(out, &s->stages, err) && add_models(out, server, err) &&
           histograms_write(&server->histograms, out, err);
}

void small_metrics(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct err err = {0};
    struct numbers n = take(server);
    (void)worker;
    buf_init(&body, server->alloc, BODY_BYTES_MAX);
    if (add_metrics(&body, server, &n, &err))
        httpd_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
    else
        server_reply(exchange, &body, false, &err);
    buf_fini(&body);
}

/* --- the plan --- */

static void put_plan(struct jot *json, const struct plan *plan)
{
    jot_open(json);
    jot_put_open_list(json, "items");
    for (uint32_t i = 0; i < plan->n_items; i++) {
        jot_open(json);
        jot_put_words(json, "name", plan->items[i].name);
        jot_put_integer(json, "bytes", (int64_t)plan->items[i].bytes);
        jot_put_words(json, "derivation", plan->items[i].derivation);
        jot_close(json);
    }
    jot_close_list(json);
    jot_put_bool(json, "fits", true); /* or the model would not be open */
    jot_put_integer(json, "budget", (int64_t)plan->budget_bytes);
    jot_put_words(json, "budget_source", plan->budget_source);
    jot_put_integer(json, "used", (int64_t)plan->used_bytes);
    jot_put_integer(json, "slots", plan->n_slots_total);
    jot_put_integer(json, "prefill_chunk", plan->prefill_chunk);
    jot_put_integer(json, "token_bytes", (int64_t)plan->token_bytes);
    jot_put_real(json, "hits_low", plan->hits_low);
    jot_put_real(json, "hits_high", plan->hits_high);
    jot_close(json);
}

void small_fit(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct plan plan;
    struct err err = {0};
    struct problem problem;
    (void)worker;
    const struct served_model *model = told_model(server);
    if (!service_plan(model->service, &plan)) {
        enum service_state state = service_state(model->service, NULL);
        bool loads = state == SERVICE_LOADING || state == SERVICE_PARKED;
        problem_set(&problem, loads ? PROBLEM_LOADING : PROBLEM_NOT_FOUND, NULL,
                    loads ? "the model is still being loaded"
                          : "there is no memory plan: this model is held in memory as a whole");
        server_refuse(exchange, &problem);
        return;
    }
    buf_init(&body, server->alloc, BODY_BYTES_MAX);
    struct jot json = jot_to(&body);
    put_plan(&json, &plan);
    bool ok = jot_end(&json, &err);
    server_reply(exchange, &body, ok, &err);
    buf_fini(&body);
}
