#include "support/constrained.h"

#include "base/buf.h"
#include "fmt/json_doc.h"
#include "support/check.h"

uint32_t numbers_below(struct numbers *numbers, uint32_t n)
{
    return (uint32_t)(philox_unit(numbers->key, numbers->next++) * n);
}

static const char *const pieces[] = {
    "{\"",        "\":",
    "\": ",       "\",",
    "\", \"",     "\"}",
    "\"}}",       "{\n",
    "}\n",        "}",
    "},",         "}, {",
    "[{",         "}]",
    "[[",         "]]",
    "],",         "[]",
    "{}",         "[\"",
    "\"]",        "\"\"",
    "\":\"",      "\": \"",
    "\":{",       "\": {\"",
    "\":[",       "\": [",
    ": ",         ", ",
    ":\n",        ",\n",
    "  ",         "    ",
    "\n  ",       "\n    ",
    "\n\n",       "\t",
    " \"",        " {",
    " [",         " 1",
    " -",         "10",
    "12",         "99",
    "100",        "123",
    "000",        "0.",
    ".5",         "e+",
    "E-",         "1e",
    "-1",         "-0",
    "true",       "false",
    "null",       "tru",
    "ls",         "nul",
    " true",      " null",
    "true}",      "null,",
    "a",          "ab",
    "abc",        "name",
    "\"name",     "name\"",
    "\"name\":",  "\"a\"",
    "\"a\":",     "\"b\":",
    "value",      "age",
    "items",      "id",
    "type",       "kind",
    "next",       "children",
    "foo",        "bar",
    "foo\"",      "ing",
    "tion",       "the",
    " the",       "The",
    "hello",      " world",
    "é",          "ü",
    "日",         "本",
    "日本",       "\xe6\x97",
    "\xa5",       "\xe6",
    "\xf0\x9f",   "\x98\x80",
    "😀",          "\"é",
    "é\"",        "\\n",
    "\\\"",       "\\u",
    "\\u00",      "\\ud8",
    "3d",         "\\ude",
    "00",         "\\\\",
    "\\",         "\\t",
    "-01",        "-0",
    "2024",       "T1",
    "Z\"",        "@",
    ".com",       "://",
    "http",       "192",
    ".0.",        "::",
    "0-",         "-4",
    "f0",         "ff",
    "(",          ")",
    "((",         "))",
    "()",         "+",
    "*",          "x+",
    "+x",         "root",
    "aa",         "aaa",
    "aaaa",       "bb",
    "bbb",        "xyz",
    "0123456789", "                ",
    "abcabcabc",  "color",
    "red",        "green",
    "blue",       "\"red\"",
    "re",         "gre",
    "north",      "south",
    "é日",        "ä",
    "\"ä",        "ß\":",
    "x",          "y",
    "\"x\":1",    "\"x\": 1, \"",
    "1}",         "1,",
    "2]",         "3, 4",
    "5.0",        "get_",
    "weather",    "get_weather",
    "city",       "unit",
    "Paris",      "<tool",
    "_call>",     "</arg_value>",
    "<|user|>",
};

void constrained_init(struct constrained *c)
{
    static char bytes[256];
    struct err err = {0};
    memset(c, 0, sizeof *c);
    for (unsigned b = 0; b < 256; b++) {
        bytes[b] = (char)b;
        c->tokens[b] = (struct token){&bytes[b], 1, TOKEN_BASE};
    }
    uint32_t n = 256;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (pieces[i][1]) c->tokens[n++] = (struct token){pieces[i], (uint32_t)strlen(pieces[i]), TOKEN_BASE};
    assert_true(n < ID_EOS);
    /* Their bytes would be legal in many places; the ids are not. */
    static const char *const control[] = {"<eos>",     "x",          "</think>",    "<tool_call>", "</tool_call>",
                                          "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
    for (uint32_t id = ID_EOS; id < ID_END; id++)
        c->tokens[id] = (struct token){control[id - ID_EOS], (uint32_t)strlen(control[id - ID_EOS]), TOKEN_ADDED};
    c->ids = (struct control_ids){.eos = {ID_EOS, ID_EOS_TOO},
                                  .n_eos = 2,
                                  .think_end = ID_THINK_END,
                                  .tool_call = ID_CALL,
                                  .tool_call_end = ID_CALL_END,
                                  .arg_key = ID_KEY,
                                  .arg_key_end = ID_KEY_END,
                                  .arg_value = ID_VALUE,
                                  .arg_value_end = ID_VALUE_END};
    c->trie = token_trie_of(&c->alloc, c->tokens, ID_END, &err);
    c->cache = c->trie ? mask_cache_new(&c->alloc, c->trie, 1 << 16, &err) : NULL;
    if (!c->cache) fail_msg("%s", err.text);
}

void constrained_fini(struct constrained *c)
{
    mask_cache_free(c->cache);
    token_trie_free(c->trie);
    assert_int_equal(c->alloc.live, 0);
}

struct json_object *json_of(const char *text)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct json_object *doc;
    if (!json_doc_parse(&doc, &alloc, &json_rules_request, "test", text, strlen(text), &err))
        fail_msg("%s in: %s", err.text, text);
    return doc;
}

struct constraint *constrained_schema(struct constrained *c, const char *schema, struct err *err)
{
    struct constraint *constraint;
    struct constraint_request request = {.kind = CONSTRAINT_SCHEMA, .value = json_of(schema)};
    bool ok = constraint_new(&constraint, &c->alloc, &request, &c->ids, err);
    json_object_put(request.value);
    return ok ? constraint : NULL;
}

struct constraint *constrained_kind(struct constrained *c, enum constraint_kind kind, const char *text, struct err *err)
{
    struct constraint *constraint;
    struct constraint_request request = {.kind = kind, .text = text, .bytes = text ? strlen(text) : 0};
    if (kind == CONSTRAINT_CHOICE) request.value = json_of(text);
    bool ok = constraint_new(&constraint, &c->alloc, &request, &c->ids, err);
    json_object_put(request.value);
    return ok ? constraint : NULL;
}

struct matcher *constrained_start(struct constrained *c, struct constraint *constraint)
{
    struct err err = {0};
    const struct matcher_rules rules = {constraint, c->cache, &c->ids, false};
    assert_non_null(constraint);
    struct matcher *m = matcher_new(&c->alloc, &rules, &err);
    if (!m) fail_msg("%s", err.text);
    constraint_drop(constraint);
    return m;
}

size_t matcher_feed(struct matcher *m, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err err = {0};
        bool taken;
        if (!matcher_advance(m, (unsigned char)text[i], &taken, &err)) fail_msg("%s", err.text);
        if (!taken) return i;
    }
    return n;
}

bool constrained_takes(struct constrained *c, struct constraint *constraint, const char *text, size_t n)
{
    struct matcher *m = constrained_start(c, constraint_hold(constraint));
    bool takes = matcher_feed(m, text, n) == n && matcher_accepts(m);
    matcher_free(m);
    return takes;
}

void brute_mask(struct constrained *c, const struct matcher *m, struct matcher *scratch, uint64_t *mask)
{
    struct err err = {0};
    memset(mask, 0, token_trie_words(c->trie) * sizeof *mask);
    for (uint32_t id = 0; id < ID_END; id++) {
        bool taken = false;
        const struct token *token = &c->tokens[id];
        assert_true(matcher_copy(scratch, m, &err));
        if (token->kind == TOKEN_BASE)
            taken = matcher_feed(scratch, token->bytes, token->n_bytes) == token->n_bytes;
        else if (token->kind == TOKEN_ADDED)
            assert_true(matcher_advance(scratch, id, &taken, &err));
        if (taken) mask[id / 64] |= UINT64_C(1) << (id % 64);
    }
}

static void compare_masks(struct constrained *c, const struct matcher *m, struct matcher *scratch, const uint64_t *mask,
                          const struct buf *out)
{
    uint64_t want[VOCABULARY_MAX / 64 + 1];
    brute_mask(c, m, scratch, want);
    for (uint32_t id = 0; id < ID_END; id++) {
        bool have = mask[id / 64] >> (id % 64) & 1, brute = want[id / 64] >> (id % 64) & 1;
        if (have == brute) continue;
        fail_msg("behind \"%s\" token %u \"%.*s\" is %s, brute force says otherwise", out->data ? out->data : "", id,
                 (int)c->tokens[id].n_bytes, c->tokens[id].bytes, have ? "allowed" : "not allowed");
    }
}

/* How eager a walk that should end is to take a token: what closes something is best. */
static uint32_t eagerness(const struct token *token)
{
    char last = token->bytes[token->n_bytes - 1];
    if (token->n_bytes == 1 && last == '"') return 4;
    if (token->n_bytes == 1 && (last == '}' || last == ']')) return 3;
    return last == '}' || last == ']' || last == '"' ? 2 : 1;
}

static bool choose(struct constrained *c, const uint64_t *mask, bool in_haste, struct numbers *numbers, uint32_t *id)
{
    uint32_t allowed[ID_END], n = 0, best = 0;
    for (uint32_t i = 0; i < ID_END; i++) {
        if (!(mask[i / 64] >> (i % 64) & 1)) continue;
        if (in_haste && control_ids_ends(&c->ids, i)) {
            *id = i;
            return true;
        }
        uint32_t eager = in_haste ? eagerness(&c->tokens[i]) : 0;
        if (eager < best) continue;
        if (eager > best) n = 0;
        best = eager;
        allowed[n++] = i;
    }
    if (n == 0) return false;
    *id = allowed[numbers_below(numbers, n)];
    return true;
}

bool constrained_walk(struct constrained *c, struct constraint *constraint, struct walk *walk)
{
    struct err err = {0};
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    struct matcher *m = constrained_start(c, constraint_hold(constraint));
    struct matcher *scratch = constrained_start(c, constraint_hold(constraint));
    bool whole = false;
    for (uint32_t n = 0; n < walk->n_max && !whole; n++) {
        uint32_t id = 0;
        bool taken;
        if (matcher_is_complete(m)) {
            whole = true;
            break;
        }
        if (!matcher_allowed(m, mask, &err)) fail_msg("%s behind \"%s\"", err.text, walk->out->data);
        if (walk->check_every && n % walk->check_every == 0) {
            compare_masks(c, m, scratch, mask, walk->out);
            walk->n_checked++;
        }
        if (!choose(c, mask, n >= walk->n_free, walk->numbers, &id))
            fail_msg("nothing is allowed behind \"%s\"", walk->out->data ? walk->out->data : "");
        if (!matcher_advance(m, id, &taken, &err) || !taken) fail_msg("token %u was allowed but not taken", id);
        if (control_ids_ends(&c->ids, id))
            whole = true;
        else
            assert_true(buf_add(walk->out, c->tokens[id].bytes, c->tokens[id].n_bytes, &err));
        walk->n_tokens++;
    }
    matcher_free(m);
    matcher_free(scratch);
    return whole;
}
