#ifndef SUPPORT_REFERENCE_H
#define SUPPORT_REFERENCE_H
/* The recorded outputs of the official implementation: reference.json and reference.safetensors of a fixture.
 *
 * Read by a small reader of its own, so that a mistake in the product's reader cannot hide. Any problem ends the test
 * program: a fixture is part of the repository. */
#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

struct reference {
    struct json_object *json;   /* reference.json */
    struct json_object *header; /* of reference.safetensors */
    char *file;
    size_t data_at;
};

void reference_open(struct reference *reference, const char *dir);
void reference_close(struct reference *reference);

/* A tensor by "PROMPT.KEY": values and the product of all but the last dimension (rows), and the last (columns).
 * NULL when there is none. Both dtypes are four bytes wide. */
const void *reference_tensor(const struct reference *reference, const char *prompt, const char *key, size_t *rows,
                             size_t *columns);

/* prompts.PROMPT.KEY as an array of integers; the caller frees it. */
uint32_t *reference_ids(const struct reference *reference, const char *prompt, const char *key, size_t *n);

/* prompts.PROMPT */
struct json_object *reference_prompt(const struct reference *reference, const char *prompt);

/* || got - want || / || want ||, in double. */
double relative_error(const float *got, const float *want, size_t n);

#endif
