#include "run/sampling_json.h"

#include "base/buf.h"
#include "support/check.h"
#include "support/temp_folder.h"
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

struct request {
    struct alloc alloc;
    struct arena arena;
    struct json_object *root; /* lists borrow from it */
    struct sampling sampling;
    enum sampling_fault fault;
    struct err err;
};

/* Gives every member of a JSON object to the sampling parameters, as a server does. */
static bool request_read(struct request *request, const char *json)
{
    *request = (struct request){0};
    arena_init(&request->arena, &request->alloc, 1 << 20);
    request->root = json_tokener_parse(json);
    assert_non_null(request->root);
    json_object_object_foreach(request->root, name, value)
    {
        bool is_ours = false;
        if (!sampling_json_member(&request->sampling, &request->arena, name, value, &is_ours, &request->fault,
                                  &request->err))
            return false;
    }
    return true;
}

static void request_end(struct request *request)
{
    json_object_put(request->root);
    arena_fini(&request->arena);
    assert_int_equal(request->alloc.live, 0);
}

static void legal_values_are_taken(void **state)
{
    (void)state;
    static const char *const legal[] = {
        "{}",
        "{\"temperature\": 0}",
        "{\"temperature\": 2}",
        "{\"temperature\": 0.7}",
        "{\"temperature\": null}",
        "{\"top_p\": 0}",
        "{\"top_p\": 1}",
        "{\"top_p\": 1.0}",
        "{\"top_k\": -1}",
        "{\"top_k\": 0}",
        "{\"top_k\": 40}",
        "{\"top_k\": 40.0}",
        "{\"min_p\": 0.05}",
        "{\"repetition_penalty\": 1e-9}",
        "{\"repetition_penalty\": 2}",
        "{\"repeat_penalty\": 1.1}",
        "{\"repeat_last_n\": -1}",
        "{\"repetition_context_size\": 4096}",
        "{\"presence_penalty\": -2}",
        "{\"frequency_penalty\": 2}",
        "{\"seed\": -9223372036854775808}",
        "{\"seed\": 9223372036854775807}",
        "{\"max_tokens\": 0}",
        "{\"max_completion_tokens\": 1}",
        "{\"max_output_tokens\": 65536}",
        "{\"min_tokens\": 3}",
        "{\"ignore_eos\": true}",
        "{\"logit_bias\": {}}",
        "{\"logit_bias\": {\"0\": -100, \"154855\": 100, \"7\": 0.5}}",
        "{\"logit_bias\": null}",
        "{\"stop\": \"x\"}",
        "{\"stop\": []}",
        "{\"stop\": [\"a\", \"b\"]}",
        "{\"stop\": null}",
        "{\"stop_sequences\": [\"\\n\\n\"]}",
        "{\"stop_token_ids\": [1, 2]}",
        "{\"stop_token_ids\": []}",
        "{\"typical_p\": 1}",
        "{\"typical_p\": 1.0}",
        "{\"tfs_z\": null}",
        "{\"mirostat\": 0}",
        "{\"dry_multiplier\": 0, \"dry_base\": 1.75, \"dry_sequence_breakers\": [\"x\"]}",
        "{\"mirostat_tau\": 5}",
        "{\"xtc_probability\": 0, \"xtc_threshold\": 0.1}",
        "{\"model\": \"no business of ours\"}",
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        struct request request;
        if (!request_read(&request, legal[i])) fail_msg("%s: %s", legal[i], request.err.text);
        request_end(&request);
    }
}

static void illegal_values_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
        enum sampling_fault fault;
    } cases[] = {
        {"{\"temperature\": 2.5}", "temperature: 2.5 is not legal; must be at least 0 and at most 2",
         SAMPLING_WRONG_VALUE},
        {"{\"temperature\": -0.1}", "temperature: -0.1", SAMPLING_WRONG_VALUE},
        {"{\"temperature\": NaN}", "temperature: nan", SAMPLING_WRONG_VALUE},
        {"{\"temperature\": \"1\"}", "temperature: must be a number", SAMPLING_WRONG_TYPE},
        {"{\"temperature\": true}", "temperature: must be a number", SAMPLING_WRONG_TYPE},
        {"{\"temperature\": []}", "temperature: must be a number", SAMPLING_WRONG_TYPE},
        {"{\"top_p\": 1.0001}", "top_p: 1.0001", SAMPLING_WRONG_VALUE},
        {"{\"top_p\": -1}", "top_p: -1", SAMPLING_WRONG_VALUE},
        {"{\"top_k\": -2}", "top_k: -2 is not legal", SAMPLING_WRONG_VALUE},
        {"{\"top_k\": 1.5}", "top_k: must be an integer", SAMPLING_WRONG_TYPE},
        {"{\"top_k\": false}", "top_k: must be an integer", SAMPLING_WRONG_TYPE},
        {"{\"min_p\": 2}", "min_p: 2", SAMPLING_WRONG_VALUE},
        {"{\"repetition_penalty\": 0}", "repetition_penalty: 0 is not legal; must be more than 0 and at most 2",
         SAMPLING_WRONG_VALUE},
        {"{\"repeat_penalty\": 2.1}", "repeat_penalty: 2.1", SAMPLING_WRONG_VALUE},
        {"{\"repeat_last_n\": 4097}", "repeat_last_n: 4097 is not legal; must be -1 to 4096", SAMPLING_WRONG_VALUE},
        {"{\"presence_penalty\": 2.01}", "presence_penalty: 2.01", SAMPLING_WRONG_VALUE},
        {"{\"frequency_penalty\": -3}", "frequency_penalty: -3", SAMPLING_WRONG_VALUE},
        {"{\"seed\": 9223372036854775808}", "seed: must be an integer", SAMPLING_WRONG_TYPE},
        {"{\"seed\": 1.5}", "seed: must be an integer", SAMPLING_WRONG_TYPE},
        {"{\"seed\": 1e300}", "seed: must be an integer", SAMPLING_WRONG_TYPE},
        {"{\"max_tokens\": -1}", "max_tokens: -1", SAMPLING_WRONG_VALUE},
        {"{\"max_completion_tokens\": \"9\"}", "max_completion_tokens: must be an integer", SAMPLING_WRONG_TYPE},
        {"{\"ignore_eos\": 1}", "ignore_eos: must be true or false", SAMPLING_WRONG_TYPE},
        {"{\"logit_bias\": []}", "logit_bias: must be an object", SAMPLING_WRONG_TYPE},
        {"{\"logit_bias\": {\"5\": \"1\"}}", "logit_bias: the bias of id 5 must be a number", SAMPLING_WRONG_TYPE},
        {"{\"logit_bias\": {\"5\": -101}}", "logit_bias: -101 for id 5", SAMPLING_WRONG_VALUE},
        {"{\"logit_bias\": {\"05\": 1}}", "logit_bias: \"05\" is not a token id", SAMPLING_WRONG_VALUE},
        {"{\"logit_bias\": {\"-1\": 1}}", "logit_bias: \"-1\" is not a token id", SAMPLING_WRONG_VALUE},
        {"{\"logit_bias\": {\"\": 1}}", "logit_bias: \"\" is not a token id", SAMPLING_WRONG_VALUE},
        {"{\"logit_bias\": {\"4294967296\": 1}}", "logit_bias: \"4294967296\" is not", SAMPLING_WRONG_VALUE},
        {"{\"stop\": \"\"}", "stop: string 0 is empty", SAMPLING_WRONG_VALUE},
        {"{\"stop\": [\"a\", \"\"]}", "stop: string 1 is empty", SAMPLING_WRONG_VALUE},
        {"{\"stop\": 5}", "stop: must be a string or an array of strings", SAMPLING_WRONG_TYPE},
        {"{\"stop\": [null]}", "stop: must be a string or an array of strings", SAMPLING_WRONG_TYPE},
        {"{\"stop\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "stop: 17 strings", SAMPLING_WRONG_VALUE},
        {"{\"stop_token_ids\": 5}", "stop_token_ids: must be an array", SAMPLING_WRONG_TYPE},
        {"{\"stop_token_ids\": [\"5\"]}", "stop_token_ids: element 0", SAMPLING_WRONG_TYPE},
        {"{\"stop_token_ids\": [-5]}", "stop_token_ids: -5", SAMPLING_WRONG_VALUE},
        {"{\"typical_p\": 0.9}", "typical_p: this sampler is not offered", SAMPLING_UNSUPPORTED},
        {"{\"mirostat\": 2}", "mirostat: this sampler is not offered", SAMPLING_UNSUPPORTED},
        {"{\"dry_multiplier\": 0.8}", "dry_multiplier: this sampler", SAMPLING_UNSUPPORTED},
        {"{\"xtc_probability\": 0.5}", "xtc_probability: this sampler", SAMPLING_UNSUPPORTED},
        {"{\"top_a\": \"0\"}", "top_a: this sampler is not offered", SAMPLING_UNSUPPORTED},
        {"{\"tfs_z\": 0.5}", "tfs_z: this sampler is not offered", SAMPLING_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request request;
        if (request_read(&request, cases[i].json)) fail_msg("%s was taken", cases[i].json);
        if (strncmp(request.err.text, cases[i].text, strlen(cases[i].text)))
            fail_msg("%s: %s", cases[i].json, request.err.text);
        assert_int_equal(request.err.kind, ERR_USER);
        assert_int_equal(request.fault, cases[i].fault);
        request_end(&request);
    }
}

static void lists_have_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *front, *back;
        int most;
    } lists[] = {
        {"{\"logit_bias\": {", "}}", SAMPLING_BIAS_MAX},
        {"{\"stop_token_ids\": [", "]}", SAMPLING_STOP_IDS_MAX},
        {"{\"stop\": [", "]}", SAMPLING_STOP_STRINGS_MAX},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int extra = 0; extra <= 1; extra++) {
            struct alloc alloc = {0};
            struct buf json;
            struct err err = {0};
            buf_init(&json, &alloc, 1 << 20);
            assert_true(buf_add_text(&json, lists[i].front, &err));
            for (int k = 0; k < lists[i].most + extra; k++) {
                char entry[32];
                snprintf(entry, sizeof entry, i == 0 ? "%s\"%d\": 1" : i == 1 ? "%s%d" : "%s\"%d\"", k ? "," : "", k);
                assert_true(buf_add_text(&json, entry, &err));
            }
            assert_true(buf_add_text(&json, lists[i].back, &err));
            struct request request;
            assert_int_equal(request_read(&request, json.data), !extra);
            if (extra) print_message("%s\n", request.err.text);
            request_end(&request);
            buf_fini(&json);
        }

    char *json = malloc(2000);
    for (int n = SAMPLING_STOP_BYTES_MAX; n <= SAMPLING_STOP_BYTES_MAX + 1; n++) {
        snprintf(json, 2000, "{\"stop\": \"%0*d\"}", n, 0);
        struct request request;
        assert_int_equal(request_read(&request, json), n == SAMPLING_STOP_BYTES_MAX);
        request_end(&request);
    }
    free(json);
}

static void the_first_layer_that_has_a_value_wins(void **state)
{
    (void)state;
    struct err err = {0};
    struct alloc alloc = {0};
    struct sampling model, server = {0}, built_in = sampling_built_in();
    static const char json[] = "{\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": null, \"eos_token_id\": [1, 2]}";
    assert_true(sampling_json_parse(&model, &alloc, "g.json", json, sizeof json - 1, &err));
    struct sampling_value half = {.kind = SAMPLING_REAL, .real = 0.5};
    assert_true(sampling_put(&server, SAMPLING_TOP_P, "--top-p", half, NULL, &err));
    assert_true(sampling_put(&server, SAMPLING_MIN_P, "--min-p", half, NULL, &err));

    struct request request;
    assert_true(request_read(&request, "{\"temperature\": 0, \"min_p\": null, \"stop\": [\"x\", \"y\"]}"));
    sampling_fill(&request.sampling, &server);
    sampling_fill(&request.sampling, &model);
    sampling_fill(&request.sampling, &built_in);
    assert_true(request.sampling.temperature == 0); /* an explicit 0 is a value */
    assert_true(request.sampling.top_p == 0.5);     /* server before model */
    assert_true(request.sampling.min_p == 0.5);     /* null means absent */
    assert_int_equal(request.sampling.top_k, 0);
    assert_int_equal(request.sampling.repetition_window, 20);
    assert_int_equal(request.sampling.max_tokens, 128);
    assert_int_equal(request.sampling.n_stop, 2);
    assert_false(sampling_has(&request.sampling, SAMPLING_SEED));
    assert_false(sampling_has(&request.sampling, SAMPLING_PRESENCE_WINDOW));
    request_end(&request);

    assert_true(request_read(&request, "{}"));
    sampling_fill(&request.sampling, &model);
    sampling_fill(&request.sampling, &built_in);
    assert_true(request.sampling.temperature == 0.6);
    assert_true(request.sampling.top_p == 0.95);
    request_end(&request);

    assert_true(request_read(&request, "{}"));
    sampling_fill(&request.sampling, &built_in);
    assert_true(request.sampling.temperature == 1);
    assert_true(request.sampling.top_p == 1);
    request_end(&request);
}

static void a_model_narrows_what_is_legal(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
        enum sampling_field field;
    } cases[] = {
        {"{\"top_k\": 155000}", "top_k: 155000 is more than the vocabulary", SAMPLING_TOP_K},
        {"{\"logit_bias\": {\"154856\": 1}}", "logit_bias: id 154856 has no token; must be 0 to 154855",
         SAMPLING_LOGIT_BIAS},
        {"{\"stop_token_ids\": [7, 154879]}", "stop_token_ids: id 154879 has no token", SAMPLING_STOP_TOKEN_IDS},
        {"{\"min_tokens\": 9, \"max_tokens\": 8}", "min_tokens: 9 is more than max_tokens, which is 8",
         SAMPLING_MIN_TOKENS},
        {"{\"top_k\": 154880, \"logit_bias\": {\"154855\": 1}, \"min_tokens\": 8, \"max_tokens\": 8}", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request request;
        enum sampling_field field;
        assert_true(request_read(&request, cases[i].json));
        struct sampling built_in = sampling_built_in();
        sampling_fill(&request.sampling, &built_in);
        bool ok = sampling_check(&request.sampling, 154880, 154856, &field, &request.err);
        assert_int_equal(ok, cases[i].text == NULL);
        if (!ok) {
            assert_int_equal(strncmp(request.err.text, cases[i].text, strlen(cases[i].text)), 0);
            assert_int_equal(field, cases[i].field);
        }
        request_end(&request);
    }
}

static void damaged_defaults_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"", "g.json: "},
        {"{\"temperature\": 1", "g.json: "},
        {"{\"temperature\": 1} x", "g.json: "},
        {"{'temperature': 1}", "g.json: "},
        {"{\"temperature\": NaN}", "g.json: "},
        {"[1]", "g.json: must hold a JSON object"},
        {"null", "g.json: must hold a JSON object"},
        {"{\"temperature\": 7}", "g.json: temperature: 7 is not legal"},
        {"{\"top_p\": \"high\"}", "g.json: top_p: must be a number"},
        {"{\"a\": \"\xff\"}", "g.json: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampling sampling;
        struct err err = {0};
        struct alloc alloc = {0};
        bool ok = sampling_json_parse(&sampling, &alloc, "g.json", cases[i].json, strlen(cases[i].json), &err);
        assert_int_equal(alloc.live, 0);
        if (ok || err.kind != ERR_DATA || strncmp(err.text, cases[i].text, strlen(cases[i].text)))
            fail_msg("%s: %s", cases[i].json, ok ? "taken" : err.text);
    }
}

static void defaults_come_from_the_model_folder(void **state)
{
    (void)state;
    struct temp_folder folder;
    temp_folder_make(&folder);
    const char *dir = folder.path, *path = temp_path(&folder, "generation_config.json");
    struct alloc none = {0};
    struct sampling sampling;
    struct err err = {0};
    assert_true(sampling_json_defaults(&sampling, &none, file_system_real(), dir, &err)); /* no file, no defaults */
    assert_int_equal(sampling.given, 0);

    static const char json[] = "{\"temperature\": 0.25, \"repetition_penalty\": 1.1, \"top_k\": 50, \"min_p\": 0.1}\n";
    put_file(path, json, sizeof json - 1);
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        bool ok = sampling_json_defaults(&sampling, &alloc, file_system_real(), dir, &err);
        assert_int_equal(alloc.live, 0);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (!ok) continue;
        assert_true(k > 1);
        break;
    }
    assert_true(sampling.temperature == 0.25 && sampling.repetition_penalty == 1.1 && sampling.min_p == 0.1);
    assert_int_equal(sampling.top_k, 50);
    assert_false(sampling_has(&sampling, SAMPLING_TOP_P));

    /* A file that is there and cannot be used is never taken for one that is not. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(sampling_json_defaults(&sampling, &none, file_system_real(), dir, &err));
    assert_non_null(strstr(err.text, path));
    temp_folder_remove(&folder);
    assert_int_equal(none.live, 0);
}

static void lists_survive_a_lack_of_memory(void **state)
{
    (void)state;
    static const char *const members[] = {"{\"logit_bias\": {\"1\": 2}}", "{\"stop\": \"x\"}",
                                          "{\"stop_token_ids\": [4]}"};
    for (size_t i = 0; i < 3; i++) {
        struct request request = {.alloc.fail_at = 1};
        arena_init(&request.arena, &request.alloc, 1 << 20);
        request.root = json_tokener_parse(members[i]);
        json_object_object_foreach(request.root, name, value)
        {
            bool is_ours;
            assert_false(sampling_json_member(&request.sampling, &request.arena, name, value, &is_ours, &request.fault,
                                              &request.err));
        }
        assert_int_equal(request.err.kind, ERR_NOMEM);
        request_end(&request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_values_are_taken),
        cmocka_unit_test(illegal_values_are_refused_by_name),
        cmocka_unit_test(lists_have_bounds),
        cmocka_unit_test(the_first_layer_that_has_a_value_wins),
        cmocka_unit_test(a_model_narrows_what_is_legal),
        cmocka_unit_test(damaged_defaults_are_named),
        cmocka_unit_test(defaults_come_from_the_model_folder),
        cmocka_unit_test(lists_survive_a_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
