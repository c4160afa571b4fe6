#ifndef SUPPORT_JSON_ANSWER_H
#define SUPPORT_JSON_ANSWER_H
/* JSON answers of a server under test. Anything unexpected fails the test and prints the answer. */
#include "support/client.h"

struct json_object;

/* The whole text as one value; put it with json_object_put. */
struct json_object *json_answer_parse(const char *text, size_t bytes);

/* By JSON pointer. at: NULL when there is none; text: "(none)" when there is none or it is no string. */
struct json_object *json_at(struct json_object *value, const char *path);
const char *json_text_at(struct json_object *value, const char *path);
int64_t json_int_at(struct json_object *value, const char *path); /* must be there */

/* POST, or GET where json is NULL; the status must be this one. `extra`: header lines, or NULL. */
struct json_object *json_ask(uint16_t port, const char *path, const char *json, const char *extra, int status);

#endif
