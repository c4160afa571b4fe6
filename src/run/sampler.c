#include "run/sampler.h"

#include "base/assert.h"
#include "base/philox.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double greedy_below = 1e-5;

bool sampler_init(struct sampler *sampler, struct alloc *alloc, uint32_t n_logits, uint32_t n_tokens, struct err *err)
{
    ASSERT(n_tokens > 0);
    ASSERT(n_tokens <= n_logits);
    *sampler = (struct sampler){.alloc = alloc, .n_logits = n_logits, .n_tokens = n_tokens};
    sampler->row = alloc_get_array(alloc, n_tokens, sizeof *sampler->row, err);
    if (!sampler->row) goto fail;
    sampler->count = alloc_get_array(alloc, n_logits, sizeof *sampler->count, err);
    if (!sampler->count) goto fail;
    if (!sampler_head_init(&sampler->head, alloc, n_tokens, err)) goto fail;
    return true;
fail:
    sampler_fini(sampler);
    return false;
}

void sampler_fini(struct sampler *sampler)
{
    sampler_head_fini(&sampler->head);
    if (sampler->alloc) {
        alloc_put(sampler->alloc, sampler->row);
        alloc_put(sampler->alloc, sampler->count);
    }
    *sampler = (struct sampler){0};
}

static void mask_ids(struct sampler *sampler, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < sampler->n_tokens) sampler->row[ids[i]] = -INFINITY;
}

/* Step 0. An answer that is too short may neither end by itself nor by an id the client asked to stop at. */
static void mask_request(struct sampler *sampler, const struct sampler_rules *rules, uint32_t n_generated)
{
    const struct sampling *params = rules->sampling;
    bool is_short = n_generated < params->min_tokens;
    mask_ids(sampler, rules->banned, rules->n_banned);
    if (is_short || params->ignore_eos) mask_ids(sampler, rules->eos, rules->n_eos);
    if (is_short) mask_ids(sampler, params->stop_ids, params->n_stop_ids);
}

static void add_bias(struct sampler *sampler, const struct sampling *params)
{
    for (size_t i = 0; i < params->n_bias; i++) {
        const struct logit_bias *bias = &params->bias[i];
        ASSERT(bias->id < sampler->n_tokens);
        sampler->row[bias->id] = bias->value <= -100 ? -INFINITY : sampler->row[bias->id] + bias->value;
    }
}

struct window {
    const uint32_t *ids;
    uint32_t n;
};

static struct window last_ids(const struct history *history, int64_t n)
{
    uint32_t kept = n == SAMPLING_WINDOW_ALL || n > history->n ? history->n : (uint32_t)n;
    return (struct window){history->ids + history->n - kept, kept};
}

/* The whole answer without the prompt, unless the client asked for a window over both. */
static struct window answer_ids(const struct history *history, const struct sampling *params, enum sampling_field field,
                                int64_t n)
{
    if (sampling_has(params, field)) return last_ids(history, n);
    return (struct window){history->ids + history->n_prompt, history->n - history->n_prompt};
}

struct penalty {
    double repetition; /* divides a positive logit, multiplies another */
    double once;       /* subtracted from every id in the window */
    double each;       /* subtracted as often as the id is there */
};

/* Each distinct id of the window once. Ids without a token can be in a prompt; they are not in the row. */
static void punish(struct sampler *sampler, struct window window, struct penalty penalty)
{
    for (uint32_t i = 0; i < window.n; i++) {
        ASSERT(window.ids[i] < sampler->n_logits);
        sampler->count[window.ids[i]]++;
    }
    for (uint32_t i = 0; i < window.n; i++) {
        uint32_t id = window.ids[i], count = sampler->count[id];
        sampler->count[id] = 0;
        if (count == 0 || id >= sampler->n_tokens || sampler->row[id] == -INFINITY) continue;
        double logit = (double)sampler->row[id];
        logit = logit > 0 ? logit / penalty.repetition : logit * penalty.repetition;
        sampler->row[id] = (float)(logit - penalty.once - penalty.each * count);
    }
}

static void punish_all(struct sampler *sampler, const struct sampling *params, const struct history *history)
{
    if (params->repetition_penalty != 1)
        punish(sampler, last_ids(history, params->repetition_window),
               (struct penalty){params->repetition_penalty, 0, 0});
    if (params->presence_penalty != 0)
        punish(sampler, answer_ids(history, params, SAMPLING_PRESENCE_WINDOW, params->presence_window),
               (struct penalty){1, params->presence_penalty, 0});
    if (params->frequency_penalty != 0)
        punish(sampler, answer_ids(history, params, SAMPLING_FREQUENCY_WINDOW, params->frequency_window),
               (struct penalty){1, 0, params->frequency_penalty});
}

static void mask_grammar(struct sampler *sampler, const uint64_t *allowed)
{
    for (uint32_t id = 0; id < sampler->n_tokens; id++)
        if (!(allowed[id / 64] >> (id % 64) & 1)) sampler->row[id] = -INFINITY;
}

/* The lowest id among the largest. */
static uint32_t argmax(const float *row, uint32_t n)
{
    float max = logprob_max(row, n);
    uint32_t id = 0;
    while (row[id] != max) id++;
    return id;
}

/* What is left of the row when the steps from 6 on have been decided: its first n ids, weighted. */
struct cut {
    struct sampler_head *head;
    double temperature; /* still to be applied to the weights; 1 when the row has been divided already */
    uint32_t n;
};

static double weight_of(const struct cut *cut, float logit)
{
    double below = (double)logit - (double)cut->head->max;
    return exp(cut->temperature == 1 ? below : below / cut->temperature);
}

static double weight_at(const struct cut *cut, uint32_t place)
{
    return weight_of(cut, cut->head->row[sampler_head_at(cut->head, place)]);
}

/* Uncut rows are summed without being sorted. */
static double total_weight(const struct cut *cut)
{
    double sum = 0;
    if (cut->n == cut->head->n_live)
        for (uint32_t id = 0; id < cut->head->n; id++) sum += weight_of(cut, cut->head->row[id]);
    else
        for (uint32_t place = 0; place < cut->n; place++) sum += weight_at(cut, place);
    return sum;
}

static void cut_top_k(struct cut *cut, const struct sampling *params)
{
    if (params->top_k > 0 && params->top_k < cut->n) cut->n = (uint32_t)params->top_k;
}

/* The token that crosses the threshold stays, so one always does. */
static void cut_top_p(struct cut *cut, const struct sampling *params)
{
    if (params->top_p >= 1) return;
    double enough = params->top_p * total_weight(cut), sum = 0;
    for (uint32_t place = 0; place < cut->n; place++) {
        sum += weight_at(cut, place);
        if (sum >= enough) cut->n = place + 1;
    }
}

/* The largest weight is 1. */
static void cut_min_p(struct cut *cut, const struct sampling *params)
{
    if (params->min_p <= 0) return;
    uint32_t kept = 1;
    while (kept < cut->n && weight_at(cut, kept) >= params->min_p) kept++;
    cut->n = kept;
}

static uint32_t draw(struct cut *cut, double u)
{
    double enough = u * total_weight(cut), sum = 0;
    for (uint32_t place = 0; place < cut->n; place++) {
        sum += weight_at(cut, place);
        if (sum > enough) return sampler_head_at(cut->head, place);
    }
    return sampler_head_at(cut->head, cut->n - 1);
}

static bool divide(struct sampler *sampler, double temperature, struct err *err)
{
    if (temperature == 1) return true;
    for (uint32_t id = 0; id < sampler->n_tokens; id++)
        sampler->row[id] = (float)((double)sampler->row[id] / temperature);
    return logprob_check_row(sampler->row, sampler->n_tokens, err) ||
           err_context(err, "at temperature %g", temperature);
}

/* Steps 6 to 10, for a row that has at least one possible id. */
static bool choose(struct sampler *sampler, const struct sampler_rules *rules, double u, uint32_t *id, struct err *err)
{
    const struct sampling *params = rules->sampling;
    *id = argmax(sampler->row, sampler->n_tokens);
    if (params->temperature < greedy_below) return true;

    bool is_first = rules->order == SAMPLER_TEMPERATURE_FIRST;
    if (is_first && !divide(sampler, params->temperature, err)) return false;
    sampler_head_start(&sampler->head, sampler->row, sampler->n_tokens, sampler->row[*id]);
    struct cut cut = {&sampler->head, 1, sampler->head.n_live};
    if (is_first) cut_top_k(&cut, params);
    cut_top_p(&cut, params);
    cut_min_p(&cut, params);
    if (!is_first) {
        cut_top_k(&cut, params);
        cut.temperature = params->temperature;
    }
    *id = draw(&cut, u);
    return true;
}

bool sampler_pick(struct sampler *sampler, const struct sampler_rules *rules, const struct sampler_input *input,
                  struct sampled *out, struct err *err)
{
    const uint32_t n = sampler->n_tokens, t = history_generated(input->history);
    float *row = sampler->row;

    if (!logprob_check_row(input->logits, n, err)) goto fail;
    memcpy(row, input->logits, n * sizeof *row);
    mask_request(sampler, rules, t);
    if (logprob_max(row, n) == -INFINITY) {
        err_set(err, ERR_FAILED, "numerical_error: every possible id is one that this request may not produce");
        goto fail;
    }
    double norm = 0;
    if (rules->wants_logprobs) {
        norm = logprob_norm(row, n);
        logprob_top(&out->logprobs, row, n, norm, rules->n_top_logprobs);
    }

    add_bias(sampler, rules->sampling);
    punish_all(sampler, rules->sampling, input->history);
    if (!logprob_check_row(row, n, err)) {
        err_context(err, "after logit_bias and penalties");
        goto fail;
    }
    if (input->allowed) {
        mask_grammar(sampler, input->allowed);
        if (logprob_max(row, n) == -INFINITY) {
            err_set(err, ERR_FAILED, "grammar_dead_end: the grammar allows none of the possible ids");
            goto fail;
        }
    }
    if (!choose(sampler, rules, philox_unit(rules->key, t), &out->id, err)) goto fail;
    if (rules->wants_logprobs) out->logprobs.chosen = (struct logprob){out->id, (double)input->logits[out->id] - norm};
    return true;
fail:
    err_context(err, "generated token %" PRIu32, t);
    return false;
}
