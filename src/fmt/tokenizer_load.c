/* From the JSON of a tokenizer.json to the tables of a struct tokenizer: vocabulary, merges, added tokens. The rules
 * around them (how text is split, what is put in front) are in tokenizer_rules.c. */
#include "base/assert.h"
#include "base/utf8.h"
#include "fmt/json_doc.h"
#include "fmt/tokenizer_int.h"
#include "plat/heap.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

/* GLM-5.2's file has about 1.2 million values when its merges are arrays. */
static const struct json_rules rules = {
    .kind = ERR_DATA, .bytes_max = TOKENIZER_FILE_BYTES_MAX, .values_max = 4 * TOKENIZER_ID_END};

#define ARENA_BYTES_MAX (UINT64_C(1) << 30)

/* --- The alphabet of the file: each byte is one printable code point. Those that are printable in Latin-1 stand for
 * themselves, the other 68 for U+0100 and up, in ascending order. */
#define ALPHABET_END 0x144

struct alphabet {
    short byte_of[ALPHABET_END]; /* -1: stands for no byte */
};

static void alphabet_init(struct alphabet *alphabet)
{
    int code_point = 0x100;
    for (int i = 0; i < ALPHABET_END; i++) alphabet->byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        alphabet->byte_of[itself ? byte : code_point++] = (short)byte;
    }
    ASSERT(code_point == ALPHABET_END);
}

/* Writes the bytes that a token string stands for, never more than it has itself. False: the offending offset is in
 * *bad. The text is valid UTF-8, as the JSON parser made sure. */
static bool alphabet_decode(const struct alphabet *alphabet, const char *text, size_t bytes, char *out, uint32_t *n_out,
                            size_t *bad)
{
    uint32_t n = 0;
    for (size_t at = 0, used; at < bytes; at += used) {
        uint32_t code;
        enum utf8_kind kind = utf8_next(text + at, bytes - at, &code, &used);
        *bad = at;
        if (kind != UTF8_VALID || code >= ALPHABET_END || alphabet->byte_of[code] < 0) return false;
        out[n++] = (char)alphabet->byte_of[code];
    }
    *n_out = n;
    return true;
}

/* --- What loading needs only while it lasts. */
struct loader {
    struct tokenizer *tokenizer;
    struct alphabet alphabet;
    struct json_object *vocab, *merges, *added; /* added: NULL when the file has none */
    uint64_t vocab_bytes, added_bytes;          /* of the strings in the file */
    uint32_t n_vocab, n_added;
    uint32_t used; /* of tokenizer->bytes */
    char *product; /* [2 * TOKENIZER_TOKEN_BYTES_MAX] */
};

static bool get_id(struct json_object *value, uint32_t *id)
{
    if (!json_object_is_type(value, json_type_int)) return false;
    int64_t number = json_object_get_int64(value);
    if (number < 0 || number >= TOKENIZER_ID_END) return false;
    *id = (uint32_t)number;
    return true;
}

static bool measure_vocab(struct loader *loader, struct err *err)
{
    struct json_object_iterator at = json_object_iter_begin(loader->vocab), end = json_object_iter_end(loader->vocab);
    if (json_object_object_length(loader->vocab) > (int)TOKENIZER_ID_END)
        return load_refuse(err, "model.vocab", "%d entries, more than %u", json_object_object_length(loader->vocab),
                           TOKENIZER_ID_END);
    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *key = json_object_iter_peek_name(&at);
        size_t bytes = strlen(key);
        uint32_t id;
        if (bytes == 0) return load_refuse(err, "model.vocab", "an empty token string");
        if (bytes > TOKENIZER_TOKEN_BYTES_MAX)
            return load_refuse(err, "model.vocab", "the token string %s is %zu bytes long, more than %u",
                               load_quote(key, bytes).text, bytes, TOKENIZER_TOKEN_BYTES_MAX);
        if (!get_id(json_object_iter_peek_value(&at), &id))
            return load_refuse(err, "model.vocab", "the id of %s is %s, not a whole number from 0 to %u",
                               load_quote(key, bytes).text, load_quote_json(json_object_iter_peek_value(&at)).text,
                               TOKENIZER_ID_END - 1);
        if (id >= loader->tokenizer->id_end) loader->tokenizer->id_end = id + 1;
        loader->vocab_bytes += bytes;
        loader->n_vocab++;
    }
    return true;
}

static bool measure_added_one(struct loader *loader, struct json_object *entry, const char *path, struct err *err)
{
    static const char *const unsupported[] = {"lstrip", "rstrip", "single_word", "normalized"};
    struct json_object *value;
    uint32_t id;
    if (!json_object_is_type(entry, json_type_object)) return load_refuse(err, path, "not an object");
    value = json_object_object_get(entry, "content");
    if (!json_object_is_type(value, json_type_string)) return load_refuse(err, path, "its content is not a string");
    int bytes = json_object_get_string_len(value);
    struct quoted content = load_quote(json_object_get_string(value), (size_t)bytes);
    if (bytes == 0 || bytes > (int)TOKENIZER_ADDED_BYTES_MAX)
        return load_refuse(err, path, "its content %s is %d bytes long, which must be 1 to %u", content.text, bytes,
                           TOKENIZER_ADDED_BYTES_MAX);
    if (!get_id(json_object_object_get(entry, "id"), &id))
        return load_refuse(err, path, "the id of %s is not a whole number from 0 to %u", content.text,
                           TOKENIZER_ID_END - 1);
    if (!json_object_is_type(json_object_object_get(entry, "special"), json_type_boolean))
        return load_refuse(err, path, "%s does not say whether it is special (true or false)", content.text);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        value = json_object_object_get(entry, unsupported[i]);
        if (!value) continue;
        if (!json_object_is_type(value, json_type_boolean) || json_object_get_boolean(value))
            return load_refuse(err, path, "%s of %s is not false, which is not implemented", unsupported[i],
                               content.text);
    }
    if (id >= loader->tokenizer->id_end) loader->tokenizer->id_end = id + 1;
    loader->added_bytes += (uint64_t)bytes;
    return true;
}

static bool measure_added(struct loader *loader, struct err *err)
{
    if (!loader->added) return true;
    if (json_object_array_length(loader->added) > TOKENIZER_ID_END)
        return load_refuse(err, "added_tokens", "more than %u entries", TOKENIZER_ID_END);
    loader->n_added = (uint32_t)json_object_array_length(loader->added);
    for (uint32_t i = 0; i < loader->n_added; i++) {
        char path[48];
        snprintf(path, sizeof path, "added_tokens[%" PRIu32 "]", i);
        if (!measure_added_one(loader, json_object_array_get_idx(loader->added, i), path, err)) return false;
    }
    return true;
}

static bool get_tables(struct loader *loader, struct err *err)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    struct arena *arena = &tokenizer->arena;
    tokenizer->spans = arena_get_array(arena, tokenizer->id_end, sizeof *tokenizer->spans, err);
    if (!tokenizer->spans) return false;
    tokenizer->kinds = arena_get(arena, tokenizer->id_end, err); /* zero: all dead */
    if (!tokenizer->kinds) return false;
    tokenizer->bytes = arena_get(arena, loader->vocab_bytes + loader->added_bytes, err);
    if (!tokenizer->bytes) return false;
    if (!vocab_table_init(&tokenizer->vocab, arena, loader->n_vocab, err)) return false;
    tokenizer->vocab.spans = tokenizer->spans;
    tokenizer->vocab.bytes = tokenizer->bytes;
    if (!merge_table_init(&tokenizer->merges, arena, (uint32_t)json_object_array_length(loader->merges), err))
        return false;
    return trie_init(&tokenizer->added, arena, loader->added_bytes, err);
}

static bool fill_vocab(struct loader *loader, struct err *err)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    struct json_object_iterator at = json_object_iter_begin(loader->vocab), end = json_object_iter_end(loader->vocab);
    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *key = json_object_iter_peek_name(&at);
        size_t bytes = strlen(key), bad;
        uint32_t id = (uint32_t)json_object_get_int64(json_object_iter_peek_value(&at)), n;
        if (!alphabet_decode(&loader->alphabet, key, bytes, tokenizer->bytes + loader->used, &n, &bad))
            return load_refuse(err, "model.vocab", "%s (id %" PRIu32 ") is outside the byte alphabet at its byte %zu",
                               load_quote(key, bytes).text, id, bad);
        if (tokenizer->kinds[id] != TOKEN_DEAD)
            return load_refuse(err, "model.vocab", "%s has id %" PRIu32 ", which another token has too",
                               load_quote(key, bytes).text, id);
        tokenizer->spans[id] = (struct span){loader->used, n};
        tokenizer->kinds[id] = TOKEN_BASE;
        loader->used += n;
        if (!vocab_table_add(&tokenizer->vocab, id, err)) return err_context(err, "model.vocab");
    }
    for (int byte = 0; byte < 256; byte++) {
        char one = (char)byte;
        tokenizer->byte_ids[byte] = vocab_table_find(&tokenizer->vocab, vocab_hash(&one, 1), &one, 1);
        if (tokenizer->byte_ids[byte] == NO_ID)
            return load_refuse(err, "model.vocab", "has no token for the single byte 0x%02x", byte);
    }
    return true;
}

/* The two parts of a merge, in either form of the file. */
struct part {
    const char *text;
    size_t bytes;
};

static bool get_parts(struct json_object *entry, struct part part[2])
{
    if (json_object_is_type(entry, json_type_string)) {
        const char *text = json_object_get_string(entry);
        size_t bytes = (size_t)json_object_get_string_len(entry);
        const char *space = memchr(text, ' ', bytes);
        if (!space) return false;
        part[0] = (struct part){text, (size_t)(space - text)};
        part[1] = (struct part){space + 1, bytes - part[0].bytes - 1};
        return !memchr(part[1].text, ' ', part[1].bytes);
    }
    if (!json_object_is_type(entry, json_type_array) || json_object_array_length(entry) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        struct json_object *text = json_object_array_get_idx(entry, i);
        if (!json_object_is_type(text, json_type_string)) return false;
        part[i] = (struct part){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
    }
    return true;
}

static bool fill_merge(struct loader *loader, struct json_object *entry, uint32_t rank, struct err *err)
{
    const struct vocab_table *vocab = &loader->tokenizer->vocab;
    struct part part[2];
    uint32_t ids[2], total = 0;
    char path[48];
    snprintf(path, sizeof path, "model.merges[%" PRIu32 "]", rank);
    if (!get_parts(entry, part))
        return load_refuse(err, path, "neither two strings in an array nor one string with one space");
    for (size_t i = 0; i < 2; i++) {
        uint32_t n;
        size_t bad;
        ids[i] = NO_ID;
        if (part[i].bytes <= TOKENIZER_TOKEN_BYTES_MAX &&
            alphabet_decode(&loader->alphabet, part[i].text, part[i].bytes, loader->product + total, &n, &bad)) {
            ids[i] = vocab_table_find(vocab, vocab_hash(loader->product + total, n), loader->product + total, n);
            total += n;
        }
        if (ids[i] == NO_ID)
            return load_refuse(err, path, "%s is not in model.vocab", load_quote(part[i].text, part[i].bytes).text);
    }
    uint32_t product = vocab_table_find(vocab, vocab_hash(loader->product, total), loader->product, total);
    if (product == NO_ID)
        return load_refuse(err, path, "%s and %s are in model.vocab, but not both together",
                           load_quote(part[0].text, part[0].bytes).text, load_quote(part[1].text, part[1].bytes).text);
    struct merge_slot merge = {.left = ids[0], .right = ids[1], .rank = rank, .product = product};
    return merge_table_add(&loader->tokenizer->merges, merge, err) || err_context(err, "%s", path);
}

static bool fill_merges(struct loader *loader, struct err *err)
{
    uint32_t n = (uint32_t)json_object_array_length(loader->merges);
    for (uint32_t rank = 0; rank < n; rank++)
        if (!fill_merge(loader, json_object_array_get_idx(loader->merges, rank), rank, err)) return false;
    return true;
}

/* The base token whose string in the file is this content. Only what is printable ASCII is written the same in both. */
static uint32_t find_literal(const struct vocab_table *vocab, const char *content, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (content[i] < 0x21 || content[i] > 0x7e) return NO_ID;
    return vocab_table_find(vocab, vocab_hash(content, bytes), content, bytes);
}

/* An added token may stand in the vocabulary too, with the same id; anything else would leave two meanings of an id or
 * two ids of a text. */
static bool fill_added_one(struct loader *loader, struct json_object *entry, const char *path, struct err *err)
{
    struct tokenizer *tokenizer = loader->tokenizer;
    struct json_object *text = json_object_object_get(entry, "content");
    const char *content = json_object_get_string(text);
    uint32_t bytes = (uint32_t)json_object_get_string_len(text);
    uint32_t id = (uint32_t)json_object_get_int64(json_object_object_get(entry, "id"));
    bool special = json_object_get_boolean(json_object_object_get(entry, "special"));
    struct quoted quoted = load_quote(content, bytes);
    uint32_t base = find_literal(&tokenizer->vocab, content, bytes);

    if (base != NO_ID && base != id)
        return load_refuse(err, path, "%s has id %" PRIu32 " here and id %" PRIu32 " in model.vocab", quoted.text, id,
                           base);
    if (base == NO_ID && tokenizer->kinds[id] != TOKEN_DEAD)
        return load_refuse(err, path, "%s has id %" PRIu32 ", which another token has too", quoted.text, id);
    if (!trie_add(&tokenizer->added, content, bytes, id, special))
        return load_refuse(err, path, "%s was in an entry before", quoted.text);
    if (base == NO_ID) {
        memcpy(tokenizer->bytes + loader->used, content, bytes);
        tokenizer->spans[id] = (struct span){loader->used, bytes};
        loader->used += bytes;
    }
    tokenizer->kinds[id] = special ? TOKEN_SPECIAL : TOKEN_ADDED;
    return true;
}

static bool fill_added(struct loader *loader, struct err *err)
{
    for (uint32_t i = 0; i < loader->n_added; i++) {
        char path[48];
        snprintf(path, sizeof path, "added_tokens[%" PRIu32 "]", i);
        if (!fill_added_one(loader, json_object_array_get_idx(loader->added, i), path, err)) return false;
    }
    return true;
}

/* Members of the model that must be absent, null, or empty, because they change how a piece is merged. */
static bool check_model(struct json_object *model, struct err *err)
{
    static const char *const unsupported[] = {"unk_token", "continuing_subword_prefix", "end_of_word_suffix", "dropout",
                                              "byte_fallback"};
    struct json_object *type = json_object_object_get(model, "type");
    if (!json_object_is_type(type, json_type_string) || strcmp(json_object_get_string(type), "BPE") != 0)
        return load_refuse(err, "model.type", "is %s, only \"BPE\" is implemented", load_quote_json(type).text);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        struct json_object *value = json_object_object_get(model, unsupported[i]);
        bool empty = !value ||
                     (json_object_is_type(value, json_type_string) && json_object_get_string_len(value) == 0) ||
                     (json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value)) ||
                     ((json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double)) &&
                      json_object_get_double(value) == 0);
        char path[48];
        snprintf(path, sizeof path, "model.%s", unsupported[i]);
        if (!empty) return load_refuse(err, path, "is %s, which is not implemented", load_quote_json(value).text);
    }
    return true;
}

static bool load_model(struct loader *loader, struct json_object *root, struct err *err)
{
    struct json_object *model = json_object_object_get(root, "model"), *ignore;
    if (!json_object_is_type(model, json_type_object)) return load_refuse(err, "model", "missing, or not an object");
    if (!check_model(model, err)) return false;
    ignore = json_object_object_get(model, "ignore_merges");
    if (ignore && !json_object_is_type(ignore, json_type_boolean))
        return load_refuse(err, "model.ignore_merges", "is neither true nor false");
    loader->tokenizer->ignore_merges = ignore && json_object_get_boolean(ignore);

    loader->vocab = json_object_object_get(model, "vocab");
    loader->merges = json_object_object_get(model, "merges");
    if (!json_object_is_type(loader->vocab, json_type_object))
        return load_refuse(err, "model.vocab", "missing, or not an object");
    if (!json_object_is_type(loader->merges, json_type_array))
        return load_refuse(err, "model.merges", "missing, or not an array");
    if (json_object_array_length(loader->merges) > TOKENIZER_ID_END)
        return load_refuse(err, "model.merges", "%zu entries, more than %u", json_object_array_length(loader->merges),
                           TOKENIZER_ID_END);
    loader->added = json_object_object_get(root, "added_tokens");
    if (loader->added && !json_object_is_type(loader->added, json_type_array))
        return load_refuse(err, "added_tokens", "not an array");

    return measure_vocab(loader, err) && measure_added(loader, err) && get_tables(loader, err) &&
           fill_vocab(loader, err) && fill_merges(loader, err) && fill_added(loader, err);
}

static bool load_tokenizer(struct tokenizer *tokenizer, struct json_object *root, struct err *err)
{
    struct loader loader = {.tokenizer = tokenizer};
    bool ok = false;
    if (!json_object_is_type(root, json_type_object)) return load_refuse(err, "top level", "not a JSON object");
    alphabet_init(&loader.alphabet);
    /* The cheap checks come first: a file of another family is refused for what it is. */
    if (!load_check_normalizer(root, err)) goto done;
    if (!load_pre_tokenizer(tokenizer, root, err)) goto done;
    if (!load_check_decoder(root, err)) goto done;
    loader.product = alloc_get(tokenizer->alloc, 2 * TOKENIZER_TOKEN_BYTES_MAX, err);
    if (!loader.product) goto done;
    if (!load_model(&loader, root, err)) goto done;
    ok = load_post_processor(tokenizer, root, err);
done:
    alloc_put(tokenizer->alloc, loader.product);
    return ok;
}

struct tokenizer *tokenizer_parse(struct alloc *alloc, const char *name, const char *json, size_t bytes,
                                  struct err *err)
{
    struct tokenizer *tokenizer = NULL;
    struct json_object *root;
    if (!json_doc_parse(&root, alloc, &rules, name, json, bytes, err)) return NULL;
    tokenizer = alloc_get(alloc, sizeof *tokenizer, err);
    if (!tokenizer) goto fail;
    tokenizer->alloc = alloc;
    arena_init(&tokenizer->arena, alloc, ARENA_BYTES_MAX);
    if (!load_tokenizer(tokenizer, root, err)) goto fail;
    json_object_put(root);
    return tokenizer;
fail:
    err_context(err, "%s", name);
    tokenizer_free(tokenizer);
    json_object_put(root);
    return NULL;
}

/* The JSON tree is several times the file, and only there while it is read: its memory goes back to the system. */
struct tokenizer *tokenizer_new(struct alloc *alloc, struct file_system fs, const char *path, struct err *err)
{
    size_t bytes;
    char *json = file_read_all(alloc, fs, path, TOKENIZER_FILE_BYTES_MAX, &bytes, err);
    if (!json) return NULL;
    struct tokenizer *tokenizer = tokenizer_parse(alloc, path, json, bytes, err);
    alloc_put(alloc, json);
    heap_give_back();
    return tokenizer;
}
