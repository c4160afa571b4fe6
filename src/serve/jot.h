#ifndef SERVE_JOT_H
#define SERVE_JOT_H
/* JSON text written member by member, without a tree: for what is said once per token, and for answers whose members
 * have a fixed order.
 *
 * Commas are its business; nesting, keys in objects and none in arrays are the caller's, and asserted. The first
 * failure (memory, or the ceiling of the buf) is remembered and everything after it is a no-op, so that a caller checks
 * once, at jot_end. Strings must be valid UTF-8. Owned by one thread. */
#include "base/buf.h"

struct json_object;

enum { JOT_DEPTH_MAX = 24 };

struct jot {
    struct buf *out;
    struct err err;
    uint32_t depth;
    bool in_object[JOT_DEPTH_MAX], has_items[JOT_DEPTH_MAX];
    bool expects_value; /* a key was written */
};

struct jot jot_to(struct buf *out);

/* True when all that was opened is closed and nothing failed; otherwise the first failure is in *err. */
bool jot_end(struct jot *json, struct err *err) MUST_CHECK;

void jot_open(struct jot *json);       /* { */
void jot_close(struct jot *json);      /* } */
void jot_open_list(struct jot *json);  /* [ */
void jot_close_list(struct jot *json); /* ] */
void jot_key(struct jot *json, const char *key);

void jot_text(struct jot *json, const char *text, size_t bytes);
void jot_words(struct jot *json, const char *text); /* NULL: null */
void jot_integer(struct jot *json, int64_t value);
void jot_real(struct jot *json, double value); /* finite */
void jot_bool(struct jot *json, bool value);
void jot_null(struct jot *json);
void jot_value(struct jot *json, const struct json_object *value); /* compact; NULL: null */
void jot_raw(struct jot *json, const char *text, size_t bytes);    /* JSON text of one value */

/* A key and its value. */
void jot_put_text(struct jot *json, const char *key, const char *text, size_t bytes);
void jot_put_words(struct jot *json, const char *key, const char *text);
void jot_put_integer(struct jot *json, const char *key, int64_t value);
void jot_put_real(struct jot *json, const char *key, double value);
void jot_put_bool(struct jot *json, const char *key, bool value);
void jot_put_null(struct jot *json, const char *key);
void jot_put_value(struct jot *json, const char *key, const struct json_object *value);
void jot_put_open(struct jot *json, const char *key);
void jot_put_open_list(struct jot *json, const char *key);

#endif
