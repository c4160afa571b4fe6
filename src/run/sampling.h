#ifndef RUN_SAMPLING_H
#define RUN_SAMPLING_H
/* The parameters that choose tokens and end an answer: their names, legal ranges and defaults.
 *
 * One table has a row for each, and serves requests, server options and generation_config.json alike. A parameter's
 * value is the first of: request, server option, generation_config.json, built in. Each of these is a struct sampling
 * that knows which of its members were given; sampling_fill lays one under another.
 *
 * Values only. The three lists are borrowed from whoever parsed them, normally the request's arena. */
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

enum sampling_field {
    SAMPLING_TEMPERATURE,
    SAMPLING_TOP_P,
    SAMPLING_TOP_K,
    SAMPLING_MIN_P,
    SAMPLING_REPETITION_PENALTY,
    SAMPLING_REPETITION_WINDOW,
    SAMPLING_PRESENCE_PENALTY,
    SAMPLING_PRESENCE_WINDOW,
    SAMPLING_FREQUENCY_PENALTY,
    SAMPLING_FREQUENCY_WINDOW,
    SAMPLING_SEED,
    SAMPLING_MAX_TOKENS,
    SAMPLING_MIN_TOKENS,
    SAMPLING_IGNORE_EOS,
    SAMPLING_LOGIT_BIAS,
    SAMPLING_STOP_TOKEN_IDS,
    SAMPLING_STOP,
    SAMPLING_FIELDS, /* how many; as a name: none of ours */
};

enum {
    SAMPLING_BIAS_MAX = 1024,
    SAMPLING_STOP_IDS_MAX = 1024,
    SAMPLING_STOP_STRINGS_MAX = 16,
    SAMPLING_STOP_BYTES_MAX = 1024,
    SAMPLING_WINDOW_ALL = -1,
};

struct logit_bias {
    uint32_t id;
    float value; /* at most -100: the id is impossible */
};

struct stop_string {
    const char *bytes; /* not terminated */
    size_t n_bytes;
};

struct sampling {
    uint32_t given; /* one bit per sampling_field; the member of a field that is not given means nothing */

    double temperature;        /* 0..2; below 1e-5 the most probable token is taken */
    double top_p;              /* 0..1 */
    int64_t top_k;             /* -1 and 0: all */
    double min_p;              /* 0..1, as a share of the largest probability */
    double repetition_penalty; /* above 0, up to 2 */
    int64_t repetition_window; /* ids of prompt and answer; SAMPLING_WINDOW_ALL */
    double presence_penalty, frequency_penalty;
    int64_t presence_window,
        frequency_window; /* as repetition_window; not given: the whole answer, without the prompt */
    int64_t seed;
    int64_t max_tokens, min_tokens;
    bool ignore_eos;

    const struct logit_bias *bias;  /* [n_bias] */
    const uint32_t *stop_ids;       /* [n_stop_ids] */
    const struct stop_string *stop; /* [n_stop] */
    size_t n_bias, n_stop_ids, n_stop;
};

/* A value as it came from outside, before anything is known about its place. */
struct sampling_value {
    enum { SAMPLING_NULL, SAMPLING_BOOL, SAMPLING_INTEGER, SAMPLING_REAL, SAMPLING_OTHER } kind;
    int64_t integer; /* also the truth of a BOOL */
    double real;
};

/* Why a value was refused, where the wire protocol tells these apart. */
enum sampling_fault { SAMPLING_FINE, SAMPLING_WRONG_TYPE, SAMPLING_WRONG_VALUE, SAMPLING_UNSUPPORTED };

/* What a wire name or one of its aliases stands for; SAMPLING_FIELDS when it is not ours. */
enum sampling_field sampling_field_of(const char *name);
const char *sampling_field_name(enum sampling_field field);
bool sampling_has(const struct sampling *sampling, enum sampling_field field);

/* Sets a field that is not a list, or refuses with ERR_USER and a message that begins with `name`, which is how the
 * client called it. A null leaves the field as it was: absent. An integer is good where a real is asked for, and a
 * real without a fraction where an integer is; a boolean is neither. */
bool sampling_put(struct sampling *sampling, enum sampling_field field, const char *name, struct sampling_value value,
                  enum sampling_fault *fault, struct err *err) MUST_CHECK;

/* Set the lists. The elements are kept by reference. */
bool sampling_put_bias(struct sampling *sampling, const struct logit_bias *bias, size_t n, enum sampling_fault *fault,
                       struct err *err) MUST_CHECK;
bool sampling_put_stop_ids(struct sampling *sampling, const uint32_t *ids, size_t n, enum sampling_fault *fault,
                           struct err *err) MUST_CHECK;
bool sampling_put_stop(struct sampling *sampling, const struct stop_string *stop, size_t n, enum sampling_fault *fault,
                       struct err *err) MUST_CHECK;

/* Other engines have samplers that change the distribution and that are not offered here. Their neutral values are
 * fine, and so are settings that do nothing while the sampler itself is off. Anything else is refused, because to
 * ignore it would be to lie. True and not *is_known for any other name. */
bool sampling_check_foreign(const char *name, struct sampling_value value, bool *is_known, enum sampling_fault *fault,
                            struct err *err) MUST_CHECK;

/* Every field that `sampling` lacks and `under` has is taken from there. */
void sampling_fill(struct sampling *sampling, const struct sampling *under);

/* The last layer: neutral values and 128 tokens. Everything but seed, presence_window and frequency_window is given. */
struct sampling sampling_built_in(void);

/* What only a complete struct and a model can tell: ids and top_k against the vocabulary, min_tokens against
 * max_tokens. n_logits is the length of a row; ids from n_tokens on have no token. On failure *field is the culprit. */
bool sampling_check(const struct sampling *sampling, uint32_t n_logits, uint32_t n_tokens, enum sampling_field *field,
                    struct err *err) MUST_CHECK;

#endif
