#ifndef SERVE_HISTOGRAMS_H
#define SERVE_HISTOGRAMS_H
/* How long answers take and how long they are, by buckets, in the form that scrapers of metrics sum up. Any thread may
 * add and read; a reader may see an answer in one bucket and not yet in another. */
#include "base/buf.h"
#include <stdatomic.h>

struct service_result;

/* Name, what it is, whether it is counted in tokens (else seconds). */
#define HISTOGRAM_LIST(X)                                                                                    \
    X(QUEUE, "queue_seconds", "From a request to its place in the engine.", false)                           \
    X(FIRST_TOKEN, "time_to_first_token_seconds", "From a request to the first token of its answer.", false) \
    X(PROMPT, "prompt_seconds", "Reading the prompt.", false)                                                \
    X(TOKEN, "time_per_token_seconds", "Of an answer, without its first token.", false)                      \
    X(ANSWER, "answer_seconds", "From a request to the end of its answer.", false)                           \
    X(PROMPT_TOKENS, "request_prompt_tokens", "Tokens of a prompt.", true)                                   \
    X(ANSWER_TOKENS, "request_answer_tokens", "Tokens of an answer.", true)

enum histogram_id {
#define X(id, name, help, in_tokens) HISTOGRAM_##id,
    HISTOGRAM_LIST(X)
#undef X
        HISTOGRAMS
};

enum { HISTOGRAM_BUCKETS = 16 };

struct histogram {
    _Atomic uint64_t bucket[HISTOGRAM_BUCKETS + 1]; /* not cumulated; the last: above all bounds */
    _Atomic uint64_t sum;                           /* nanoseconds, or tokens */
};

struct histograms {
    struct histogram of[HISTOGRAMS];
};

/* An answer that came to an end, however it did. */
void histograms_add(struct histograms *histograms, const struct service_result *result);

/* All of them as text, format 0.0.4. */
bool histograms_write(struct histograms *histograms, struct buf *out, struct err *err) MUST_CHECK;

#endif
