/* Structured output through HTTP at temperature 1.5: 200 random schemas of all that is enforced, on the demo model and
 * on random weights. What comes is JSON and valid, unless the token limit cut it, and then the answer says so. */
#include "fmt/json_doc.h"
#include "support/check.h"
#include "support/client.h"
#include "support/demo_server.h"
#include "support/made_chat_model.h"
#include "support/random_schema.h"
#include "support/schema_check.h"

#include <json-c/json.h>

enum { SCHEMAS = 200, SEED = 20261201 };

static int n_demo = 30;

struct totals {
    int n_whole, n_cut, n_refused, n_tokens;
};

static struct json_object *at(struct json_object *value, const char *path)
{
    struct json_object *found = NULL;
    return json_pointer_get(value, path, &found) == 0 ? found : NULL;
}

static struct json_object *parse(const char *text, size_t bytes, const char *what)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct json_object *value = NULL;
    if (!json_doc_parse(&value, &alloc, &json_rules_request, what, text, bytes, &err))
        fail_msg("%s\n%.*s", err.text, (int)bytes, text);
    return value;
}

/* Marks that end things are likelier, so that nonsense comes to an end. */
static struct json_object *favour_ends(const struct demo_server *demo)
{
    struct json_object *bias = json_object_new_object();
    for (uint32_t id = 0; id < demo->model.n_tokens; id++) {
        const struct token token = tokenizer_token(demo->model.tokenizer, id);
        char key[16];
        bool ends = token.kind == TOKEN_BASE && token.n_bytes == 1 && strchr("\"]}", token.bytes[0]);
        snprintf(key, sizeof key, "%u", id);
        if (ends) json_object_object_add(bias, key, json_object_new_double(8));
    }
    return bias;
}

static char *make_request(struct json_object *schema, struct json_object *bias, int seed)
{
    struct json_object *request = json_tokener_parse(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Give me a JSON object.\"}],\"temperature\":1.5,\"top_p\":1,"
        "\"max_tokens\":250,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}}");
    assert_non_null(request);
    json_object_object_add(at(request, "/response_format/json_schema"), "schema", json_object_get(schema));
    json_object_object_add(request, "logit_bias", json_object_get(bias));
    json_object_object_add(request, "seed", json_object_new_int(seed));
    char *text = strdup(json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN));
    json_object_put(request);
    return text;
}

static void see_refusal(const struct client_answer *answer, struct json_object *schema, struct totals *totals)
{
    /* What nothing satisfies cannot be written. */
    bool is_right = answer->status == 400 &&
                    (strstr(answer->body, "nothing that ends") || strstr(answer->body, "refers back to itself"));
    if (!is_right) fail_msg("status %d: %s\n%s", answer->status, answer->body, json_object_to_json_string(schema));
    totals->n_refused++;
}

static void see_content(struct json_object *reply, struct json_object *schema, struct totals *totals)
{
    char why[256];
    const char *reason = json_object_get_string(at(reply, "/choices/0/finish_reason"));
    struct json_object *content = at(reply, "/choices/0/message/content");
    totals->n_tokens += json_object_get_int(at(reply, "/usage/completion_tokens"));
    if (strcmp(reason, "length") == 0) {
        totals->n_cut++;
        return;
    }
    assert_string_equal(reason, "stop");
    struct json_object *value =
        parse(json_object_get_string(content), (size_t)json_object_get_string_len(content), "content");
    if (!schema_holds(schema, schema, value, why))
        fail_msg("%s is violated\n%s\n%s", why, json_object_to_json_string(schema), json_object_get_string(content));
    json_object_put(value);
    totals->n_whole++;
}

static void check_model(const char *dir, const char *what, int n_schemas)
{
    struct demo_server demo;
    struct numbers numbers = {.key = SEED};
    struct schema_maker maker = {.numbers = &numbers};
    struct totals totals = {0};
    demo_server_init_at(&demo, dir);
    demo_server_start(&demo);
    struct json_object *bias = favour_ends(&demo);
    for (int i = 0; i < n_schemas; i++) {
        struct json_object *schema = schema_make(&maker);
        char *json = make_request(schema, bias, i);
        struct client_answer answer = client_ask(demo.port, "/v1/chat/completions", json);
        if (answer.status == 200) {
            struct json_object *reply = parse(answer.body, answer.n_body, "answer");
            see_content(reply, schema, &totals);
            json_object_put(reply);
        } else {
            see_refusal(&answer, schema, &totals);
        }
        client_answer_free(&answer);
        free(json);
        json_object_put(schema);
    }
    print_message("%s, key %d: %d schemas, %d whole and valid, %d cut, %d that nothing satisfies, %d tokens\n", what,
                  SEED, n_schemas, totals.n_whole, totals.n_cut, totals.n_refused, totals.n_tokens);
    for (enum schema_feature f = 0; n_schemas == SCHEMAS && f < SCHEMA_FEATURES; f++)
        if (maker.used[f] < 5) fail_msg("%s was made %u times", schema_feature_name(f), maker.used[f]);
    assert_true(totals.n_whole > n_schemas / 2);
    assert_true(totals.n_refused < n_schemas / 5);
    json_object_put(bias);
    demo_server_stop(&demo);
}

static void the_demo_model_obeys(void **state)
{
    (void)state;
    check_model("models/demo", "the demo model", n_demo);
}

static void random_weights_obey(void **state)
{
    struct temp_folder folder;
    (void)state;
    temp_folder_make(&folder);
    made_chat_model_write(&folder);
    check_model(folder.path, "random weights", SCHEMAS);
    temp_folder_remove(&folder);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--full") == 0) n_demo = SCHEMAS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_weights_obey),
        cmocka_unit_test(the_demo_model_obeys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
