#include "cli/answer_settings.h"

#include "run/random.h"
#include <math.h>
#include <string.h>

enum thinking { THINKING_OFF, THINKING_ON }; /* in the order of the choices of --thinking */
enum effort { EFFORT_MAX, EFFORT_HIGH };     /* of --effort */

/* Puts what was given; a word such as `model` gives nothing. */
static bool put_reals(struct sampling *sampling, const struct settings *s, struct err *err)
{
    const struct {
        enum sampling_field field;
        const char *name;
        double value;
    } reals[] = {
        {SAMPLING_TEMPERATURE, "--temperature", s->temperature},
        {SAMPLING_TOP_P, "--top-p", s->top_p},
        {SAMPLING_MIN_P, "--min-p", s->min_p},
        {SAMPLING_REPETITION_PENALTY, "--repetition-penalty", s->repetition_penalty},
        {SAMPLING_PRESENCE_PENALTY, "--presence-penalty", s->presence_penalty},
        {SAMPLING_FREQUENCY_PENALTY, "--frequency-penalty", s->frequency_penalty},
    };
    enum sampling_fault fault;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const struct sampling_value value = {.kind = SAMPLING_REAL, .real = reals[i].value};
        if (isnan(value.real)) continue;
        if (!sampling_put(sampling, reals[i].field, reals[i].name, value, &fault, err)) return false;
    }
    return true;
}

static bool put_integers(struct sampling *sampling, const struct settings *s, struct err *err)
{
    const struct sampling_value top_k = {.kind = SAMPLING_INTEGER, .integer = (int64_t)s->top_k};
    const struct sampling_value max_tokens = {.kind = SAMPLING_INTEGER, .integer = (int64_t)s->max_tokens};
    const struct sampling_value ignore_eos = {.kind = SAMPLING_BOOL, .integer = s->ignore_eos};
    enum sampling_fault fault;
    if (s->top_k != SETTING_WORD && !sampling_put(sampling, SAMPLING_TOP_K, "--top-k", top_k, &fault, err))
        return false;
    return sampling_put(sampling, SAMPLING_MAX_TOKENS, "--max-tokens", max_tokens, &fault, err) &&
           sampling_put(sampling, SAMPLING_IGNORE_EOS, "--ignore-eos", ignore_eos, &fault, err);
}

static bool put_stop(struct answer_settings *answer, const struct option_texts *texts, struct err *err)
{
    enum sampling_fault fault;
    for (size_t i = 0; i < texts->n; i++)
        answer->stop[i] = (struct stop_string){.bytes = texts->text[i], .n_bytes = strlen(texts->text[i])};
    return sampling_put_stop(&answer->sampling, answer->stop, texts->n, &fault, err) || err_context(err, "--stop");
}

bool answer_settings_init(struct answer_settings *answer, const struct command_context *context,
                          const struct sampling *defaults, uint32_t n_logits, uint32_t n_tokens, struct err *err)
{
    const struct settings *s = context->settings;
    enum sampling_field field;
    *answer = (struct answer_settings){.has_seed = s->seed != SETTING_WORD};
    if (!put_reals(&answer->sampling, s, err)) return false;
    if (!put_integers(&answer->sampling, s, err)) return false;
    if (!put_stop(answer, &s->stop, err)) return false;
    sampling_fill(&answer->sampling, defaults);
    if (!sampling_check(&answer->sampling, n_logits, n_tokens, &field, err)) return false;

    if (s->effort == EFFORT_HIGH && s->thinking == THINKING_OFF && settings_origin(s, "effort") == ORIGIN_COMMAND_LINE)
        return err_set(err, ERR_USER, "--effort has an effect with --thinking on only");
    answer->chat.thinking = s->thinking == THINKING_ON;
    answer->chat.effort = s->effort == EFFORT_HIGH ? CHAT_EFFORT_HIGH : CHAT_EFFORT_MAX;
    if (answer->has_seed) answer->key = random_key_from_seed((int64_t)s->seed);
    return answer->has_seed || random_key_fresh(&answer->key, err);
}
