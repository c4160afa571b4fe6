#ifndef RUN_SAMPLING_JSON_H
#define RUN_SAMPLING_JSON_H
/* Sampling parameters out of JSON: from the members of a request, and from generation_config.json. */
#include "base/arena.h"
#include "plat/file.h"
#include "run/sampling.h"

struct json_object;

/* One member of a request. Lists are copied into `arena`; strings of `stop` stay inside `value`, which must live as
 * long. A name that is not about sampling or stopping leaves *is_ours false and everything else as it was. A wrong
 * value is ERR_USER with a message that begins with the name, and *fault says of which sort. */
bool sampling_json_member(struct sampling *sampling, struct arena *arena, const char *name, struct json_object *value,
                          bool *is_ours, enum sampling_fault *fault, struct err *err) MUST_CHECK;

/* The model's own defaults: temperature, top_p, top_k, min_p and repetition_penalty of DIR/generation_config.json.
 * Without that file nothing is given and all is well; a file that cannot be used is ERR_DATA. */
bool sampling_json_defaults(struct sampling *sampling, struct alloc *alloc, struct file_system fs, const char *dir,
                            struct err *err) MUST_CHECK;

/* The same from text; `path` is for messages. */
bool sampling_json_parse(struct sampling *sampling, struct alloc *alloc, const char *path, const char *json,
                         size_t bytes, struct err *err) MUST_CHECK;

#endif
