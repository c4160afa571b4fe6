#include "support/json_answer.h"

#include "fmt/json_doc.h"
#include "support/check.h"

#include <json-c/json.h>
#include <unistd.h>

struct json_object *json_answer_parse(const char *text, size_t bytes)
{
    struct json_object *value;
    struct alloc alloc = {0};
    struct err err = {0};
    if (!json_doc_parse(&value, &alloc, &json_rules_request, "answer", text, bytes, &err))
        fail_msg("%s\n%.*s", err.text, (int)bytes, text);
    return value;
}

struct json_object *json_at(struct json_object *value, const char *path)
{
    struct json_object *found;
    return json_pointer_get(value, path, &found) == 0 ? found : NULL;
}

const char *json_text_at(struct json_object *value, const char *path)
{
    struct json_object *found = json_at(value, path);
    return json_object_is_type(found, json_type_string) ? json_object_get_string(found) : "(none)";
}

int64_t json_int_at(struct json_object *value, const char *path)
{
    struct json_object *found = json_at(value, path);
    if (!json_object_is_type(found, json_type_int))
        fail_msg("no integer at %s in %s", path, json_object_to_json_string(value));
    return json_object_get_int64(found);
}

struct json_object *json_ask(uint16_t port, const char *path, const char *json, const char *extra, int status)
{
    struct client_answer answer;
    int fd = client_connect(port);
    if (json)
        client_post(fd, path, json, extra);
    else
        client_get(fd, path, extra);
    client_read(fd, &answer);
    close(fd);
    if (answer.status != status)
        fail_msg("%s %s: status %d, wanted %d: %s", path, json ? json : "", answer.status, status, answer.body);
    struct json_object *value = json_answer_parse(answer.body, answer.n_body);
    client_answer_free(&answer);
    return value;
}
