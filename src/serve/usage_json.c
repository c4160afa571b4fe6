#include "serve/usage_json.h"

/* serial, batch, or either with +spec. */
static const char *lane_of(const struct call *call)
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

void usage_json_put(struct jot *json, const struct call *call)
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
    jot_put_words(json, "lane", lane_of(call));
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
