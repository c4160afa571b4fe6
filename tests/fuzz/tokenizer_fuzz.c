/* A tokenizer.json from outside, and text from outside.
 *
 * An input that begins with '{' is a tokenizer.json; when it loads, texts are encoded and decoded with it. Any other
 * input is text for a tokenizer of the fixtures: what was encoded must come back, whatever the mode. */
#include "base/utf8.h"
#include "fmt/detokenizer.h"
#include "fmt/tokenizer_encoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "tokenizer_fuzz: this must hold: %s\n", what);
    abort();
}

static void round_trip(struct alloc *alloc, const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    static const enum encode_mode modes[] = {ENCODE_NONE, ENCODE_NON_SPECIAL, ENCODE_ALL};
    struct err err = {0};
    struct token_list ids;
    struct buf whole, stream;
    struct encoder *encoder = encoder_new(alloc, tokenizer, NULL, &err);
    size_t bad;
    must(encoder != NULL, "an encoder is made");
    for (size_t m = 0; m < 3; m++) {
        struct detokenizer detokenizer;
        token_list_init(&ids, alloc, 1 << 24);
        buf_init(&whole, alloc, 1 << 28);
        buf_init(&stream, alloc, 1 << 28);
        bool valid = utf8_check(text, bytes, &bad);
        must(encoder_encode(encoder, text, bytes, modes[m], &ids, &err) == valid,
             "valid UTF-8 is encoded, nothing else");
        must(detokenizer_decode(tokenizer, ids.ids, ids.n, false, &whole, &err), "ids are decoded");
        must(!valid || (whole.bytes == bytes && (bytes == 0 || memcmp(whole.data, text, bytes) == 0)),
             "text comes back");
        detokenizer_init(&detokenizer, tokenizer, false);
        for (size_t i = 0; i < ids.n; i++)
            must(detokenizer_add(&detokenizer, ids.ids[i], &stream, &err), "ids are decoded one by one");
        must(detokenizer_end(&detokenizer, &stream, &err), "a stream ends");
        must(stream.bytes == whole.bytes && (!whole.bytes || memcmp(stream.data, whole.data, whole.bytes) == 0),
             "a stream gives the same");
        buf_fini(&whole);
        buf_fini(&stream);
        token_list_fini(&ids);
    }
    encoder_free(encoder);
}

static void try_file(const char *json, size_t bytes)
{
    static const char text[] =
        "The cat's 12345 \u00e9\u4f60\U0001F600\n\n  <|user|>[gMASK]<think>/nothink aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct alloc alloc = {0};
    struct err err = {0};
    struct tokenizer *tokenizer = tokenizer_parse(&alloc, "fuzz.json", json, bytes, &err);
    must(tokenizer || err.kind == ERR_DATA, "a bad file is ERR_DATA");
    must(tokenizer || (err.text[0] && !strchr(err.text, '\n')), "a refusal is one line");
    if (tokenizer) {
        uint32_t dead[4];
        tokenizer_dead_ids(tokenizer, tokenizer_id_end(tokenizer), dead, 4);
        round_trip(&alloc, tokenizer, text, sizeof text);
        round_trip(&alloc, tokenizer, json, bytes);
    }
    tokenizer_free(tokenizer);
    must(alloc.live == 0, "all memory is given back");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct alloc kept;
    static struct tokenizer *tokenizer;
    struct err err = {0};
    if (!tokenizer)
        tokenizer = tokenizer_new(&kept, file_system_real(), "tests/fixtures/tokenizer/tokenizer-merge.json", &err);
    must(tokenizer != NULL, "the fixture is there: run from the root of the source tree");
    if (bytes > 0 && data[0] == '{') {
        try_file((const char *)data, bytes);
    } else {
        struct alloc alloc = {0};
        round_trip(&alloc, tokenizer, (const char *)data, bytes);
        must(alloc.live == 0, "all memory is given back");
    }
    return 0;
}
