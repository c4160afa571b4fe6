#ifndef SUPPORT_TOKENIZERS_H
#define SUPPORT_TOKENIZERS_H
/* The tokenizers of the fixtures, whole or changed. */
#include "fmt/detokenizer.h"
#include "fmt/tokenizer_encoder.h"
#include <json-c/json.h>

#define TOKENIZER_IGNORE "tests/fixtures/tokenizer/tokenizer.json"      /* ignore_merges true, digits never merge */
#define TOKENIZER_MERGE "tests/fixtures/tokenizer/tokenizer-merge.json" /* ignore_merges false */
#define CASES_IGNORE "tests/fixtures/tokenizer/cases.jsonl"
#define CASES_MERGE "tests/fixtures/tokenizer/cases-merge.jsonl"

/* The test fails when it cannot be read. */
struct tokenizer *tokenizer_fixture(struct alloc *alloc, const char *path);

/* The file as JSON, to be changed; json_object_put gives it back. */
struct json_object *tokenizer_fixture_json(struct alloc *alloc, const char *path);

/* From changed JSON; NULL and *err when it is refused. */
struct tokenizer *tokenizer_from_json(struct alloc *alloc, struct json_object *root, struct err *err);

/* Runs every case of a file and returns how many failed; prints the first `show` of them. *n_cases: how many ran. */
size_t tokenizer_count_failures(struct alloc *alloc, const struct tokenizer *tokenizer, const char *cases, size_t show,
                                size_t *n_cases);

/* Ids of a text; the test fails when it cannot be encoded. */
void encode_text(struct encoder *encoder, const char *text, size_t bytes, enum encode_mode mode,
                 struct token_list *out);

#endif
