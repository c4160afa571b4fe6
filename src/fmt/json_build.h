#ifndef FMT_JSON_BUILD_H
#define FMT_JSON_BUILD_H
/* Making json-c documents, piece by piece, without losing a piece when memory ends.
 *
 * json-c leaves what it could not add to its caller. Here a value changes hands in every case, so calls can be joined
 * by && and what was made in the middle of a chain is never lost. All return false when there is no memory. Keys are
 * copied. Each document belongs to one thread. */
#include "base/err.h"
#include <json-c/json_object.h>
#include <stddef.h>

/* `value` changes hands; NULL is one that could not be made, not null. */
bool json_build_member(struct json_object *object, const char *key, struct json_object *value) MUST_CHECK;
bool json_build_element(struct json_object *array, struct json_object *value) MUST_CHECK;

/* One more reference to `value`, which stays the caller's; NULL is null. */
bool json_build_share(struct json_object *object, const char *key, struct json_object *value) MUST_CHECK;
bool json_build_share_element(struct json_object *array, struct json_object *value) MUST_CHECK;

/* A string: text[bytes], which may be NULL when there are none; or one that ends with a NUL. */
bool json_build_text(struct json_object *object, const char *key, const char *text, size_t bytes) MUST_CHECK;
bool json_build_words(struct json_object *object, const char *key, const char *words) MUST_CHECK;

#endif
