#ifndef SERVE_PROBLEM_H
#define SERVE_PROBLEM_H
/* What can be wrong with a request or with answering it, and how each family of clients is told.
 *
 * One table maps every problem to its status, type and code. A function that can refuse a request returns false and
 * fills a struct problem, its last parameter, as others do with struct err. Values only; any thread. */
#include "base/buf.h"

/* X(ID, status, OpenAI type, Anthropic type, code or NULL) */
#define PROBLEM_LIST(X)                                                                                \
    X(INVALID_JSON, 400, "invalid_request_error", "invalid_request_error", "invalid_json")             \
    X(MISSING_FIELD, 400, "invalid_request_error", "invalid_request_error", "missing_field")           \
    X(INVALID_TYPE, 400, "invalid_request_error", "invalid_request_error", "invalid_type")             \
    X(INVALID_VALUE, 400, "invalid_request_error", "invalid_request_error", "invalid_value")           \
    X(UNSUPPORTED, 400, "invalid_request_error", "invalid_request_error", "unsupported_parameter")     \
    X(CONTENT, 400, "invalid_request_error", "invalid_request_error", "unsupported_content")           \
    X(ENDPOINT, 400, "invalid_request_error", "invalid_request_error", "unsupported_endpoint")         \
    X(SCHEMA, 400, "invalid_request_error", "invalid_request_error", "invalid_schema")                 \
    X(SCHEMA_UNSUPPORTED, 400, "invalid_request_error", "invalid_request_error", "unsupported_schema") \
    X(CONFLICT, 400, "invalid_request_error", "invalid_request_error", "conflicting_constraints")      \
    X(CONTEXT, 400, "invalid_request_error", "invalid_request_error", "context_length_exceeded")       \
    X(MEMORY, 400, "invalid_request_error", "invalid_request_error", "memory_admission")               \
    X(FRAMING, 400, "invalid_request_error", "invalid_request_error", "invalid_request")               \
    X(KEY, 401, "authentication_error", "authentication_error", "invalid_api_key")                     \
    X(FORBIDDEN, 403, "permission_error", "permission_error", NULL)                                    \
    X(NOT_FOUND, 404, "invalid_request_error", "not_found_error", "not_found")                         \
    X(MODEL_NOT_FOUND, 404, "invalid_request_error", "not_found_error", "model_not_found")             \
    X(CANCELLED, 400, "invalid_request_error", "invalid_request_error", "cancelled")                   \
    X(METHOD, 405, "invalid_request_error", "invalid_request_error", "method_not_allowed")             \
    X(TOO_LARGE, 413, "invalid_request_error", "request_too_large", "request_too_large")               \
    X(MEDIA_TYPE, 415, "invalid_request_error", "invalid_request_error", "unsupported_media_type")     \
    X(HEADERS, 431, "invalid_request_error", "invalid_request_error", "headers_too_large")             \
    X(QUEUE_FULL, 429, "rate_limit_error", "rate_limit_error", "queue_full")                           \
    X(INTERNAL, 500, "server_error", "api_error", "internal")                                          \
    X(NUMERICAL, 500, "server_error", "api_error", "numerical_error")                                  \
    X(DEAD_END, 500, "server_error", "api_error", "grammar_dead_end")                                  \
    X(GRAMMAR_LIMIT, 500, "server_error", "api_error", "grammar_limit")                                \
    X(ENGINE, 502, "server_error", "api_error", "engine_unavailable")                                  \
    X(LOADING, 503, "server_error", "overloaded_error", "loading")                                     \
    X(SHUTTING_DOWN, 503, "server_error", "overloaded_error", "shutting_down")                         \
    X(QUEUE_TIMEOUT, 504, "server_error", "timeout_error", "queue_timeout")

enum problem_kind {
    PROBLEM_NONE,
#define X(id, status, openai, anthropic, code) PROBLEM_##id,
    PROBLEM_LIST(X)
#undef X
        PROBLEM_KINDS
};

enum error_family { FAMILY_OPENAI, FAMILY_ANTHROPIC };

struct problem {
    enum problem_kind kind;
    char param[128]; /* the field at fault; empty: none */
    char text[1024];
    unsigned retry_after_s; /* 0: no Retry-After */
};

/* Both return false. `param` may be NULL. */
bool problem_set(struct problem *problem, enum problem_kind kind, const char *param, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* From an error of the layers below: ERR_USER is `kind` and everything else what it is; of ERR_FAILED, the code that
 * its message names. A message of the form "field[0].name: ..." tells the parameter. */
bool problem_from(struct problem *problem, enum problem_kind kind, const struct err *err);

/* A problem with a member of the object at `where` is told as the client sees it: "summary" becomes "input[2].summary".
 * Returns false. */
bool problem_inside(struct problem *problem, const char *where);

unsigned problem_status(const struct problem *problem, enum error_family family);
const char *problem_code(const struct problem *problem);

/* The error object as the family writes it: a whole body, or the data of an error event. */
bool problem_write(const struct problem *problem, enum error_family family, const char *request_id, struct buf *out,
                   struct err *err) MUST_CHECK;

#endif
