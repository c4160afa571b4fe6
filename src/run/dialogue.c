/* A pass may give several ids, and their text is complete with them; both wait here until they are asked for, one id at
 * a time. */
#include "run/dialogue.h"

#include "base/assert.h"
#include "run/answer_form.h"
#include "run/prompt_lookup.h"
#include <inttypes.h>
#include <string.h>

enum { GIVEN_MAX = PROMPT_LOOKUP_DRAFT_MAX + 1, TEXT_BYTES_MAX = 64 << 20 };

/* An id that waits to be asked for, and what was known behind it. */
struct given {
    struct sampled sampled;
    uint32_t n_reasoning;
    size_t pieces_end; /* bytes of `pieces` that end here */
};

struct piece {
    struct answer_event event; /* its text is at text_at of `text` */
    size_t text_at;
};

struct dialogue {
    struct alloc *alloc;
    struct clock clock;
    const struct text_model *model; /* NULL: ids only */
    struct scheduler *scheduler;
    struct form_tables forms;

    struct dialogue_request request; /* in hand, as are all below */
    struct answer_request answer_request;
    struct job job;
    struct sampler_rules rules;
    struct answer *answer; /* NULL: ids only, or over */
    struct answer_form *form;
    struct given given[GIVEN_MAX];
    uint32_t n_given, next_given;
    struct buf pieces, text; /* struct piece; their text */
    size_t pieces_done;      /* bytes of `pieces` that were handed out */
    uint32_t n_told;         /* of the prompt, by progress */
    bool is_running;         /* the scheduler has the job */
    struct job_result ended; /* how the job ended */
    struct err failure;      /* of ours, which ended it; kind ERR_NONE: none */
    struct dialogue_result result;
};

/* What a conversation may keep of itself: all blocks there are. The job that runs gets them when it needs them. */
static uint32_t prefix_blocks(struct engine *engine)
{
    const struct plan *plan = engine_plan(engine);
    if (plan) return plan->kv_blocks + plan->prompt_cache_blocks;
    return 2 * kv_blocks_for(engine_settings_of(engine)->context_tokens);
}

bool dialogue_new(struct dialogue **dialogue, struct engine *engine, const struct text_model *model, struct clock clock,
                  struct err *err)
{
    struct alloc *alloc = engine_alloc(engine);
    struct dialogue *d = alloc_get(alloc, sizeof *d, err);
    if (!d) return false;
    d->alloc = alloc;
    d->clock = clock;
    d->model = model;
    buf_init(&d->pieces, alloc, TEXT_BYTES_MAX);
    buf_init(&d->text, alloc, TEXT_BYTES_MAX);
    if (model) form_tables_init(&d->forms, alloc, model);
    struct scheduler_settings settings = scheduler_settings_for(engine);
    settings.n_tokens = model ? model->n_tokens : engine_config(engine)->vocab;
    settings.n_running_max = settings.n_waiting_max = 1;
    settings.prefix_blocks_max = prefix_blocks(engine);
    settings.clock = clock;
    if (!scheduler_new(&d->scheduler, engine, &settings, err)) goto fail;
    *dialogue = d;
    return true;
fail:
    dialogue_free(d);
    return false;
}

static void forget_answer(struct dialogue *d)
{
    answer_free(d->answer);
    answer_form_free(d->form);
    d->answer = NULL;
    d->form = NULL;
}

/* The scheduler's job ends, however far it is. */
static void stop_job(struct dialogue *d)
{
    if (d->is_running) job_cancel(&d->job);
    while (d->is_running) scheduler_step(d->scheduler);
}

void dialogue_free(struct dialogue *dialogue)
{
    struct dialogue *d = dialogue;
    if (!d) return;
    stop_job(d);
    forget_answer(d);
    scheduler_free(d->scheduler);
    form_tables_fini(&d->forms);
    buf_fini(&d->pieces);
    buf_fini(&d->text);
    alloc_put(d->alloc, d);
}

/* --- what the scheduler tells --- */

static void see_progress(void *context, const struct job_progress *progress)
{
    struct dialogue *d = context;
    d->result.n_reused = progress->n_cached;
    if (progress->n_done <= d->n_told || progress->n_done <= progress->n_cached) return;
    d->n_told = progress->n_done;
    if (progress->n_done == progress->n_prompt || !d->request.progress) return;
    d->request.progress(d->request.progress_context, progress->n_done, progress->n_prompt);
}

/* Text that is complete waits for its id to be asked for. */
static bool see_part(void *context, const struct answer_event *event, struct err *err)
{
    struct dialogue *d = context;
    struct piece piece = {.event = *event, .text_at = d->text.bytes};
    if (!d->request.answer->emit) return true;
    return buf_add(&d->text, event->text, event->bytes, err) && buf_add(&d->pieces, &piece, sizeof piece, err);
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct dialogue *d = context;
    enum stop_reason reason = STOP_NONE;
    if (d->answer) {
        if (!answer_add(d->answer, sampled->id, &d->failure)) return STOP_ERROR;
        d->rules.eos = answer_ends(d->answer, &d->rules.n_eos);
        reason = answer_reason(d->answer);
    }
    ASSERT(d->n_given < GIVEN_MAX);
    d->given[d->n_given++] = (struct given){.sampled = *sampled,
                                            .n_reasoning = d->answer ? answer_reasoning_tokens(d->answer) : 0,
                                            .pieces_end = d->pieces.bytes};
    if (reason != STOP_NONE || !d->form) return reason;
    return answer_form_advance(d->form, sampled->id, &d->failure);
}

static const uint64_t *see_allowed(void *context)
{
    struct dialogue *d = context;
    return answer_form_allowed(d->form, &d->failure);
}

static uint32_t see_forced(void *context, uint32_t *ids, uint32_t n_max)
{
    struct dialogue *d = context;
    return answer_form_forced(d->form, ids, n_max);
}

static void see_done(void *context, const struct job_result *result)
{
    struct dialogue *d = context;
    d->is_running = false;
    d->ended = *result;
    d->result.usage = result->usage;
}

/* --- from outside --- */

static bool make_answer(struct dialogue *d, struct err *err)
{
    const struct dialogue_request *request = &d->request;
    if (!d->model) return true;
    d->answer_request = *request->answer;
    if (constraint_has_value(request->constraint)) d->answer_request.starts_at_once = true;
    d->answer_request.emit = see_part;
    d->answer_request.context = d;
    if (!answer_new(&d->answer, d->alloc, d->model, request->sampling, &d->answer_request, err)) return false;
    d->rules.eos = answer_ends(d->answer, &d->rules.n_eos);
    if (!request->constraint) return true;
    d->job.events.allowed = see_allowed;
    d->job.events.forced = see_forced;
    return answer_form_new(&d->form, &d->forms, request->constraint, request->answer->starts_in_think, err);
}

static void set_job(struct dialogue *d, const uint32_t *prompt)
{
    const struct dialogue_request *request = &d->request;
    const struct config *config = engine_config(scheduler_engine(d->scheduler));
    d->rules = (struct sampler_rules){
        .sampling = request->sampling,
        .key = request->key,
        .eos = config->eos,
        .n_eos = config->n_eos,
        .banned = d->model ? d->model->dead : NULL,
        .n_banned = d->model ? d->model->n_dead : 0,
        .wants_logprobs = request->wants_logprobs,
        .n_top_logprobs = request->n_top_logprobs,
    };
    d->job = (struct job){
        .prompt = prompt,
        .n_prompt = request->n_prompt,
        .rules = &d->rules,
        .cancel = request->cancel,
        .events =
            {.context = d, .started = see_progress, .progress = see_progress, .token = see_token, .done = see_done},
    };
    if (d->model && request->answer->is_chat)
        d->job.thinking = (struct job_thinking){.is_open = request->answer->starts_in_think,
                                                .begin = d->model->chat.id[CHAT_THINK],
                                                .end = d->model->chat.id[CHAT_THINK_END],
                                                .n_max = request->n_thinking_max};
}

/* Why there is no answer; false. */
static bool give_failure(struct dialogue *d, struct err *err)
{
    forget_answer(d);
    d->result.reason = STOP_ERROR;
    *err = d->failure.kind != ERR_NONE ? d->failure : d->ended.err;
    return false;
}

/* Until the prompt is in the state, and so its first id is there, or it ended before. */
static bool read_prompt(struct dialogue *d, struct err *err)
{
    uint32_t context = engine_settings_of(scheduler_engine(d->scheduler))->context_tokens, n = d->job.n_prompt;
    if (n >= context) {
        err_set(&d->failure, ERR_USER,
                "the prompt has %" PRIu32 " tokens and the context holds %" PRIu32
                ", one of them for an answer; give a larger --context-length or a shorter prompt",
                n, context);
        return give_failure(d, err);
    }
    if (!make_answer(d, &d->failure) || !scheduler_submit(d->scheduler, &d->job, &d->failure))
        return give_failure(d, err);
    d->is_running = true;
    while (d->is_running && d->n_given == 0) scheduler_step(d->scheduler);
    return d->is_running || d->ended.reason != STOP_ERROR || d->n_given > 0 || give_failure(d, err);
}

bool dialogue_start(struct dialogue *dialogue, const struct dialogue_request *request, struct err *err)
{
    struct dialogue *d = dialogue;
    ASSERT(!d->model == !request->answer);
    ASSERT(d->model || !request->constraint);
    stop_job(d);
    forget_answer(d);
    d->request = *request;
    d->request.prompt = NULL; /* the job has it, until it is read */
    d->n_given = d->next_given = d->n_told = 0;
    d->ended = (struct job_result){0};
    d->failure = (struct err){0};
    buf_clear(&d->pieces);
    buf_clear(&d->text);
    d->pieces_done = 0;
    d->result = (struct dialogue_result){.n_prompt = request->n_prompt};
    set_job(d, request->prompt);
    int64_t start = clock_now_ns(d->clock);
    bool ok = read_prompt(d, err);
    d->result.prefill_ns = clock_now_ns(d->clock) - start;
    return ok;
}

/* Hands out the text up to there. */
static bool hand_out(struct dialogue *d, size_t pieces_end, struct err *err)
{
    const struct answer_request *to = d->request.answer;
    while (d->pieces_done < pieces_end) {
        struct piece piece;
        memcpy(&piece, d->pieces.data + d->pieces_done, sizeof piece);
        d->pieces_done += sizeof piece;
        piece.event.text = d->text.data ? d->text.data + piece.text_at : "";
        if (!to->emit(to->context, &piece.event, err)) return false;
    }
    return true;
}

static bool end(struct dialogue *d, struct err *err)
{
    enum stop_reason why = d->ended.reason;
    if (why == STOP_ERROR) return give_failure(d, err);
    d->result.reason = why;
    if (!d->answer) return true;
    if (!answer_end(d->answer, why, err) || !hand_out(d, d->pieces.bytes, err)) return false;
    d->result.reason = answer_reason(d->answer);
    d->result.stop_string = answer_stop_string(d->answer);
    return true;
}

/* Ids that wait are given out before any pass, so that they and their text stay together. */
static bool step(struct dialogue *d, struct sampled *out, struct err *err)
{
    if (d->next_given == d->n_given) {
        d->next_given = d->n_given = 0;
        buf_clear(&d->pieces);
        buf_clear(&d->text);
        d->pieces_done = 0;
        while (d->is_running && d->n_given == 0) scheduler_step(d->scheduler);
    }
    if (d->n_given == 0) return end(d, err);
    const struct given *given = &d->given[d->next_given++];
    d->result.n_generated++;
    d->result.n_reasoning = given->n_reasoning;
    if (!hand_out(d, given->pieces_end, err)) return false;
    *out = given->sampled;
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

struct scheduler_stats dialogue_stats(const struct dialogue *dialogue)
{
    return scheduler_stats(dialogue->scheduler);
}
