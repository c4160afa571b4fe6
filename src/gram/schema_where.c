/* Where in a schema something stands, and messages that say so. */
#include "gram/schema_int.h"
#include <stdarg.h>
#include <stdio.h>

const struct schema_path *schema_path_key(const struct schema *s, const struct schema_path *up, const char *key,
                                          struct err *err)
{
    struct schema_path *path = arena_get(&s->builder->scratch, sizeof *path, err);
    if (path) *path = (struct schema_path){up, key, 0};
    return path;
}

const struct schema_path *schema_path_index(const struct schema *s, const struct schema_path *up, size_t index,
                                            struct err *err)
{
    struct schema_path *path = arena_get(&s->builder->scratch, sizeof *path, err);
    if (path) *path = (struct schema_path){up, NULL, index};
    return path;
}

struct printed {
    char text[512];
    size_t n;
};

static void print_key(struct printed *out, const char *key)
{
    for (; *key && out->n + 3 < sizeof out->text; key++) {
        if (*key == '~' || *key == '/') out->text[out->n++] = '~';
        out->text[out->n++] = *key == '~' ? '0' : *key == '/' ? '1' : *key < 0x20 && *key >= 0 ? '?' : *key;
    }
    out->text[out->n] = 0;
}

static void print_path(struct printed *out, const struct schema_path *path)
{
    enum { DEPTH_MAX = 80 };
    const struct schema_path *steps[DEPTH_MAX];
    int n = 0;
    for (; path && n < DEPTH_MAX; path = path->up) steps[n++] = path;
    while (n-- > 0) {
        size_t left = sizeof out->text - out->n;
        if (left < 32) return;
        if (!steps[n]->up) {
            out->n += (size_t)snprintf(out->text + out->n, left - 24, "%s", steps[n]->key);
            if (out->n > sizeof out->text - 25) out->n = sizeof out->text - 25;
        } else if (steps[n]->key) {
            out->text[out->n++] = '/';
            print_key(out, steps[n]->key);
        } else {
            out->n += (size_t)snprintf(out->text + out->n, left, "/%zu", steps[n]->index);
        }
    }
}

bool schema_refuse(const struct schema *s, struct err *err, const char *code, const struct schema_path *path,
                   const char *key, const char *format, ...)
{
    struct printed where = {.n = 0};
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    print_path(&where, path);
    if (key && where.n + 2 < sizeof where.text) {
        where.text[where.n++] = '/';
        print_key(&where, key);
    }
    return err_set(err, ERR_USER, "%s: %s#%s: %s", code, s->where, where.text, what);
}
