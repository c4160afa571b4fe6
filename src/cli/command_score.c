/* weir score: teacher-forced evaluation of a text, or of token ids. */
#include "base/buf.h"
#include "cli/answer_settings.h"
#include "cli/commands.h"
#include "cli/open_engine.h"
#include "cli/prompt_text.h"
#include "plat/file_write.h"
#include "run/score.h"
#include "run/trace_dump.h"
#include <inttypes.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 30)
#define TOKENS_MAX (UINT32_C(1) << 24)

struct scoring {
    const struct command_context *context;
    struct token_list tokens;
    uint32_t n_live; /* ids from there on have no token; 0: as many as the model has rows */
    struct engine *engine;
    struct session session;
    struct trace_dump *trace;
    struct file_writer logits;
    uint64_t logits_written;
    struct buf logprobs, top; /* the two arrays of the JSON result */
};

static bool print_token(struct scoring *s, const struct score_token *t, struct err *err)
{
    FILE *out = s->context->out;
    (void)err;
    fprintf(out, "%8" PRIu32 " %8" PRIu32, t->position, t->token);
    if (t->n_top || t->logprob != 0 || t->position > 0) fprintf(out, " %12.6f", t->logprob);
    for (size_t i = 0; i < t->n_top; i++) fprintf(out, "  %" PRIu32 ":%.4f", t->top[i].token, t->top[i].logprob);
    fprintf(out, "\n");
    return true;
}

static bool add_json_token(struct scoring *s, const struct score_token *t, struct err *err)
{
    const char *comma = s->logprobs.bytes ? "," : "";
    if (t->position == 0) return buf_add_text(&s->logprobs, "null", err) && buf_add_text(&s->top, "[]", err);
    if (!buf_printf(&s->logprobs, err, "%s%.9g", comma, t->logprob)) return false;
    if (!buf_printf(&s->top, err, "%s[", comma)) return false;
    for (size_t i = 0; i < t->n_top; i++)
        if (!buf_printf(&s->top, err, "%s{\"id\":%" PRIu32 ",\"logprob\":%.9g}", i ? "," : "", t->top[i].token,
                        t->top[i].logprob))
            return false;
    return buf_add_char(&s->top, ']', err);
}

static bool see_token(void *context, const struct score_token *token, struct err *err)
{
    struct scoring *s = context;
    return s->context->settings->json ? add_json_token(s, token, err) : print_token(s, token, err);
}

static bool dump_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct scoring *s = context;
    uint64_t bytes = engine_config(s->engine)->vocab * sizeof *logits;
    (void)position;
    if (!file_write(&s->logits, logits, bytes, s->logits_written, err)) return false;
    s->logits_written += bytes;
    return true;
}

static bool open_outputs(struct scoring *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    struct alloc *alloc = s->context->alloc;
    if (settings->dump_trace && !trace_dump_open(&s->trace, s->engine, settings->dump_trace, 0, err)) return false;
    return !settings->dump_logits || file_create(&s->logits, alloc, write_system_real(), settings->dump_logits, err);
}

static bool close_outputs(struct scoring *s, struct err *err)
{
    if (s->context->settings->dump_logits && !file_commit(&s->logits, err)) return false;
    struct trace_dump *trace = s->trace;
    s->trace = NULL;
    return trace_dump_close(trace, err);
}

static void print_result(const struct scoring *s, const struct score_result *r)
{
    FILE *out = s->context->out;
    const struct engine_settings *engine = engine_settings_of(s->engine);
    const char *numerics = numerics_name(engine->numerics), *kv = kv_codec_of(engine->kv_storage)->name;
    if (s->context->settings->json)
        fprintf(out,
                "{\"tokens\":%zu,\"scored\":%zu,\"logprob\":%.9g,\"perplexity\":%.9g,\"numerics\":\"%s\",\"kv\":\"%s\","
                "\"logprobs\":[%s],\"top\":[%s]}\n",
                s->tokens.n, r->n_scored, r->logprob_sum, r->perplexity, numerics, kv, s->logprobs.data, s->top.data);
    else
        fprintf(out, "%zu tokens scored, log-probability %.6f, perplexity %.6f%s%s%s%s\n", r->n_scored, r->logprob_sum,
                r->perplexity, engine->numerics ? ", numerics " : "", engine->numerics ? numerics : "",
                engine->kv_storage ? ", kv " : "", engine->kv_storage ? kv : "");
}

static bool encode_file(struct scoring *s, const struct text_model *model, struct err *err)
{
    struct alloc *alloc = s->context->alloc;
    struct buf text;
    struct encoder *encoder = encoder_new(alloc, model->tokenizer, NULL, err);
    if (!encoder) return false;
    buf_init(&text, alloc, PROMPT_BYTES_MAX);
    token_list_init(&s->tokens, alloc, TOKENS_MAX);
    bool ok = prompt_text_of_file(&text, s->context, s->context->settings->text_file, err) &&
              text_model_encode_raw(model, encoder, text.data ? text.data : "", text.bytes, &s->tokens, err);
    if (ok && s->tokens.n == 0) ok = err_set(err, ERR_USER, "%s: the text is empty", s->context->settings->text_file);
    buf_fini(&text);
    encoder_free(encoder);
    return ok;
}

/* The ids to score: those that were given, or those of a text. */
static bool open_tokens(struct scoring *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    struct text_model model = {0};
    if (!settings->text_file) return open_token_list(&s->tokens, s->context, err);
    if (settings->ids || settings->ids_file)
        return err_set(err, ERR_USER, "give either --text-file or token ids, not both");
    if (!answer_settings_open_model(&model, s->context, err)) return false;
    s->n_live = model.n_tokens;
    bool ok = encode_file(s, &model, err);
    text_model_close(&model);
    if (ok && s->tokens.n > settings->context_length)
        return err_set(err, ERR_USER,
                       "%s: the text has %zu tokens and the context holds %" PRIu64
                       "; give a larger --context-length or a shorter text",
                       settings->text_file, s->tokens.n, settings->context_length);
    return ok;
}

static bool score(struct scoring *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    struct score_result result;
    if (!open_tokens(s, err)) return false;
    if (!open_engine(&s->engine, s->context, err)) return false;
    session_init(&s->session, s->engine);
    if (!open_outputs(s, err)) return false;
    const struct score_watcher watcher = {
        .context = s, .token = see_token, .logits = settings->dump_logits ? dump_logits : NULL};
    if (!score_run(&s->session, s->tokens.ids, s->tokens.n, settings->top,
                   s->n_live ? s->n_live : engine_config(s->engine)->vocab, &watcher, &result, err))
        return false;
    if (!close_outputs(s, err)) return false;
    print_result(s, &result);
    return true;
}

int command_score(struct command_context *context)
{
    struct err err = {0}, ignored = {0};
    struct scoring s = {.context = context};
    buf_init(&s.logprobs, context->alloc, JSON_BYTES_MAX);
    buf_init(&s.top, context->alloc, JSON_BYTES_MAX);
    bool ok = score(&s, &err);
    if (!trace_dump_close(s.trace, &ignored)) ok = false; /* only after a failure that err tells already */
    file_abandon(&s.logits);
    session_fini(&s.session);
    engine_close(s.engine);
    token_list_fini(&s.tokens);
    buf_fini(&s.top);
    buf_fini(&s.logprobs);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
