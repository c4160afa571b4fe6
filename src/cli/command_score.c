/* weir score: teacher-forced evaluation of a text, or of token ids. */
#include "base/buf.h"
#include "cli/commands.h"
#include "cli/given_ids.h"
#include "cli/library.h"
#include "cli/prompt_text.h"
#include "plat/file_write.h"
#include <inttypes.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 30)

struct scoring {
    const struct command_context *context;
    struct weir_model *model;
    struct weir_prompt *prompt;
    struct weir_engine *engine;
    struct file_writer logits;
    uint64_t logits_written;
    struct buf logprobs, top; /* the two arrays of the JSON result */
    struct err failure;       /* of a callback of ours, which ended it */
};

static bool print_token(struct scoring *s, const struct weir_scored *t)
{
    FILE *out = s->context->out;
    fprintf(out, "%8" PRIu32 " %8" PRIu32, t->position, t->id);
    if (t->has_logprob) fprintf(out, " %12.6f", t->logprob);
    for (size_t i = 0; i < t->n_top; i++) fprintf(out, "  %" PRIu32 ":%.4f", t->top[i].id, t->top[i].logprob);
    fprintf(out, "\n");
    return true;
}

static bool add_json_token(struct scoring *s, const struct weir_scored *t, struct err *err)
{
    const char *comma = s->logprobs.bytes ? "," : "";
    if (!t->has_logprob) return buf_add_text(&s->logprobs, "null", err) && buf_add_text(&s->top, "[]", err);
    if (!buf_printf(&s->logprobs, err, "%s%.9g", comma, t->logprob)) return false;
    if (!buf_printf(&s->top, err, "%s[", comma)) return false;
    for (size_t i = 0; i < t->n_top; i++)
        if (!buf_printf(&s->top, err, "%s{\"id\":%" PRIu32 ",\"logprob\":%.9g}", i ? "," : "", t->top[i].id,
                        t->top[i].logprob))
            return false;
    return buf_add_char(&s->top, ']', err);
}

static int see_token(void *context, const struct weir_scored *token)
{
    struct scoring *s = context;
    return !(s->context->settings->json ? add_json_token(s, token, &s->failure) : print_token(s, token));
}

static int dump_logits(void *context, uint32_t position, const float *logits, size_t n_logits)
{
    struct scoring *s = context;
    uint64_t bytes = n_logits * sizeof *logits;
    (void)position;
    if (!file_write(&s->logits, logits, bytes, s->logits_written, &s->failure)) return 1;
    s->logits_written += bytes;
    return 0;
}

static void print_result(const struct scoring *s, const struct weir_score_result *r)
{
    FILE *out = s->context->out;
    const struct settings *settings = s->context->settings;
    const char *numerics = options_word("numerics", settings), *kv = options_word("kv", settings);
    size_t n_tokens;
    weir_prompt_ids(s->prompt, &n_tokens);
    if (settings->json)
        fprintf(out,
                "{\"tokens\":%zu,\"scored\":%zu,\"logprob\":%.9g,\"perplexity\":%.9g,\"numerics\":\"%s\",\"kv\":\"%s\","
                "\"logprobs\":[%s],\"top\":[%s]}\n",
                n_tokens, r->n_scored, r->logprob, r->perplexity, numerics, kv, s->logprobs.data, s->top.data);
    else
        fprintf(out, "%zu tokens scored, log-probability %.6f, perplexity %.6f%s%s%s%s\n", r->n_scored, r->logprob,
                r->perplexity, settings->numerics ? ", numerics " : "", settings->numerics ? numerics : "",
                settings->kv ? ", kv " : "", settings->kv ? kv : "");
}

static bool encode_file(struct scoring *s, const char *path, struct err *err)
{
    struct buf text;
    struct weir_error error;
    buf_init(&text, s->context->alloc, PROMPT_BYTES_MAX);
    bool ok = prompt_text_of_file(&text, s->context, path, err) &&
              (text.bytes > 0 || err_set(err, ERR_USER, "%s: the text is empty", path)) &&
              library_ok(weir_prompt_of_text(&s->prompt, s->model, text.data, text.bytes, &error), &error, err);
    buf_fini(&text);
    return ok;
}

/* What to score: the ids that were given, or those of a text. */
static bool open_prompt(struct scoring *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    size_t n;
    if (!settings->text_file) return given_ids_prompt(&s->prompt, s->model, s->context, err);
    if (settings->ids || settings->ids_file)
        return err_set(err, ERR_USER, "give either --text-file or token ids, not both");
    if (!encode_file(s, settings->text_file, err)) return false;
    weir_prompt_ids(s->prompt, &n);
    if (n > settings->context_length)
        return err_set(err, ERR_USER,
                       "%s: the text has %zu tokens and the context holds %" PRIu64
                       "; give a larger --context-length or a shorter text",
                       settings->text_file, n, settings->context_length);
    return true;
}

static bool run(struct scoring *s, struct weir_score_result *result, struct err *err)
{
    const struct settings *settings = s->context->settings;
    struct weir_score_request request;
    struct weir_error error;
    weir_score_request_init(&request, sizeof request);
    request.n_top = (uint32_t)settings->top;
    request.context = s;
    request.token = see_token;
    request.logits = settings->dump_logits ? dump_logits : NULL;
    request.trace_path = settings->dump_trace;
    result->size = sizeof *result;
    if (library_ok(weir_score(s->engine, s->prompt, &request, result, &error), &error, err)) return true;
    if (s->failure.kind != ERR_NONE) *err = s->failure;
    return false;
}

static bool score(struct scoring *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    struct weir_score_result result;
    if (!library_open_model(&s->model, s->context, err)) return false;
    if (!open_prompt(s, err)) return false;
    if (!library_open_engine(&s->engine, s->model, s->context, err)) return false;
    if (settings->dump_logits &&
        !file_create(&s->logits, s->context->alloc, write_system_real(), settings->dump_logits, err))
        return false;
    if (!run(s, &result, err)) return false;
    if (settings->dump_logits && !file_commit(&s->logits, err)) return false;
    print_result(s, &result);
    return true;
}

int command_score(struct command_context *context)
{
    struct err err = {0};
    struct scoring s = {.context = context};
    buf_init(&s.logprobs, context->alloc, JSON_BYTES_MAX);
    buf_init(&s.top, context->alloc, JSON_BYTES_MAX);
    bool ok = score(&s, &err);
    file_abandon(&s.logits);
    library_close_engine(s.engine);
    weir_prompt_free(s.prompt);
    library_close_model(s.model);
    buf_fini(&s.top);
    buf_fini(&s.logprobs);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
