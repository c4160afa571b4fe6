#include "lib/lib_int.h"

#include "fmt/json_doc.h"
#include <json-c/json_object.h>
#include <math.h>
#include <string.h>

/* ---- defaults ---- */

static int64_t window_of(const struct sampling *sampling, enum sampling_field field, int64_t value)
{
    if (!sampling_has(sampling, field)) return WEIR_WINDOW_ANSWER;
    return value == SAMPLING_WINDOW_ALL ? WEIR_WINDOW_ALL : value;
}

static struct weir_request request_from(const struct sampling *s)
{
    return (struct weir_request){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k > 0 ? s->top_k : 0,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .repetition_window = window_of(s, SAMPLING_REPETITION_WINDOW, s->repetition_window),
        .presence_window = window_of(s, SAMPLING_PRESENCE_WINDOW, s->presence_window),
        .frequency_window = window_of(s, SAMPLING_FREQUENCY_WINDOW, s->frequency_window),
        .max_tokens = (uint32_t)s->max_tokens,
        .min_tokens = (uint32_t)s->min_tokens,
        .ignore_eos = s->ignore_eos,
    };
}

enum weir_status weir_request_init(struct weir_request *request, size_t size, struct weir_model *model,
                                   struct weir_error *error)
{
    struct err err = {0};
    struct sampling defaults;
    bool ok =
        lib_need(request, "request", &err) && lib_need(model, "model", &err) && lib_defaults(model, &defaults, &err);
    if (ok) {
        const struct weir_request own = request_from(&defaults);
        lib_init(request, size, &own, sizeof own);
    }
    return lib_end(ok, &err, error);
}

/* ---- sampling ---- */

static bool put_reals(struct sampling *sampling, const struct weir_request *r, struct err *err)
{
    const struct {
        enum sampling_field field;
        double value;
    } reals[] = {
        {SAMPLING_TEMPERATURE, r->temperature},
        {SAMPLING_TOP_P, r->top_p},
        {SAMPLING_MIN_P, r->min_p},
        {SAMPLING_REPETITION_PENALTY, r->repetition_penalty},
        {SAMPLING_PRESENCE_PENALTY, r->presence_penalty},
        {SAMPLING_FREQUENCY_PENALTY, r->frequency_penalty},
    };
    enum sampling_fault fault;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const struct sampling_value value = {.kind = SAMPLING_REAL, .real = reals[i].value};
        const char *name = sampling_field_name(reals[i].field);
        if (!isfinite(value.real)) return err_set(err, ERR_USER, "%s is not a finite number", name);
        if (!sampling_put(sampling, reals[i].field, name, value, &fault, err)) return false;
    }
    return true;
}

static bool put_integers(struct sampling *sampling, const struct weir_request *r, struct err *err)
{
    const struct {
        enum sampling_field field;
        const char *name; /* of ours: the windows have others on the wire */
        int64_t value;
        bool is_window;
    } integers[] = {
        {SAMPLING_TOP_K, "top_k", r->top_k, false},
        {SAMPLING_REPETITION_WINDOW, "repetition_window", r->repetition_window, true},
        {SAMPLING_PRESENCE_WINDOW, "presence_window", r->presence_window, true},
        {SAMPLING_FREQUENCY_WINDOW, "frequency_window", r->frequency_window, true},
        {SAMPLING_MAX_TOKENS, "max_tokens", r->max_tokens, false},
        {SAMPLING_MIN_TOKENS, "min_tokens", r->min_tokens, false},
    };
    enum sampling_fault fault;
    const struct sampling_value ignores = {.kind = SAMPLING_BOOL, .integer = r->ignore_eos};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        const struct sampling_value value = {.kind = SAMPLING_INTEGER, .integer = integers[i].value};
        /* What a window is when nothing is said. */
        if (integers[i].is_window && value.integer == WEIR_WINDOW_ANSWER) continue;
        if (!sampling_put(sampling, integers[i].field, integers[i].name, value, &fault, err)) return false;
    }
    return sampling_put(sampling, SAMPLING_IGNORE_EOS, "ignore_eos", ignores, &fault, err);
}

static bool put_stop(struct sampling *sampling, struct arena *arena, const struct weir_request *r, struct err *err)
{
    enum sampling_fault fault;
    if (r->n_stop && !lib_need(r->stop, "stop", err)) return false;
    struct stop_string *stop = arena_get_array(arena, r->n_stop + 1, sizeof *stop, err);
    if (!stop) return false;
    for (size_t i = 0; i < r->n_stop; i++) {
        if (!lib_need(r->stop[i], "a stop text", err)) return false;
        size_t bytes = strlen(r->stop[i]);
        stop[i] = (struct stop_string){.bytes = arena_text(arena, r->stop[i], bytes, err), .n_bytes = bytes};
        if (!stop[i].bytes) return false;
    }
    return sampling_put_stop(sampling, stop, r->n_stop, &fault, err);
}

static bool put_ids(struct sampling *sampling, struct arena *arena, const struct weir_request *r, struct err *err)
{
    enum sampling_fault fault;
    if (r->n_stop_ids && !lib_need(r->stop_ids, "stop_ids", err)) return false;
    if (r->n_bias && !lib_need(r->bias, "bias", err)) return false;
    uint32_t *ids = arena_get_array(arena, r->n_stop_ids + 1, sizeof *ids, err);
    struct logit_bias *bias = ids ? arena_get_array(arena, r->n_bias + 1, sizeof *bias, err) : NULL;
    if (!bias) return false;
    if (r->n_stop_ids) memcpy(ids, r->stop_ids, r->n_stop_ids * sizeof *ids);
    for (size_t i = 0; i < r->n_bias; i++) bias[i] = (struct logit_bias){r->bias[i].id, r->bias[i].value};
    return sampling_put_stop_ids(sampling, ids, r->n_stop_ids, &fault, err) &&
           sampling_put_bias(sampling, bias, r->n_bias, &fault, err);
}

static bool check_rest(const struct weir_request *r, struct err *err)
{
    if (r->n_top_logprobs > LOGPROB_TOP_MAX)
        return err_set(err, ERR_USER, "n_top_logprobs is %u, and may be %d at most", r->n_top_logprobs,
                       LOGPROB_TOP_MAX);
    if (r->n_top_logprobs && !r->wants_logprobs)
        return err_set(err, ERR_USER, "n_top_logprobs has no effect without wants_logprobs");
    if ((unsigned)r->constraint > WEIR_CONSTRAINT_CHOICE)
        return err_set(err, ERR_USER, "constraint: %u is no value of enum weir_constraint", (unsigned)r->constraint);
    if (r->seed && !r->has_seed) return err_set(err, ERR_USER, "seed has no effect without has_seed");
    return true;
}

/* The rows of the head, and the ids that have a token. */
static bool count_ids(struct weir_model *model, uint32_t *n_logits, uint32_t *n_tokens, struct err *err)
{
    bool has_tokenizer;
    const struct config *config = lib_config(model, err);
    if (!config || !lib_has_tokenizer(model, &has_tokenizer, err)) return false;
    *n_logits = *n_tokens = config->vocab;
    if (!has_tokenizer) return true;
    const struct text_model *text = lib_text(model, err);
    if (text) *n_tokens = text->n_tokens;
    return text != NULL;
}

bool lib_request_read(struct weir_request *own, struct sampling *sampling, struct arena *arena,
                      struct weir_model *model, const struct weir_request *given, struct err *err)
{
    const struct sampling built_in = sampling_built_in();
    struct sampling defaults;
    enum sampling_field culprit;
    uint32_t n_logits, n_tokens;
    if (!lib_defaults(model, &defaults, err) || !count_ids(model, &n_logits, &n_tokens, err)) return false;
    *own = request_from(&defaults);
    if (!lib_take(own, sizeof *own, given, "weir_request", err) || !check_rest(own, err)) return false;
    *sampling = (struct sampling){0};
    if (!put_reals(sampling, own, err) || !put_integers(sampling, own, err)) return false;
    if (!put_stop(sampling, arena, own, err) || !put_ids(sampling, arena, own, err)) return false;
    sampling_fill(sampling, &built_in);
    return sampling_check(sampling, n_logits, n_tokens, &culprit, err);
}

enum weir_status weir_request_check(const struct weir_request *request, struct weir_model *model,
                                    struct weir_error *error)
{
    struct err err = {0};
    struct weir_request own;
    struct sampling sampling;
    struct arena arena;
    bool ok = lib_need(request, "request", &err) && lib_need(model, "model", &err);
    if (ok) {
        arena_init(&arena, model->alloc, REQUEST_BYTES_MAX);
        ok = lib_request_read(&own, &sampling, &arena, model, request, &err);
        arena_fini(&arena);
    }
    return lib_end(ok, &err, error);
}

/* ---- constraints ---- */

static bool read_constraint(struct constraint_request *out, struct json_object **parsed, struct weir_session *s,
                            struct err *err)
{
    static const enum constraint_kind kinds[] = {
        [WEIR_CONSTRAINT_NONE] = CONSTRAINT_NONE,     [WEIR_CONSTRAINT_JSON] = CONSTRAINT_JSON_OBJECT,
        [WEIR_CONSTRAINT_SCHEMA] = CONSTRAINT_SCHEMA, [WEIR_CONSTRAINT_REGEX] = CONSTRAINT_REGEX,
        [WEIR_CONSTRAINT_GRAMMAR] = CONSTRAINT_GBNF,  [WEIR_CONSTRAINT_CHOICE] = CONSTRAINT_CHOICE};
    const struct weir_request *r = &s->request;
    bool is_json = r->constraint == WEIR_CONSTRAINT_SCHEMA || r->constraint == WEIR_CONSTRAINT_CHOICE;
    *out = (struct constraint_request){.kind = kinds[r->constraint], .one_call = r->one_call};
    if (s->prompt->tools.n_tools > 0) {
        out->calls = CALLS_AUTO;
        out->tools = &s->prompt->tools;
    }
    if (r->constraint == WEIR_CONSTRAINT_JSON) return true;
    if (!lib_need(r->constraint_text, "constraint_text", err)) return false;
    out->text = r->constraint_text;
    out->bytes = lib_bytes(r->constraint_text, r->constraint_bytes);
    if (!is_json) return true;
    if (!json_doc_parse(parsed, s->engine->alloc, &json_rules_request, "constraint_text", out->text, out->bytes, err))
        return false;
    out->value = *parsed;
    return true;
}

bool lib_constrain(struct weir_session *session, struct err *err)
{
    struct weir_session *s = session;
    struct weir_engine *e = s->engine;
    struct constraint_request request;
    struct json_object *parsed = NULL;
    struct constraint *constraint = NULL;
    struct control_ids controls;
    if (s->request.constraint == WEIR_CONSTRAINT_NONE) return true;
    if (!e->text)
        return err_set(err, ERR_USER, "constraint: %s has no tokenizer, so there is no text to constrain",
                       e->model->path);
    controls = control_ids_of(&e->text->chat, e->text->ends, e->text->n_ends_chat);
    bool ok = read_constraint(&request, &parsed, s, err) &&
              constraint_new(&constraint, e->alloc, &request, &controls, err) &&
              answer_form_new(&s->form, &e->forms, constraint, s->prompt->starts_in_think, err);
    constraint_drop(constraint);
    json_object_put(parsed);
    return ok || err_context(err, "constraint");
}
