/* weir generate: one answer to one prompt. */
#include "cli/answer_print.h"
#include "cli/answering.h"
#include "cli/commands.h"
#include "cli/given_ids.h"
#include "cli/interrupt.h"
#include "cli/library.h"
#include "cli/prompt_text.h"
#include "cli/request_settings.h"
#include "fmt/json_text.h"
#include "plat/peak_memory.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define TEXT_BYTES_MAX (UINT64_C(1) << 30)

struct generating {
    const struct command_context *context;
    bool is_ids, is_chat; /* is_ids: prompt and answer are token ids */
    struct weir_model *model;
    struct weir_model_facts facts;
    struct weir_request request;
    struct weir_chat_options chat;
    struct weir_prompt *prompt;
    struct weir_engine *engine;
    struct weir_session *session;
    struct weir_result result;
    struct answer_print print;
    struct buf ids, text, reasoning; /* what was generated; ids are parted by commas or blanks */
    struct err failure;              /* of keeping or printing it, which ended the answer */
};

static bool refuse_option(const struct settings *settings, const char *name, const char *why, struct err *err)
{
    if (settings_origin(settings, name) != ORIGIN_COMMAND_LINE) return true;
    return err_set(err, ERR_USER, "--%s has no effect %s", name, why);
}

/* What kind of prompt it is, and that no option contradicts it. */
static bool choose_kind(struct generating *g, struct err *err)
{
    static const char *const text_only[] = {"prompt", "prompt-file", "raw"};
    static const char *const chat_only[] = {"system", "thinking", "effort"};
    const struct settings *s = g->context->settings;
    g->is_ids = s->ids || s->ids_file;
    g->is_chat = !g->is_ids && !s->raw;
    const char *why = g->is_ids ? "on a prompt of token ids" : "with --raw";
    if (g->is_ids && g->context->n_operands > 1)
        return err_set(err, ERR_USER, "give the prompt once: as an operand or as token ids");
    for (size_t i = 0; g->is_ids && i < sizeof text_only / sizeof *text_only; i++)
        if (!refuse_option(s, text_only[i], why, err)) return false;
    for (size_t i = 0; !g->is_chat && i < sizeof chat_only / sizeof *chat_only; i++)
        if (!refuse_option(s, chat_only[i], why, err)) return false;
    return true;
}

static bool make_chat(struct generating *g, const char *text, size_t bytes, struct err *err)
{
    struct buf system;
    struct weir_error error;
    buf_init(&system, g->context->alloc, PROMPT_BYTES_MAX);
    const char *role = g->context->settings->system;
    bool ok = !role || prompt_text_of_argument(&system, role, err);
    const struct weir_message messages[] = {
        {.role = "system", .text = system.data ? system.data : "", .bytes = system.bytes},
        {.role = "user", .text = text, .bytes = bytes},
    };
    size_t first = role ? 0 : 1;
    ok = ok && library_ok(weir_prompt_of_messages(&g->prompt, g->model, messages + first, 2 - first, &g->chat, &error),
                          &error, err);
    buf_fini(&system);
    return ok;
}

static bool make_text_prompt(struct generating *g, struct err *err)
{
    struct buf text;
    struct weir_error error;
    bool is_typed = false;
    buf_init(&text, g->context->alloc, PROMPT_BYTES_MAX);
    bool ok = prompt_text_read(&text, &is_typed, g->context, err);
    if (ok && text.bytes == 0) ok = err_set(err, ERR_USER, "the prompt is empty");
    if (ok && g->is_chat) {
        /* the end of the last line of a file is no part of the message */
        size_t bytes = text.bytes - (!is_typed && text.data[text.bytes - 1] == '\n');
        ok = make_chat(g, text.data, bytes, err);
    } else if (ok) {
        ok = library_ok(weir_prompt_of_text(&g->prompt, g->model, text.data, text.bytes, &error), &error, err);
    }
    buf_fini(&text);
    return ok;
}

/* All that can be refused before anything large is opened. */
static bool prepare(struct generating *g, struct err *err)
{
    const struct settings *s = g->context->settings;
    struct weir_error error;
    size_t n;
    if (!choose_kind(g, err) || !library_open_model(&g->model, g->context, err)) return false;
    g->facts.size = sizeof g->facts;
    if (!library_ok(weir_model_describe(g->model, &g->facts, &error), &error, err)) return false;
    if (!request_settings(&g->request, &g->chat, g->model, g->context, err)) return false;
    if (!(g->is_ids ? given_ids_prompt(&g->prompt, g->model, g->context, err) : make_text_prompt(g, err))) return false;
    weir_prompt_ids(g->prompt, &n);
    if (n >= s->context_length)
        return err_set(err, ERR_USER,
                       "the prompt has %zu tokens and the context holds %" PRIu64
                       ", one of them for an answer; give a larger --context-length or a shorter prompt",
                       n, s->context_length);
    return true;
}

static bool keep(struct generating *g, const struct weir_event *event)
{
    const char *parting = g->context->settings->json ? "," : " ";
    switch (event->kind) {
    case WEIR_EVENT_TOKEN:
        return buf_printf(&g->ids, &g->failure, "%s%" PRIu32, g->ids.bytes ? parting : "", event->id);
    case WEIR_EVENT_TEXT: return buf_add(&g->text, event->text, event->bytes, &g->failure);
    case WEIR_EVENT_REASONING: return buf_add(&g->reasoning, event->text, event->bytes, &g->failure);
    case WEIR_EVENT_PROGRESS:
    case WEIR_EVENT_CALL: break;
    }
    return true;
}

static bool is_streamed(const struct generating *g)
{
    return !g->context->settings->json && !g->is_ids;
}

static int see_event(void *context, const struct weir_event *event)
{
    struct generating *g = context;
    if ((is_streamed(g) || event->kind == WEIR_EVENT_PROGRESS) && !answer_print_event(&g->print, event))
        return !err_set(&g->failure, ERR_IO, "cannot write the output: %s", strerror(errno));
    return !is_streamed(g) && !keep(g, event);
}

static bool run(struct generating *g, struct err *err)
{
    g->request.event = see_event;
    g->request.context = g;
    const struct answering answering = {
        .engine = g->engine, .session = g->session, .prompt = g->prompt, .request = &g->request};
    bool ok = answering_run(&answering, &g->result, err);
    answer_print_progress_end(&g->print);
    if (ok && is_streamed(g)) answer_print_end(&g->print);
    if (g->failure.kind == ERR_NONE) return ok;
    *err = g->failure;
    return false;
}

static bool add_json_text(struct buf *out, const char *name, const struct buf *text, struct err *err)
{
    return buf_printf(out, err, ",\"%s\":", name) &&
           json_text_add_string(out, text->data ? text->data : "", text->bytes, err);
}

static bool add_json_residency(struct buf *out, struct weir_engine *engine, struct err *err)
{
    struct weir_counters c = {.size = sizeof c};
    struct weir_error error;
    if (!library_ok(weir_engine_counters(engine, &c, &error), &error, err)) return false;
    if (!c.is_streamed) return true;
    return buf_printf(out, err,
                      ",\"residency\":{\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"bytes_read\":%" PRIu64
                      ",\"waited_seconds\":%.6f}",
                      c.n_hits, c.n_misses, c.expert_bytes_read, (double)c.expert_wait_ns / 1e9);
}

static bool add_json_drafts(struct buf *out, const struct generating *g, struct err *err)
{
    static const char *const modes[] = {
        [WEIR_DRAFT_AUTO] = "auto", [WEIR_DRAFT_OFF] = "off", [WEIR_DRAFT_NGRAM] = "ngram", [WEIR_DRAFT_MTP] = "mtp"};
    struct weir_counters c = {.size = sizeof c};
    struct weir_error error;
    const struct weir_result *r = &g->result;
    if (!library_ok(weir_engine_counters(g->engine, &c, &error), &error, err)) return false;
    return buf_printf(out, err,
                      ",\"speculation\":{\"mode\":\"%s\",\"drafted\":%" PRIu32 ",\"accepted\":%" PRIu32
                      ",\"passes\":%" PRIu32 ",\"tokens_per_pass\":%.4g,\"draft_passes\":%" PRIu64
                      ",\"forced\":%" PRIu64 ",\"forwards_saved\":%" PRIu64 ",\"added_experts\":%" PRIu64
                      ",\"added_bytes\":%" PRIu64 ",\"expected_gain_seconds\":%.6f,\"gain_seconds\":%.6f}",
                      modes[c.draft], r->n_drafted, r->n_accepted, r->n_passes,
                      r->n_passes ? (double)r->n_generated / r->n_passes : 0, c.n_draft_passes, c.n_forced,
                      r->n_accepted + c.n_forced, c.n_draft_experts, c.draft_bytes,
                      (double)c.draft_expected_gain_ns / 1e9, (double)c.draft_gain_ns / 1e9);
}

static bool print_json(const struct generating *g, struct err *err)
{
    const struct weir_result *r = &g->result;
    const struct settings *s = g->context->settings;
    struct buf out;
    buf_init(&out, g->context->alloc, 4 * TEXT_BYTES_MAX);
    bool ok = buf_printf(&out, err, "{\"ids\":[%s]", g->ids.data ? g->ids.data : "");
    if (ok && g->facts.has_tokenizer) ok = add_json_text(&out, "text", &g->text, err);
    if (ok && g->reasoning.bytes) ok = add_json_text(&out, "reasoning", &g->reasoning, err);
    ok = ok &&
         buf_printf(&out, err,
                    ",\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
                    ",\"reasoning_tokens\":%" PRIu32 "},\"numerics\":\"%s\",\"kv\":\"%s\",\"timings\":{\"prefill_"
                    "seconds\":%.6f,\"prefill_tokens_per_second\":%.6g,"
                    "\"decode_seconds\":%.6f,\"decode_tokens_per_second\":%.6g},\"peak_memory_bytes\":%" PRIu64,
                    weir_reason_name(r->reason), r->n_prompt, r->n_generated, r->n_reasoning,
                    options_word("numerics", s), options_word("kv", s), (double)r->prompt_ns / 1e9,
                    answer_print_rate(r->n_prompt, r->prompt_ns), (double)r->answer_ns / 1e9,
                    answer_print_rate(r->n_generated, r->answer_ns), peak_memory_bytes());
    ok = ok && add_json_residency(&out, g->engine, err) && add_json_drafts(&out, g, err) &&
         buf_add_text(&out, "}\n", err);
    if (ok) fwrite(out.data, 1, out.bytes, g->context->out);
    buf_fini(&out);
    return ok;
}

static bool print_result(const struct generating *g, struct err *err)
{
    if (g->context->settings->json) return print_json(g, err);
    if (g->is_ids) fprintf(g->context->out, "%s\n", g->ids.data ? g->ids.data : "");
    answer_print_facts(g->context->log, &g->result, g->engine);
    return true;
}

static bool generate(struct generating *g, struct err *err)
{
    struct weir_error error;
    return prepare(g, err) && library_open_engine(&g->engine, g->model, g->context, err) &&
           library_ok(weir_session_new(&g->session, g->engine, &error), &error, err) && run(g, err) &&
           print_result(g, err);
}

static int finish(struct generating *g, bool ok, const struct err *err)
{
    interrupt_unwatch();
    library_close_session(g->session);
    library_close_engine(g->engine);
    weir_prompt_free(g->prompt);
    library_close_model(g->model);
    buf_fini(&g->ids);
    buf_fini(&g->text);
    buf_fini(&g->reasoning);
    if (!ok) return command_fail(g->context, err);
    return g->result.reason == WEIR_REASON_CANCELLED ? EXIT_CODE_INTERRUPTED : EXIT_CODE_DONE;
}

int command_generate(struct command_context *context)
{
    struct err err = {0};
    struct generating g = {.context = context};
    buf_init(&g.ids, context->alloc, TEXT_BYTES_MAX);
    buf_init(&g.text, context->alloc, TEXT_BYTES_MAX);
    buf_init(&g.reasoning, context->alloc, TEXT_BYTES_MAX);
    answer_print_init(&g.print, context);
    bool ok = generate(&g, &err);
    return finish(&g, ok, &err);
}
