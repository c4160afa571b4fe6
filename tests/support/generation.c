#include "support/generation.h"

#include "base/assert.h"
#include <inttypes.h>

bool generation_init(struct generation *generation, struct session *session, const struct sampler_rules *rules,
                     uint32_t n_tokens, struct err *err)
{
    struct alloc *alloc = engine_alloc(session->engine);
    *generation = (struct generation){.session = session, .rules = rules};
    if (!history_reserve(&generation->history, alloc, engine_settings_of(session->engine)->context_tokens, err))
        goto fail;
    if (!sampler_init(&generation->sampler, alloc, engine_config(session->engine)->vocab, n_tokens, err)) goto fail;
    return true;
fail:
    generation_fini(generation);
    return false;
}

void generation_fini(struct generation *generation)
{
    history_fini(&generation->history);
    sampler_fini(&generation->sampler);
}

bool generation_start(struct generation *generation, const uint32_t *prompt, uint32_t n, struct err *err)
{
    struct session *session = generation->session;
    uint32_t context = engine_settings_of(session->engine)->context_tokens, held = session_tokens(session);
    ASSERT(held <= n);
    if (n == 0) return err_set(err, ERR_USER, "the prompt is empty");
    if (n >= context)
        return err_set(err, ERR_USER,
                       "the prompt has %" PRIu32 " tokens and the context holds %" PRIu32
                       ", one of them for an answer; give a larger --context-length or a shorter prompt",
                       n, context);
    if (held == n) session_rewind(session, held = n - 1);
    if (!session_feed(session, prompt + held, n - held, NULL, NULL, err)) return false;

    uint64_t asked = (uint64_t)generation->rules->sampling->max_tokens;
    generation->n_max = asked < context - n ? (uint32_t)asked : context - n;
    generation->reason = generation->n_max == 0 ? STOP_LENGTH : STOP_NONE;
    generation->has_pending = false;
    history_start(&generation->history, prompt, n);
    return true;
}

bool generation_next(struct generation *generation, struct sampled *out, struct err *err)
{
    struct session *session = generation->session;
    const struct sampler_rules *rules = generation->rules;
    struct sampled picked;
    if (generation->reason != STOP_NONE) return true;
    if (history_generated(&generation->history) == generation->n_max) {
        generation->reason = STOP_LENGTH;
        return true;
    }
    if (generation->has_pending) {
        generation->has_pending = false;
        if (!session_feed(session, &generation->pending, 1, NULL, NULL, err)) return false;
    }
    const struct sampler_input input = {.logits = session->logits, .history = &generation->history};
    if (!sampler_pick(&generation->sampler, rules, &input, &picked, err)) return false;
    generation->reason = stop_on_id(picked.id, rules->eos, rules->n_eos, rules->sampling);
    if (generation->reason != STOP_NONE) return true;
    history_push(&generation->history, picked.id);
    generation->pending = picked.id;
    generation->has_pending = true;
    *out = picked;
    return true;
}
