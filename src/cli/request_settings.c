#include "cli/request_settings.h"

#include "cli/library.h"
#include <math.h>

enum thinking { THINKING_OFF, THINKING_ON }; /* in the order of the choices of --thinking */
enum effort { EFFORT_MAX, EFFORT_HIGH };     /* of --effort */

/* A word such as `model` leaves the model's value. */
static void put_real(double *to, double value)
{
    if (!isnan(value)) *to = value;
}

static void put_sampling(struct weir_request *r, const struct settings *s)
{
    put_real(&r->temperature, s->temperature);
    put_real(&r->top_p, s->top_p);
    put_real(&r->min_p, s->min_p);
    put_real(&r->repetition_penalty, s->repetition_penalty);
    put_real(&r->presence_penalty, s->presence_penalty);
    put_real(&r->frequency_penalty, s->frequency_penalty);
    if (s->top_k != SETTING_WORD) r->top_k = (int64_t)s->top_k;
    r->max_tokens = (uint32_t)s->max_tokens;
    r->ignore_eos = s->ignore_eos;
    r->stop = s->stop.text;
    r->n_stop = s->stop.n;
    r->has_seed = s->seed != SETTING_WORD;
    if (r->has_seed) r->seed = s->seed;
}

bool request_settings(struct weir_request *request, struct weir_chat_options *chat, struct weir_model *model,
                      const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    struct weir_error error;
    bool thinks = s->thinking == THINKING_ON;
    if (s->effort == EFFORT_HIGH && !thinks && settings_origin(s, "effort") == ORIGIN_COMMAND_LINE)
        return err_set(err, ERR_USER, "--effort has an effect with --thinking on only");
    if (s->repetition_penalty == 0) /* the one value in the option's range that means nothing */
        return err_set(err, ERR_USER, "--repetition-penalty: 0 is not legal; must be above 0, up to 2");
    weir_chat_options_init(chat, sizeof *chat);
    if (thinks) chat->thinking = s->effort == EFFORT_HIGH ? WEIR_THINKING_HIGH : WEIR_THINKING_MAX;
    if (!library_ok(weir_request_init(request, sizeof *request, model, &error), &error, err)) return false;
    put_sampling(request, s);
    return library_ok(weir_request_check(request, model, &error), &error, err);
}
