#include "serve/usage.h"

#include "fmt/json_doc.h"
#include <inttypes.h>
#include <stdio.h>

const char *usage_lane(const struct call *call)
{
    static const char *const lanes[2][2] = {{"serial", "serial+spec"}, {"batch", "batch+spec"}};
    struct service_stats stats;
    service_stats(call->model->service, &stats);
    return lanes[stats.n_sequences > 1][stats.drafts.kind != DRAFT_OFF];
}

static bool has_drafts(const struct call *call)
{
    struct service_stats stats;
    service_stats(call->model->service, &stats);
    return stats.drafts.kind != DRAFT_OFF || call->usage.n_forced > 0;
}

void usage_put_openai(struct jot *json, const struct call *call)
{
    const struct job_usage *u = &call->usage;
    jot_put_open(json, "usage");
    jot_put_integer(json, "prompt_tokens", u->n_prompt);
    jot_put_integer(json, "completion_tokens", u->n_generated);
    jot_put_integer(json, "total_tokens", (int64_t)u->n_prompt + u->n_generated);
    jot_put_open(json, "prompt_tokens_details");
    jot_put_integer(json, "cached_tokens", u->n_cached);
    jot_put_integer(json, "audio_tokens", 0);
    jot_close(json);
    jot_put_open(json, "completion_tokens_details");
    jot_put_integer(json, "reasoning_tokens", call->n_reasoning);
    jot_put_integer(json, "audio_tokens", 0);
    jot_put_integer(json, "accepted_prediction_tokens", 0);
    jot_put_integer(json, "rejected_prediction_tokens", 0);
    jot_close(json);
    jot_put_words(json, "lane", usage_lane(call));
    if (has_drafts(call)) {
        jot_put_open(json, "speculation");
        jot_put_integer(json, "drafted", u->n_drafted);
        jot_put_integer(json, "accepted", u->n_accepted);
        jot_put_integer(json, "forced", u->n_forced);
        jot_put_integer(json, "targetCalls", u->n_passes);
        jot_put_integer(json, "rounds", u->n_passes);
        jot_put_real(json, "tokensPerForward", u->n_passes ? (double)u->n_generated / u->n_passes : 0);
        jot_close(json);
    }
    jot_close(json);
}

const char *usage_progress(const struct call *call, char text[USAGE_PROGRESS_BYTES])
{
    struct job_progress p = {0};
    if (call->ticket && call->has_started) p = ticket_progress(call->ticket);
    if (!call->has_started)
        snprintf(text, USAGE_PROGRESS_BYTES, "queued");
    else if (p.n_done < p.n_prompt)
        snprintf(text, USAGE_PROGRESS_BYTES,
                 "reading the prompt: %" PRIu32 " of %" PRIu32 " tokens, layer %" PRIu32 " of %" PRIu32, p.n_done,
                 p.n_prompt, p.layer, p.n_layers);
    else
        snprintf(text, USAGE_PROGRESS_BYTES, "answering");
    return text;
}

void tool_input_json(struct jot *json, struct alloc *alloc, const char *arguments, size_t bytes)
{
    struct json_object *object = NULL;
    struct err err;
    if (json->err.kind == ERR_NONE &&
        json_doc_parse(&object, alloc, &json_rules_request, "arguments", arguments, bytes, &err)) {
        struct json_object *input = json_object_object_get(object, "input");
        if (json_object_is_type(input, json_type_string)) {
            jot_text(json, json_object_get_string(input), (size_t)json_object_get_string_len(input));
            json_object_put(object);
            return;
        }
    }
    json_object_put(object);
    jot_text(json, arguments, bytes); /* it gave something else than was declared: the client sees it as it is */
}
