#include "support/lines.h"

#include "fmt/json_doc.h"
#include "plat/file.h"
#include "support/check.h"

char *fixture_read(struct alloc *alloc, const char *path, size_t *bytes)
{
    struct err err = {0};
    char *text = file_read_all(alloc, file_system_real(), path, 16 << 20, bytes, &err);
    if (!text) print_error("%s\n", err.text);
    assert_non_null(text);
    return text;
}

size_t fixture_lines(struct alloc *alloc, const char *path, fixture_line_fn *each, void *context)
{
    size_t bytes, n = 0;
    char *text = fixture_read(alloc, path, &bytes);
    for (char *line = text, *end; line < text + bytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        assert_non_null(end);
        struct err err = {0};
        struct json_object *object = NULL;
        bool ok = json_doc_parse(&object, alloc, &json_rules_file, path, line, (size_t)(end - line), &err);
        if (!ok) print_error("line %zu: %s\n", n + 1, err.text);
        assert_true(ok);
        each(context, object, ++n);
        json_object_put(object);
    }
    alloc_put(alloc, text);
    return n;
}

const char *fixture_text(struct json_object *object, const char *key, size_t *bytes)
{
    struct json_object *member = json_object_object_get(object, key);
    if (!json_object_is_type(member, json_type_string)) print_error("no string %s\n", key);
    assert_true(json_object_is_type(member, json_type_string));
    *bytes = (size_t)json_object_get_string_len(member);
    return json_object_get_string(member);
}

struct json_object *fixture_json(struct alloc *alloc, const char *text)
{
    struct err err = {0};
    struct json_object *object = NULL;
    bool ok = json_doc_parse(&object, alloc, &json_rules_request, "test", text, strlen(text), &err);
    if (!ok) print_error("%s: %s\n", text, err.text);
    assert_true(ok);
    return object;
}
