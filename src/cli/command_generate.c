/* weir generate: one answer to one prompt. */
#include "cli/answer_print.h"
#include "cli/answer_settings.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/open_engine.h"
#include "cli/prompt_text.h"
#include "fmt/json_text.h"
#include "plat/peak_memory.h"
#include "run/sampling_json.h"
#include <inttypes.h>
#include <json-c/json_object.h>

#define TEXT_BYTES_MAX (UINT64_C(1) << 30)
#define PROMPT_TOKENS_MAX (UINT32_C(1) << 24)

struct generating {
    const struct command_context *context;
    bool is_ids, is_chat; /* is_ids: prompt and answer are token ids */
    struct text_model model;
    bool has_model; /* only then is there text: a folder without a tokenizer can be driven by ids */
    struct encoder *encoder;
    struct token_list prompt;
    struct answer_settings settings;
    struct answer_request request;
    struct engine *engine;
    struct dialogue *dialogue;
    struct answer_print print;
    struct buf ids, text, reasoning; /* what was generated; ids are parted by commas or blanks */
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

static bool has_tokenizer(const struct generating *g, bool *has, struct err *err)
{
    struct buf path;
    buf_init(&path, g->context->alloc, 1 << 16);
    bool ok = buf_printf(&path, err, "%s/tokenizer.json", g->context->operands[0]);
    *has = ok && file_present(g->context->fs, path.data);
    buf_fini(&path);
    return ok;
}

static bool open_text_model(struct generating *g, struct err *err)
{
    bool has = true;
    if (g->is_ids && !has_tokenizer(g, &has, err)) return false;
    if (!has) return true;
    if (!answer_settings_open_model(&g->model, g->context, err)) return false;
    g->has_model = true;
    g->encoder = encoder_new(g->context->alloc, g->model.tokenizer, NULL, err);
    return g->encoder != NULL;
}

static bool encode_chat(struct generating *g, const char *text, size_t bytes, struct err *err)
{
    struct chat_request request = {.messages = json_object_new_array(), .options = g->settings.chat};
    const struct chat_words user = {.role = "user", .text = text, .text_bytes = bytes};
    struct buf system;
    buf_init(&system, g->context->alloc, PROMPT_BYTES_MAX);
    bool ok = request.messages || err_set(err, ERR_NOMEM, "no memory for the messages");
    if (ok && g->context->settings->system) {
        ok = prompt_text_of_argument(&system, g->context->settings->system, err);
        const struct chat_words words = {.role = "system", .text = system.data, .text_bytes = system.bytes};
        ok = ok && chat_messages_add(request.messages, &words, err);
    }
    ok = ok && chat_messages_add(request.messages, &user, err) &&
         text_model_encode_chat(&g->model, g->encoder, &request, &g->prompt, &g->request.starts_in_think, err);
    json_object_put(request.messages);
    buf_fini(&system);
    return ok;
}

static bool encode_text(struct generating *g, struct err *err)
{
    struct buf text;
    bool is_typed = false;
    token_list_init(&g->prompt, g->context->alloc, PROMPT_TOKENS_MAX);
    buf_init(&text, g->context->alloc, PROMPT_BYTES_MAX);
    bool ok = prompt_text_read(&text, &is_typed, g->context, err);
    if (ok && text.bytes == 0) ok = err_set(err, ERR_USER, "the prompt is empty");
    if (ok && g->is_chat) {
        /* the end of the last line of a file is no part of the message */
        size_t bytes = text.bytes - (!is_typed && text.data[text.bytes - 1] == '\n');
        ok = encode_chat(g, text.data, bytes, err);
    } else if (ok) {
        ok = text_model_encode_raw(&g->model, g->encoder, text.data, text.bytes, &g->prompt, err);
    }
    buf_fini(&text);
    return ok;
}

static bool check_ids(const struct generating *g, struct err *err)
{
    for (size_t i = 0; g->has_model && i < g->prompt.n; i++)
        if (tokenizer_token(g->model.tokenizer, g->prompt.ids[i]).kind == TOKEN_DEAD)
            return err_set(err, ERR_USER, "number %zu of the ids, %" PRIu32 ", has no token; the ids end at %" PRIu32,
                           i + 1, g->prompt.ids[i], g->model.n_tokens - 1);
    return true;
}

/* All that can be refused before anything large is opened. */
static bool prepare(struct generating *g, struct err *err)
{
    const struct settings *s = g->context->settings;
    if (!choose_kind(g, err)) return false;
    if (!open_text_model(g, err)) return false;
    if (g->has_model &&
        !answer_settings_init(&g->settings, g->context, &g->model.defaults, g->model.n_logits, g->model.n_tokens, err))
        return false;
    if (g->is_ids && !open_token_list(&g->prompt, g->context, err)) return false;
    if (g->is_ids && !check_ids(g, err)) return false;
    if (!g->is_ids && !encode_text(g, err)) return false;
    if (g->prompt.n >= s->context_length)
        return err_set(err, ERR_USER,
                       "the prompt has %zu tokens and the context holds %" PRIu64
                       ", one of them for an answer; give a larger --context-length or a shorter prompt",
                       g->prompt.n, s->context_length);
    return true;
}

static bool collect_event(void *context, const struct answer_event *event, struct err *err)
{
    struct generating *g = context;
    struct buf *to = event->part == ANSWER_REASONING ? &g->reasoning : &g->text;
    return buf_add(to, event->text, event->bytes, err);
}

static bool run(struct generating *g, struct err *err)
{
    const struct settings *s = g->context->settings;
    const char *parting = s->json ? "," : " ";
    bool is_streamed = !s->json && !g->is_ids;
    g->request.is_chat = g->is_chat;
    g->request.emit = is_streamed ? answer_print_event : collect_event;
    g->request.context = is_streamed ? (void *)&g->print : g;
    const struct dialogue_request request = {
        .prompt = g->prompt.ids,
        .n_prompt = (uint32_t)g->prompt.n,
        .sampling = &g->settings.sampling,
        .answer = g->has_model ? &g->request : NULL,
        .key = g->settings.key,
        .cancel = interrupt_watch(),
        .progress = answer_print_progress,
        .progress_context = &g->print,
    };
    bool ok = dialogue_start(g->dialogue, &request, err);
    answer_print_progress_end(&g->print);
    if (!ok) return false;
    while (dialogue_result(g->dialogue)->reason == STOP_NONE) {
        struct sampled token;
        if (!dialogue_next(g->dialogue, &token, err)) return false;
        if (dialogue_result(g->dialogue)->reason != STOP_NONE) break;
        if (!buf_printf(&g->ids, err, "%s%" PRIu32, g->ids.bytes ? parting : "", token.id)) return false;
    }
    if (is_streamed) answer_print_end(&g->print);
    return true;
}

static bool add_json_text(struct buf *out, const char *name, const struct buf *text, struct err *err)
{
    return buf_printf(out, err, ",\"%s\":", name) &&
           json_text_add_string(out, text->data ? text->data : "", text->bytes, err);
}

static bool add_json_residency(struct buf *out, struct engine *engine, struct err *err)
{
    struct answer_residency r;
    if (!answer_print_residency(&r, engine)) return true;
    return buf_printf(out, err,
                      ",\"residency\":{\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"bytes_read\":%" PRIu64
                      ",\"waited_seconds\":%.6f}",
                      r.n_hits, r.n_misses, r.bytes_read, r.waited_s);
}

static bool print_json(const struct generating *g, struct err *err)
{
    const struct dialogue_result *r = dialogue_result(g->dialogue);
    const struct engine_settings *s = engine_settings_of(g->engine);
    struct buf out;
    buf_init(&out, g->context->alloc, 4 * TEXT_BYTES_MAX);
    bool ok = buf_printf(&out, err, "{\"ids\":[%s]", g->ids.data ? g->ids.data : "");
    if (ok && g->has_model) ok = add_json_text(&out, "text", &g->text, err);
    if (ok && g->reasoning.bytes) ok = add_json_text(&out, "reasoning", &g->reasoning, err);
    ok = ok &&
         buf_printf(&out, err,
                    ",\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
                    ",\"reasoning_tokens\":%" PRIu32 "},\"numerics\":\"%s\",\"kv\":\"%s\",\"timings\":{\"prefill_"
                    "seconds\":%.6f,\"prefill_tokens_per_second\":%.6g,"
                    "\"decode_seconds\":%.6f,\"decode_tokens_per_second\":%.6g},\"peak_memory_bytes\":%" PRIu64,
                    stop_reason_name(r->reason), r->n_prompt, r->n_generated, r->n_reasoning,
                    numerics_name(s->numerics), kv_codec_of(s->kv_storage)->name, (double)r->prefill_ns / 1e9,
                    answer_print_rate(r->n_prompt, r->prefill_ns), (double)r->decode_ns / 1e9,
                    answer_print_rate(r->n_generated, r->decode_ns), peak_memory_bytes());
    ok = ok && add_json_residency(&out, g->engine, err) && buf_add_text(&out, "}\n", err);
    if (ok) fwrite(out.data, 1, out.bytes, g->context->out);
    buf_fini(&out);
    return ok;
}

static bool print_result(const struct generating *g, struct err *err)
{
    if (g->context->settings->json) return print_json(g, err);
    if (g->is_ids) fprintf(g->context->out, "%s\n", g->ids.data ? g->ids.data : "");
    answer_print_facts(g->context->log, dialogue_result(g->dialogue), g->engine);
    return true;
}

static bool generate(struct generating *g, struct err *err)
{
    struct sampling defaults = {0}, built_in = sampling_built_in();
    if (!prepare(g, err)) return false;
    if (!open_engine(&g->engine, g->context, err)) return false;
    const struct config *config = engine_config(g->engine);
    if (!g->has_model) {
        if (!sampling_json_defaults(&defaults, g->context->alloc, g->context->fs, g->context->operands[0], err))
            return false;
        sampling_fill(&defaults, &built_in);
        if (!answer_settings_init(&g->settings, g->context, &defaults, config->vocab, config->vocab, err)) return false;
    }
    return dialogue_new(&g->dialogue, g->engine, g->has_model ? &g->model : NULL, clock_real(), err) && run(g, err) &&
           print_result(g, err);
}

static int finish(struct generating *g, bool ok, const struct err *err)
{
    bool was_cancelled = ok && dialogue_result(g->dialogue)->reason == STOP_CANCELLED;
    interrupt_unwatch();
    dialogue_free(g->dialogue);
    engine_close(g->engine);
    encoder_free(g->encoder);
    text_model_close(&g->model);
    token_list_fini(&g->prompt);
    buf_fini(&g->ids);
    buf_fini(&g->text);
    buf_fini(&g->reasoning);
    if (!ok) return command_fail(g->context, err);
    return was_cancelled ? EXIT_CODE_INTERRUPTED : EXIT_CODE_DONE;
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
