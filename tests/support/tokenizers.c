#include "support/tokenizers.h"

#include "support/check.h"
#include "support/lines.h"

struct tokenizer *tokenizer_fixture(struct alloc *alloc, const char *path)
{
    struct err err = {0};
    struct tokenizer *tokenizer = tokenizer_new(alloc, file_system_real(), path, &err);
    if (!tokenizer) print_error("%s\n", err.text);
    assert_non_null(tokenizer);
    return tokenizer;
}

struct json_object *tokenizer_fixture_json(struct alloc *alloc, const char *path)
{
    size_t bytes;
    char *text = fixture_read(alloc, path, &bytes);
    struct json_object *root = fixture_json(alloc, text);
    alloc_put(alloc, text);
    return root;
}

struct tokenizer *tokenizer_from_json(struct alloc *alloc, struct json_object *root, struct err *err)
{
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
    return tokenizer_parse(alloc, "changed.json", text, strlen(text), err);
}

void encode_text(struct encoder *encoder, const char *text, size_t bytes, enum encode_mode mode, struct token_list *out)
{
    struct err err = {0};
    out->n = 0;
    bool ok = encoder_encode(encoder, text, bytes, mode, out, &err);
    if (!ok) print_error("%s\n", err.text);
    assert_true(ok);
}

struct run {
    struct alloc *alloc;
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct token_list got, want;
    struct buf text;
    const char *cases;
    size_t n_failed, show;
};

static bool fails(struct run *run, size_t number, const char *what)
{
    if (run->n_failed < run->show) print_error("%s, line %zu: %s\n", run->cases, number, what);
    return false;
}

static bool same_text(struct run *run, struct json_object *line, const char *key, bool skip_special)
{
    struct err err = {0};
    size_t bytes;
    const char *want = fixture_text(line, key, &bytes);
    buf_clear(&run->text);
    assert_true(detokenizer_decode(run->tokenizer, run->want.ids, run->want.n, skip_special, &run->text, &err));
    return run->text.bytes == bytes && memcmp(run->text.data, want, bytes) == 0;
}

static bool same_bytes(struct run *run, struct json_object *line)
{
    struct err err = {0};
    size_t digits;
    const char *want = fixture_text(line, "bytes", &digits);
    buf_clear(&run->text);
    assert_true(detokenizer_bytes(run->tokenizer, run->want.ids, run->want.n, false, &run->text, &err));
    if (run->text.bytes * 2 != digits) return false;
    for (size_t i = 0; i < run->text.bytes; i++) {
        char hex[3];
        snprintf(hex, sizeof hex, "%02x", (unsigned char)run->text.data[i]);
        if (memcmp(hex, want + 2 * i, 2) != 0) return false;
    }
    return true;
}

static bool run_case(struct run *run, struct json_object *line, size_t number)
{
    struct json_object *ids = json_object_object_get(line, "ids");
    struct err err = {0};
    size_t bytes;
    run->want.n = 0;
    for (size_t i = 0; i < json_object_array_length(ids); i++) {
        uint32_t id = (uint32_t)json_object_get_int64(json_object_array_get_idx(ids, i));
        assert_true(token_list_add(&run->want, &id, 1, &err));
    }
    if (!same_text(run, line, "decoded", false)) return fails(run, number, "another text when decoded");
    if (strcmp(fixture_text(line, "kind", &bytes), "decode") == 0)
        return same_bytes(run, line) || fails(run, number, "other bytes");
    if (!same_text(run, line, "decoded_skip_special", true)) return fails(run, number, "another text without specials");
    const char *text = fixture_text(line, "text", &bytes);
    encode_text(run->encoder, text, bytes, ENCODE_ALL, &run->got);
    return (run->got.n == run->want.n && memcmp(run->got.ids, run->want.ids, run->got.n * sizeof *run->got.ids) == 0) ||
           fails(run, number, text);
}

static void count_case(void *context, struct json_object *line, size_t number)
{
    struct run *run = context;
    if (!run_case(run, line, number)) run->n_failed++;
}

size_t tokenizer_count_failures(struct alloc *alloc, const struct tokenizer *tokenizer, const char *cases, size_t show,
                                size_t *n_cases)
{
    struct err err = {0};
    struct run run = {.alloc = alloc, .tokenizer = tokenizer, .cases = cases, .show = show};
    run.encoder = encoder_new(alloc, tokenizer, NULL, &err);
    assert_non_null(run.encoder);
    token_list_init(&run.got, alloc, 1 << 20);
    token_list_init(&run.want, alloc, 1 << 20);
    buf_init(&run.text, alloc, 1 << 20);
    uint32_t none = 0;
    assert_true(token_list_add(&run.got, &none, 1, &err)); /* so that both have ids to compare */
    assert_true(token_list_add(&run.want, &none, 1, &err));
    assert_true(buf_add_text(&run.text, "", &err));
    *n_cases = fixture_lines(alloc, cases, count_case, &run);
    buf_fini(&run.text);
    token_list_fini(&run.got);
    token_list_fini(&run.want);
    encoder_free(run.encoder);
    return run.n_failed;
}
