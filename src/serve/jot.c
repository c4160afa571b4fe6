#include "serve/jot.h"

#include "base/assert.h"
#include "fmt/json_text.h"
#include <inttypes.h>
#include <string.h>

struct jot jot_to(struct buf *out)
{
    return (struct jot){.out = out};
}

bool jot_end(struct jot *json, struct err *err)
{
    if (json->err.kind) {
        if (err) *err = json->err;
        return false;
    }
    ASSERT(json->depth == 0);
    ASSERT(!json->expects_value);
    return true;
}

static bool failed(const struct jot *json)
{
    return json->err.kind != ERR_NONE;
}

static void put(struct jot *json, const char *text, size_t bytes)
{
    if (!failed(json) && !buf_add(json->out, text, bytes, &json->err)) ASSERT(failed(json));
}

/* What stands between two values of the same object or list. */
static void separate(struct jot *json)
{
    if (json->depth == 0) return;
    bool *has_items = &json->has_items[json->depth - 1];
    if (*has_items) put(json, ",", 1);
    *has_items = true;
}

static void begin_value(struct jot *json)
{
    bool in_object = json->depth > 0 && json->in_object[json->depth - 1];
    ASSERT(json->expects_value == in_object);
    if (!json->expects_value) separate(json);
    json->expects_value = false;
}

static void open_any(struct jot *json, bool is_object)
{
    begin_value(json);
    ASSERT(json->depth < JOT_DEPTH_MAX);
    json->in_object[json->depth] = is_object;
    json->has_items[json->depth] = false;
    json->depth++;
    put(json, is_object ? "{" : "[", 1);
}

static void close_any(struct jot *json, bool is_object)
{
    ASSERT(json->depth > 0);
    json->depth--;
    ASSERT(json->in_object[json->depth] == is_object);
    ASSERT(!json->expects_value);
    put(json, is_object ? "}" : "]", 1);
}

void jot_open(struct jot *json)
{
    open_any(json, true);
}
void jot_close(struct jot *json)
{
    close_any(json, true);
}
void jot_open_list(struct jot *json)
{
    open_any(json, false);
}
void jot_close_list(struct jot *json)
{
    close_any(json, false);
}

void jot_key(struct jot *json, const char *key)
{
    ASSERT(json->depth > 0);
    ASSERT(json->in_object[json->depth - 1]);
    ASSERT(!json->expects_value);
    separate(json);
    json->expects_value = true;
    if (!failed(json) && !json_text_add_string(json->out, key, strlen(key), &json->err)) ASSERT(failed(json));
    put(json, ":", 1);
}

void jot_text(struct jot *json, const char *text, size_t bytes)
{
    begin_value(json);
    if (!failed(json) && !json_text_add_string(json->out, text ? text : "", bytes, &json->err)) ASSERT(failed(json));
}

void jot_words(struct jot *json, const char *text)
{
    if (text)
        jot_text(json, text, strlen(text));
    else
        jot_null(json);
}

void jot_integer(struct jot *json, int64_t value)
{
    begin_value(json);
    if (!failed(json) && !buf_printf(json->out, &json->err, "%" PRId64, value)) ASSERT(failed(json));
}

void jot_real(struct jot *json, double value)
{
    char text[JSON_NUMBER_BYTES];
    begin_value(json);
    json_text_number(text, value);
    put(json, text, strlen(text));
}

void jot_bool(struct jot *json, bool value)
{
    begin_value(json);
    put(json, value ? "true" : "false", value ? 4 : 5);
}

void jot_null(struct jot *json)
{
    begin_value(json);
    put(json, "null", 4);
}

void jot_value(struct jot *json, const struct json_object *value)
{
    begin_value(json);
    if (!failed(json) && !json_text_add(json->out, value, JSON_COMPACT, &json->err)) ASSERT(failed(json));
}

void jot_raw(struct jot *json, const char *text, size_t bytes)
{
    begin_value(json);
    put(json, text, bytes);
}

void jot_put_text(struct jot *json, const char *key, const char *text, size_t bytes)
{
    jot_key(json, key);
    jot_text(json, text, bytes);
}
void jot_put_words(struct jot *json, const char *key, const char *text)
{
    jot_key(json, key);
    jot_words(json, text);
}
void jot_put_integer(struct jot *json, const char *key, int64_t value)
{
    jot_key(json, key);
    jot_integer(json, value);
}
void jot_put_real(struct jot *json, const char *key, double value)
{
    jot_key(json, key);
    jot_real(json, value);
}
void jot_put_bool(struct jot *json, const char *key, bool value)
{
    jot_key(json, key);
    jot_bool(json, value);
}
void jot_put_null(struct jot *json, const char *key)
{
    jot_key(json, key);
    jot_null(json);
}
void jot_put_value(struct jot *json, const char *key, const struct json_object *value)
{
    jot_key(json, key);
    jot_value(json, value);
}
void jot_put_open(struct jot *json, const char *key)
{
    jot_key(json, key);
    jot_open(json);
}
void jot_put_open_list(struct jot *json, const char *key)
{
    jot_key(json, key);
    jot_open_list(json);
}
