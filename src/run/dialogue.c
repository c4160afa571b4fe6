#include "run/dialogue.h"

#include "base/assert.h"
#include <string.h>

struct dialogue {
    struct alloc *alloc;
    struct clock clock;
    const struct text_model *model; /* NULL: ids only */
    struct session session;
    uint32_t *ids; /* [context]; the session holds the first session_tokens() of them */
    struct sampler_rules rules;
    struct generation generation;
    struct answer *answer; /* NULL: ids only, or over */
    const atomic_bool *cancel;
    bool was_cancelled; /* of the answer in hand: whoever asked may take the wish back for the next one */
    struct dialogue_result result;
};

bool dialogue_new(struct dialogue **dialogue, struct engine *engine, const struct text_model *model, struct clock clock,
                  struct err *err)
{
    struct alloc *alloc = engine_alloc(engine);
    uint32_t n_tokens = model ? model->n_tokens : engine_config(engine)->vocab;
    struct dialogue *d = alloc_get(alloc, sizeof *d, err);
    if (!d) return false;
    d->alloc = alloc;
    d->clock = clock;
    d->model = model;
    session_init(&d->session, engine);
    d->ids = alloc_get_array(alloc, engine_settings_of(engine)->context_tokens, sizeof *d->ids, err);
    if (!d->ids) goto fail;
    if (!generation_init(&d->generation, &d->session, &d->rules, n_tokens, err)) goto fail;
    *dialogue = d;
    return true;
fail:
    dialogue_free(d);
    return false;
}

void dialogue_free(struct dialogue *dialogue)
{
    if (!dialogue) return;
    answer_free(dialogue->answer);
    generation_fini(&dialogue->generation);
    session_fini(&dialogue->session);
    alloc_put(dialogue->alloc, dialogue->ids);
    alloc_put(dialogue->alloc, dialogue);
}

static bool is_cancelled(struct dialogue *d)
{
    d->was_cancelled = d->was_cancelled || (d->cancel && atomic_load(d->cancel));
    return d->was_cancelled;
}

/* A forward_poll_fn: a pass that nobody waits for any more ends between two experts. */
static bool still_wanted(void *context, uint32_t layer)
{
    (void)layer;
    return !is_cancelled(context);
}

static void watch_passes(struct dialogue *d, bool on)
{
    forward_set_poll(engine_forward(d->session.engine), on ? still_wanted : NULL, on ? d : NULL);
}

/* What was called off is no failure: dialogue_next tells of it as the end of the answer. */
static bool unless_called_off(const struct dialogue *d, bool ok, const struct err *own, struct err *err)
{
    if (ok || (own->kind == ERR_CANCELLED && d->was_cancelled)) return true;
    *err = *own;
    return false;
}

static void set_rules(struct dialogue *d, const struct dialogue_request *request)
{
    const struct config *config = engine_config(d->session.engine);
    d->rules = (struct sampler_rules){
        .sampling = request->sampling,
        .key = request->key,
        .eos = config->eos,
        .n_eos = config->n_eos,
        .wants_logprobs = request->wants_logprobs,
        .n_top_logprobs = request->n_top_logprobs,
    };
    if (!d->model) return;
    d->rules.banned = d->model->dead;
    d->rules.n_banned = d->model->n_dead;
}

/* Back to where the prompt and what is held part. */
static void keep_common_prefix(struct dialogue *d, const uint32_t *prompt, uint32_t n)
{
    uint32_t same = 0, held = session_tokens(&d->session);
    while (same < held && same < n && d->ids[same] == prompt[same]) same++;
    session_rewind(&d->session, same);
    d->result.n_reused = same < n ? same : n - 1; /* the last one is read again, for its logits */
}

/* Reads the prompt pass by pass, so that its reader hears of it. */
static bool read_prompt(struct dialogue *d, const struct dialogue_request *request, struct err *err)
{
    const struct engine_settings *settings = engine_settings_of(d->session.engine);
    const uint32_t *prompt = request->prompt;
    uint32_t n = request->n_prompt;
    if (n == 0) return err_set(err, ERR_USER, "the prompt is empty");
    if (n >= settings->context_tokens) return generation_start(&d->generation, prompt, n, err); /* which refuses it */

    keep_common_prefix(d, prompt, n);
    memcpy(d->ids, prompt, n * sizeof *prompt);
    uint32_t held = session_tokens(&d->session);
    while (!is_cancelled(d) && n - held > settings->pass_rows) {
        if (!session_feed(&d->session, prompt + held, settings->pass_rows, NULL, NULL, err)) return false;
        held = session_tokens(&d->session);
        if (request->progress) request->progress(request->progress_context, held, n);
    }
    return is_cancelled(d) || generation_start(&d->generation, prompt, n, err);
}

bool dialogue_start(struct dialogue *dialogue, const struct dialogue_request *request, struct err *err)
{
    struct dialogue *d = dialogue;
    struct err own = {0};
    ASSERT(!d->model == !request->answer);
    answer_free(d->answer);
    d->answer = NULL;
    d->cancel = request->cancel;
    d->was_cancelled = false;
    d->result = (struct dialogue_result){.n_prompt = request->n_prompt};
    set_rules(d, request);
    if (d->model && !answer_new(&d->answer, d->alloc, d->model, request->sampling, request->answer, err)) return false;
    int64_t start = clock_now_ns(d->clock);
    watch_passes(d, true);
    bool ok = read_prompt(d, request, &own);
    watch_passes(d, false);
    d->result.prefill_ns = clock_now_ns(d->clock) - start;
    if (unless_called_off(d, ok, &own, err)) return true;
    answer_free(d->answer);
    d->answer = NULL;
    d->result.reason = STOP_ERROR;
    return false;
}

static bool end(struct dialogue *d, enum stop_reason why, struct err *err)
{
    d->result.reason = why;
    if (!d->answer) return true;
    if (!answer_end(d->answer, why, err)) return false;
    d->result.reason = answer_reason(d->answer);
    d->result.stop_string = answer_stop_string(d->answer);
    return true;
}

static bool step(struct dialogue *d, struct sampled *out, struct err *err)
{
    struct sampled token;
    struct err own = {0};
    if (is_cancelled(d)) return end(d, STOP_CANCELLED, err);
    if (d->answer && answer_reason(d->answer) != STOP_NONE) return end(d, answer_reason(d->answer), err);
    if (d->answer) d->rules.eos = answer_ends(d->answer, &d->rules.n_eos);
    watch_passes(d, true);
    bool ok = generation_next(&d->generation, &token, &own);
    watch_passes(d, false);
    if (!unless_called_off(d, ok, &own, err)) return false;
    if (d->was_cancelled) return end(d, STOP_CANCELLED, err);
    if (d->generation.reason != STOP_NONE) return end(d, d->generation.reason, err);

    d->ids[d->result.n_prompt + d->result.n_generated++] = token.id;
    if (d->answer && !answer_add(d->answer, token.id, err)) return false;
    if (d->answer) d->result.n_reasoning = answer_reasoning_tokens(d->answer);
    *out = token;
    return true;
}

bool dialogue_next(struct dialogue *dialogue, struct sampled *out, struct err *err)
{
    struct dialogue *d = dialogue;
    if (d->result.reason != STOP_NONE) return true;
    int64_t start = clock_now_ns(d->clock);
    bool ok = step(d, out, err);
    d->result.decode_ns += clock_now_ns(d->clock) - start;
    if (!ok) d->result.reason = STOP_ERROR;
    return ok;
}

const struct dialogue_result *dialogue_result(const struct dialogue *dialogue)
{
    return &dialogue->result;
}

uint32_t dialogue_held(const struct dialogue *dialogue)
{
    return session_tokens(&dialogue->session);
}
