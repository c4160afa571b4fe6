#include "run/sampling.h"

#include "base/assert.h"
#include <inttypes.h>
#include <string.h>

enum type { TYPE_REAL, TYPE_INTEGER, TYPE_BOOL, TYPE_LIST };

/* Reals of the table are exact, and so are integers up to this one. */
#define EXACT_MAX 9007199254740992.0

struct row {
    const char *name;
    const char *alias[2];
    size_t offset;
    enum type type;
    double min, max; /* ignored for the seed, where every 64-bit integer is legal */
    bool above_min;  /* min itself is not legal */
};

#define AT(member) offsetof(struct sampling, member)

static const struct row rows[SAMPLING_FIELDS] = {
    [SAMPLING_TEMPERATURE] = {"temperature", {0}, AT(temperature), TYPE_REAL, 0, 2, false},
    [SAMPLING_TOP_P] = {"top_p", {0}, AT(top_p), TYPE_REAL, 0, 1, false},
    [SAMPLING_TOP_K] = {"top_k", {0}, AT(top_k), TYPE_INTEGER, -1, INT32_MAX, false},
    [SAMPLING_MIN_P] = {"min_p", {0}, AT(min_p), TYPE_REAL, 0, 1, false},
    [SAMPLING_REPETITION_PENALTY] =
        {"repetition_penalty", {"repeat_penalty"}, AT(repetition_penalty), TYPE_REAL, 0, 2, true},
    [SAMPLING_REPETITION_WINDOW] =
        {"repetition_context_size", {"repeat_last_n"}, AT(repetition_window), TYPE_INTEGER, -1, 4096, false},
    [SAMPLING_PRESENCE_PENALTY] = {"presence_penalty", {0}, AT(presence_penalty), TYPE_REAL, -2, 2, false},
    [SAMPLING_PRESENCE_WINDOW] = {"presence_context_size", {0}, AT(presence_window), TYPE_INTEGER, -1, 4096, false},
    [SAMPLING_FREQUENCY_PENALTY] = {"frequency_penalty", {0}, AT(frequency_penalty), TYPE_REAL, -2, 2, false},
    [SAMPLING_FREQUENCY_WINDOW] = {"frequency_context_size", {0}, AT(frequency_window), TYPE_INTEGER, -1, 4096, false},
    [SAMPLING_SEED] = {"seed", {0}, AT(seed), TYPE_INTEGER, 0, 0, false},
    [SAMPLING_MAX_TOKENS] = {"max_tokens",
                             {"max_completion_tokens", "max_output_tokens"},
                             AT(max_tokens),
                             TYPE_INTEGER,
                             0,
                             EXACT_MAX,
                             false},
    [SAMPLING_MIN_TOKENS] = {"min_tokens", {0}, AT(min_tokens), TYPE_INTEGER, 0, EXACT_MAX, false},
    [SAMPLING_IGNORE_EOS] = {"ignore_eos", {0}, AT(ignore_eos), TYPE_BOOL, 0, 1, false},
    [SAMPLING_LOGIT_BIAS] = {"logit_bias", {0}, AT(bias), TYPE_LIST, -100, 100, false},
    [SAMPLING_STOP_TOKEN_IDS] = {"stop_token_ids", {0}, AT(stop_ids), TYPE_LIST, 0, 0, false},
    [SAMPLING_STOP] = {"stop", {"stop_sequences"}, AT(stop), TYPE_LIST, 0, 0, false},
};

static_assert(SAMPLING_FIELDS <= 32, "one bit of `given` per field");

static bool refuse(enum sampling_fault *fault, enum sampling_fault why)
{
    if (fault) *fault = why;
    return false;
}

enum sampling_field sampling_field_of(const char *name)
{
    for (int field = 0; field < SAMPLING_FIELDS; field++) {
        if (!strcmp(name, rows[field].name)) return (enum sampling_field)field;
        for (int i = 0; i < 2; i++)
            if (rows[field].alias[i] && !strcmp(name, rows[field].alias[i])) return (enum sampling_field)field;
    }
    return SAMPLING_FIELDS;
}

const char *sampling_field_name(enum sampling_field field)
{
    ASSERT(field < SAMPLING_FIELDS);
    return rows[field].name;
}

bool sampling_has(const struct sampling *sampling, enum sampling_field field)
{
    return sampling->given >> field & 1;
}

static void mark(struct sampling *sampling, enum sampling_field field)
{
    sampling->given |= UINT32_C(1) << field;
}

static bool in_range(const struct row *row, double value)
{
    /* Written so that a NaN is out of range. */
    return value <= row->max && (row->above_min ? value > row->min : value >= row->min);
}

static bool put_real(void *member, const struct row *row, const char *name, struct sampling_value value,
                     enum sampling_fault *fault, struct err *err)
{
    if (value.kind != SAMPLING_REAL && value.kind != SAMPLING_INTEGER) {
        err_set(err, ERR_USER, "%s: must be a number", name);
        return refuse(fault, SAMPLING_WRONG_TYPE);
    }
    double real = value.kind == SAMPLING_INTEGER ? (double)value.integer : value.real;
    if (!in_range(row, real)) {
        err_set(err, ERR_USER, "%s: %.10g is not legal; must be %s%.10g and at most %.10g", name, real,
                row->above_min ? "more than " : "at least ", row->min, row->max);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    *(double *)member = real;
    return true;
}

static bool put_integer(int64_t *member, const struct row *row, const char *name, struct sampling_value value,
                        enum sampling_fault *fault, struct err *err)
{
    bool is_whole = value.kind == SAMPLING_REAL && value.real > -EXACT_MAX && value.real < EXACT_MAX &&
                    value.real == (double)(int64_t)value.real;
    if (is_whole) value.integer = (int64_t)value.real;
    if (!is_whole && value.kind != SAMPLING_INTEGER) {
        err_set(err, ERR_USER, "%s: must be an integer", name);
        return refuse(fault, SAMPLING_WRONG_TYPE);
    }
    bool is_any = row->min == row->max; /* the seed */
    if (!is_any && (value.integer < (int64_t)row->min || value.integer > (int64_t)row->max)) {
        err_set(err, ERR_USER, "%s: %" PRId64 " is not legal; must be %.0f to %.0f", name, value.integer, row->min,
                row->max);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    *member = value.integer;
    return true;
}

bool sampling_put(struct sampling *sampling, enum sampling_field field, const char *name, struct sampling_value value,
                  enum sampling_fault *fault, struct err *err)
{
    ASSERT(field < SAMPLING_FIELDS);
    if (value.kind == SAMPLING_NULL) return true;
    const struct row *row = &rows[field];
    void *member = (char *)sampling + row->offset;
    switch (row->type) {
    case TYPE_REAL:
        if (!put_real(member, row, name, value, fault, err)) return false;
        break;
    case TYPE_INTEGER:
        if (!put_integer(member, row, name, value, fault, err)) return false;
        break;
    case TYPE_BOOL:
        if (value.kind != SAMPLING_BOOL) {
            err_set(err, ERR_USER, "%s: must be true or false", name);
            return refuse(fault, SAMPLING_WRONG_TYPE);
        }
        *(bool *)member = value.integer != 0;
        break;
    case TYPE_LIST: ASSERT(!"a list has its own function");
    }
    mark(sampling, field);
    return true;
}

bool sampling_put_bias(struct sampling *sampling, const struct logit_bias *bias, size_t n, enum sampling_fault *fault,
                       struct err *err)
{
    if (n > SAMPLING_BIAS_MAX) {
        err_set(err, ERR_USER, "logit_bias: %zu entries, at most %d are allowed", n, SAMPLING_BIAS_MAX);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    for (size_t i = 0; i < n; i++) {
        if (in_range(&rows[SAMPLING_LOGIT_BIAS], (double)bias[i].value)) continue;
        err_set(err, ERR_USER, "logit_bias: %.10g for id %" PRIu32 " is not legal; must be -100 to 100",
                (double)bias[i].value, bias[i].id);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    sampling->bias = bias;
    sampling->n_bias = n;
    mark(sampling, SAMPLING_LOGIT_BIAS);
    return true;
}

bool sampling_put_stop_ids(struct sampling *sampling, const uint32_t *ids, size_t n, enum sampling_fault *fault,
                           struct err *err)
{
    if (n > SAMPLING_STOP_IDS_MAX) {
        err_set(err, ERR_USER, "stop_token_ids: %zu ids, at most %d are allowed", n, SAMPLING_STOP_IDS_MAX);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    sampling->stop_ids = ids;
    sampling->n_stop_ids = n;
    mark(sampling, SAMPLING_STOP_TOKEN_IDS);
    return true;
}

bool sampling_put_stop(struct sampling *sampling, const struct stop_string *stop, size_t n, enum sampling_fault *fault,
                       struct err *err)
{
    if (n > SAMPLING_STOP_STRINGS_MAX) {
        err_set(err, ERR_USER, "stop: %zu strings, at most %d are allowed", n, SAMPLING_STOP_STRINGS_MAX);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    for (size_t i = 0; i < n; i++) {
        if (stop[i].n_bytes >= 1 && stop[i].n_bytes <= SAMPLING_STOP_BYTES_MAX) continue;
        if (stop[i].n_bytes == 0)
            err_set(err, ERR_USER, "stop: string %zu is empty", i);
        else
            err_set(err, ERR_USER, "stop: string %zu has %zu bytes, at most %d are allowed", i, stop[i].n_bytes,
                    SAMPLING_STOP_BYTES_MAX);
        return refuse(fault, SAMPLING_WRONG_VALUE);
    }
    sampling->stop = stop;
    sampling->n_stop = n;
    mark(sampling, SAMPLING_STOP);
    return true;
}

bool sampling_check_foreign(const char *name, struct sampling_value value, bool *is_known, enum sampling_fault *fault,
                            struct err *err)
{
    static const struct {
        const char *name;
        bool is_switch; /* else a setting that another name switches on */
        double neutral;
    } foreign[] = {
        {"typical_p", true, 1},
        {"typical", true, 1},
        {"top_a", true, 0},
        {"tfs_z", true, 1},
        {"tfs", true, 1},
        {"mirostat", true, 0},
        {"mirostat_mode", true, 0},
        {"dry_multiplier", true, 0},
        {"xtc_probability", true, 0},
        {"mirostat_tau", false, 0},
        {"mirostat_eta", false, 0},
        {"dry_base", false, 0},
        {"dry_allowed_length", false, 0},
        {"dry_penalty_last_n", false, 0},
        {"dry_sequence_breakers", false, 0},
        {"xtc_threshold", false, 0},
    };
    *is_known = true;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (strcmp(name, foreign[i].name)) continue;
        if (!foreign[i].is_switch || value.kind == SAMPLING_NULL) return true;
        if (value.kind == SAMPLING_INTEGER && (double)value.integer == foreign[i].neutral) return true;
        if (value.kind == SAMPLING_REAL && value.real == foreign[i].neutral) return true;
        err_set(err, ERR_USER, "%s: this sampler is not offered; leave it out or send %g", name, foreign[i].neutral);
        return refuse(fault, SAMPLING_UNSUPPORTED);
    }
    *is_known = false;
    return true;
}

void sampling_fill(struct sampling *sampling, const struct sampling *under)
{
    static const size_t size_of[] = {[TYPE_REAL] = sizeof(double),
                                     [TYPE_INTEGER] = sizeof(int64_t),
                                     [TYPE_BOOL] = sizeof(bool),
                                     [TYPE_LIST] = sizeof(void *)};
    for (int field = 0; field < SAMPLING_FIELDS; field++) {
        if (sampling_has(sampling, (enum sampling_field)field)) continue;
        if (!sampling_has(under, (enum sampling_field)field)) continue;
        memcpy((char *)sampling + rows[field].offset, (const char *)under + rows[field].offset,
               size_of[rows[field].type]);
        /* A list brings its length along. */
        if (field == SAMPLING_LOGIT_BIAS) sampling->n_bias = under->n_bias;
        if (field == SAMPLING_STOP_TOKEN_IDS) sampling->n_stop_ids = under->n_stop_ids;
        if (field == SAMPLING_STOP) sampling->n_stop = under->n_stop;
        mark(sampling, (enum sampling_field)field);
    }
}

struct sampling sampling_built_in(void)
{
    struct sampling sampling = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .repetition_window = 20, .max_tokens = 128};
    sampling.given = (UINT32_C(1) << SAMPLING_FIELDS) - 1;
    sampling.given &= ~(UINT32_C(1) << SAMPLING_SEED | UINT32_C(1) << SAMPLING_PRESENCE_WINDOW |
                        UINT32_C(1) << SAMPLING_FREQUENCY_WINDOW);
    return sampling;
}

bool sampling_check(const struct sampling *sampling, uint32_t n_logits, uint32_t n_tokens, enum sampling_field *field,
                    struct err *err)
{
    *field = SAMPLING_TOP_K;
    if (sampling_has(sampling, SAMPLING_TOP_K) && sampling->top_k > n_logits)
        return err_set(err, ERR_USER, "top_k: %" PRId64 " is more than the vocabulary, which has %" PRIu32,
                       sampling->top_k, n_logits);

    *field = SAMPLING_LOGIT_BIAS;
    for (size_t i = 0; i < sampling->n_bias; i++)
        if (sampling->bias[i].id >= n_tokens)
            return err_set(err, ERR_USER, "logit_bias: id %" PRIu32 " has no token; must be 0 to %" PRIu32,
                           sampling->bias[i].id, n_tokens - 1);

    *field = SAMPLING_STOP_TOKEN_IDS;
    for (size_t i = 0; i < sampling->n_stop_ids; i++)
        if (sampling->stop_ids[i] >= n_tokens)
            return err_set(err, ERR_USER, "stop_token_ids: id %" PRIu32 " has no token; must be 0 to %" PRIu32,
                           sampling->stop_ids[i], n_tokens - 1);

    *field = SAMPLING_MIN_TOKENS;
    if (sampling_has(sampling, SAMPLING_MIN_TOKENS) && sampling_has(sampling, SAMPLING_MAX_TOKENS) &&
        sampling->min_tokens > sampling->max_tokens)
        return err_set(err, ERR_USER, "min_tokens: %" PRId64 " is more than max_tokens, which is %" PRId64,
                       sampling->min_tokens, sampling->max_tokens);
    return true;
}
