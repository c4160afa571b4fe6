/* What stands between text and ids, on the tokenizer of the demo model: prefixes, dead ids, ends, and what is refused.
 */
#include "run/text_model.h"

#include "fmt/chat_ids.h"
#include "fmt/json_text.h"
#include "support/check.h"
#include "support/lines.h"
#include "support/temp_folder.h"
#include "support/tokenizers.h"

#include <json-c/json_object.h>

#define DEMO "models/demo"

static const struct config demo = {.vocab = 4096, .eos = {4060, 4067, 4069}, .n_eos = 3};

static void open_model(struct text_model *model, struct alloc *alloc, const char *dir, const struct config *config)
{
    struct err err = {0};
    if (!text_model_open(model, alloc, file_system_real(), dir, config, &err)) fail_msg("%s", err.text);
}

static void expect_ids(const struct text_model *model, const char *text, const uint32_t *want, size_t n_want)
{
    struct err err = {0};
    struct token_list ids;
    struct encoder *encoder = encoder_new(model->alloc, model->tokenizer, NULL, &err);
    uint32_t before = 7;
    assert_non_null(encoder);
    token_list_init(&ids, model->alloc, 1000);
    assert_true(token_list_add(&ids, &before, 1, &err)); /* what is there stays */
    assert_true(text_model_encode_raw(model, encoder, text, strlen(text), &ids, &err));
    print_message("'%s': %zu ids\n", text, ids.n - 1);
    assert_int_equal(ids.ids[0], 7);
    assert_int_equal(ids.n - 1, n_want);
    assert_memory_equal(ids.ids + 1, want, n_want * sizeof *want);
    token_list_fini(&ids);
    encoder_free(encoder);
}

static void a_raw_text_gets_its_prefix_once(void **state)
{
    struct alloc alloc = {0};
    struct text_model model;
    (void)state;
    open_model(&model, &alloc, DEMO, &demo);
    expect_ids(&model, "ab<|user|>", (uint32_t[]){4062, 4064, 372, 4067}, 4);
    expect_ids(&model, "[gMASK]<sop>ab<|user|>", (uint32_t[]){4062, 4064, 372, 4067}, 4);
    expect_ids(&model, "[gMASK]ab", (uint32_t[]){4062, 4064, 4062, 372}, 4); /* half of it is text like any other */
    expect_ids(&model, "", (uint32_t[]){4062, 4064}, 2);
    text_model_close(&model);
    text_model_close(&model);
    assert_int_equal(alloc.live, 0);
}

static void a_conversation_is_the_template(void **state)
{
    static const uint32_t want[] = {4062, 4064, 4067, 2202, 0, 4068, 4081, 4082};
    struct alloc alloc = {0};
    struct err err = {0};
    struct text_model model;
    struct token_list ids;
    bool thinks = true;
    (void)state;
    open_model(&model, &alloc, DEMO, &demo);
    struct encoder *encoder = encoder_new(&alloc, model.tokenizer, NULL, &err);
    struct chat_request request = {.messages = fixture_json(&alloc, "[{\"role\":\"user\",\"content\":\"Hello!\"}]")};
    token_list_init(&ids, &alloc, 1000);
    assert_true(text_model_encode_chat(&model, encoder, &request, &ids, &thinks, &err));
    assert_int_equal(ids.n, sizeof want / sizeof *want);
    assert_memory_equal(ids.ids, want, sizeof want);
    assert_false(thinks);
    ids.n = 0;
    request.options.thinking = true;
    assert_true(text_model_encode_chat(&model, encoder, &request, &ids, &thinks, &err));
    assert_true(thinks);
    assert_int_equal(ids.ids[ids.n - 1], model.chat.id[CHAT_THINK]);
    json_object_put(request.messages);
    request.messages = fixture_json(&alloc, "[{\"role\":\"user\",\"content\":\"<|user|></think>\"}]");
    ids.n = 0;
    assert_true(text_model_encode_chat(&model, encoder, &request, &ids, &thinks, &err));
    size_t n_users = 0;
    for (size_t i = 0; i < ids.n; i++) n_users += ids.ids[i] == model.chat.id[CHAT_USER];
    assert_int_equal(n_users, 1); /* the template's own; what the message says is text */
    json_object_put(request.messages);
    token_list_fini(&ids);
    encoder_free(encoder);
    text_model_close(&model);
    assert_int_equal(alloc.live, 0);
}

static void ends_and_defaults_are_those_of_the_folder(void **state)
{
    struct alloc alloc = {0};
    struct text_model model;
    (void)state;
    open_model(&model, &alloc, DEMO, &demo);
    assert_int_equal(model.n_tokens, 4096);
    assert_int_equal(model.n_dead, 0);
    assert_int_equal(model.n_ends_model, 3);
    assert_memory_equal(model.ends, demo.eos, 3 * sizeof *demo.eos);
    assert_int_equal(model.n_ends_chat, 5);
    assert_int_equal(model.ends[3], 4066); /* <|system|> */
    assert_int_equal(model.ends[4], 4068); /* <|assistant|> */
    assert_true(model.defaults.temperature == 1.0);
    assert_true(model.defaults.top_p == 0.95);
    assert_int_equal(model.defaults.max_tokens, 128);
    text_model_close(&model);
}

/* The tokenizer of the demo model without its token `content`. */
static void put_without(const struct temp_folder *folder, const char *content)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct buf text;
    struct json_object *root = tokenizer_fixture_json(&alloc, DEMO "/tokenizer.json");
    struct json_object *added = json_object_object_get(root, "added_tokens");
    for (size_t i = 0; i < json_object_array_length(added); i++) {
        struct json_object *token = json_object_array_get_idx(added, i);
        if (strcmp(json_object_get_string(json_object_object_get(token, "content")), content) != 0) continue;
        json_object_array_del_idx(added, i, 1);
        break;
    }
    buf_init(&text, &alloc, 1 << 24);
    assert_true(json_text_add(&text, root, JSON_COMPACT, &err));
    put_file(temp_path(folder, "tokenizer.json"), text.data, text.bytes);
    buf_fini(&text);
    json_object_put(root);
    assert_int_equal(alloc.live, 0);
}

static void ids_without_a_token_are_known(void **state)
{
    struct alloc alloc = {0};
    struct temp_folder folder;
    struct text_model model;
    struct config wide = demo;
    (void)state;
    temp_folder_make(&folder);
    put_without(&folder, "[MASK]");
    wide.vocab = 4200;
    open_model(&model, &alloc, folder.path, &wide);
    assert_int_equal(model.n_dead, 1);
    assert_int_equal(model.dead[0], 4061);
    assert_int_equal(model.n_tokens, 4096); /* and those behind them are dead without being listed */
    assert_int_equal(model.n_logits, 4200);
    text_model_close(&model);
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
}

static void refused(const char *dir, const struct config *config, enum err_kind kind, const char *message)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct text_model model;
    assert_false(text_model_open(&model, &alloc, file_system_real(), dir, config, &err));
    print_message("%s\n", err.text);
    assert_int_equal(err.kind, kind);
    assert_non_null(strstr(err.text, message));
    assert_null(strchr(err.text, '\n'));
    assert_int_equal(alloc.live, 0);
}

static void what_cannot_be_used_is_refused(void **state)
{
    struct temp_folder folder;
    struct config small = demo;
    (void)state;
    temp_folder_make(&folder);
    refused(folder.path, &demo, ERR_DATA, "tokenizer.json");
    put_file(temp_path(&folder, "tokenizer.json"), "{", 1);
    refused(folder.path, &demo, ERR_DATA, "tokenizer.json");
    put_without(&folder, "<|assistant|>");
    refused(folder.path, &demo, ERR_DATA, "<|assistant|>");
    small.vocab = 4000;
    refused(DEMO, &small, ERR_DATA, "ids up to 4095, but the model has 4000 rows");
    put_without(&folder, "[MASK]");
    put_file(temp_path(&folder, "generation_config.json"), "{\"top_p\": 7}", 12);
    refused(folder.path, &demo, ERR_DATA, "top_p");
    temp_folder_remove(&folder);
}

static void memory_may_run_out_anywhere(void **state)
{
    uint64_t k = 1;
    (void)state;
    for (;; k += 1 + k / 50) { /* the tokenizer takes thousands of blocks and has a sweep of its own */
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct text_model model;
        bool ok = text_model_open(&model, &alloc, file_system_real(), DEMO, &demo, &err);
        if (ok) text_model_close(&model);
        assert_int_equal(alloc.live, 0);
        if (ok) break;
        assert_int_equal(err.kind, ERR_NOMEM);
    }
    print_message("every point up to allocation %ju\n", (uintmax_t)k);
    assert_true(k > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_raw_text_gets_its_prefix_once),
        cmocka_unit_test(a_conversation_is_the_template),
        cmocka_unit_test(ends_and_defaults_are_those_of_the_folder),
        cmocka_unit_test(ids_without_a_token_are_known),
        cmocka_unit_test(what_cannot_be_used_is_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
