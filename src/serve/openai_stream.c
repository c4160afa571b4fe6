#include "serve/openai_stream.h"

#include "serve/fields.h"
#include "serve/sse.h"
#include "serve/usage_json.h"
#include <inttypes.h>
#include <stdio.h>

void openai_put_head(struct jot *json, const struct call *call, const char *object)
{
    jot_put_words(json, "id", call->id);
    jot_put_words(json, "object", object);
    jot_put_integer(json, "created", call->created_s);
    jot_put_words(json, "model", call->model->name);
    jot_put_words(json, "system_fingerprint", call->model->fingerprint);
}

bool openai_read_stream_options(struct call *call, struct problem *problem)
{
    struct json_object *options = NULL;
    if (!field_object(call->body, "stream_options", &options, problem)) return false;
    if (options && !call->streams)
        return problem_set(problem, PROBLEM_INVALID_VALUE, "stream_options", "stream_options: needs stream: true");
    return field_bool(options, "include_usage", &call->includes_usage, problem) ||
           problem_inside(problem, "stream_options");
}

enum { PROGRESS_BYTES = 128 };

/* "queued", "reading the prompt: 512 of 2048 tokens, layer 3 of 78", "answering". In `text`, which is returned. */
static const char *progress_of(const struct call *call, char text[PROGRESS_BYTES])
{
    struct job_progress p = {0};
    if (call->ticket && call->has_started) p = ticket_progress(call->ticket);
    if (!call->has_started)
        snprintf(text, PROGRESS_BYTES, "queued");
    else if (p.n_done < p.n_prompt)
        snprintf(text, PROGRESS_BYTES,
                 "reading the prompt: %" PRIu32 " of %" PRIu32 " tokens, layer %" PRIu32 " of %" PRIu32, p.n_done,
                 p.n_prompt, p.layer, p.n_layers);
    else
        snprintf(text, PROGRESS_BYTES, "answering");
    return text;
}

bool openai_keep_alive(struct call *call, openai_chunk_fn *empty, struct err *err)
{
    char text[PROGRESS_BYTES];
    return sse_comment(&call->out, progress_of(call, text), err) && empty(call, err);
}

bool openai_end(struct call *call, const char *object, struct err *err)
{
    if (call->includes_usage) {
        struct jot json = sse_open(&call->out, NULL);
        jot_open(&json);
        openai_put_head(&json, call, object);
        jot_put_open_list(&json, "choices");
        jot_close_list(&json);
        usage_json_put(&json, call);
        jot_close(&json);
        if (!sse_close(&json, err)) return false;
    }
    return buf_add_text(&call->out, "data: [DONE]\n\n", err);
}

bool openai_fail(struct call *call, const struct problem *problem, struct err *err)
{
    return buf_add_text(&call->out, "data: ", err) &&
           problem_write(problem, FAMILY_OPENAI, httpd_id(call->exchange), &call->out, err) &&
           buf_add_text(&call->out, "\n\n", err);
}
