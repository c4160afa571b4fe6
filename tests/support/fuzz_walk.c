#include "support/fuzz_walk.h"

#include "base/philox.h"
#include "gram/matcher.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {"{\"",   "\":",  "\"}",  "ab",  "\"a", "\", \"", "é",    "\xc3",
                                     "日本",  "  ",   "\n  ", "12",  "0.",  "true",   "]}",   "[[",
                                     "\\u00", "\\\"", "((",   "aaa", "x",   "\"x\":", "null,"};
enum { N_PIECES = sizeof pieces / sizeof *pieces, EOS = 256 + N_PIECES, N_IDS };

struct vocabulary {
    struct alloc alloc;
    char bytes[256];
    struct token tokens[N_IDS];
    struct token_trie *trie;
};

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz_walk: this must hold: %s\n", what);
    abort();
}

static void vocabulary_init(struct vocabulary *v)
{
    struct err err = {0};
    for (unsigned b = 0; b < 256; b++) {
        v->bytes[b] = (char)b;
        v->tokens[b] = (struct token){&v->bytes[b], 1, TOKEN_BASE};
    }
    for (uint32_t i = 0; i < N_PIECES; i++)
        v->tokens[256 + i] = (struct token){pieces[i], (uint32_t)strlen(pieces[i]), TOKEN_BASE};
    v->trie = token_trie_of(&v->alloc, v->tokens, N_IDS, &err);
    must(v->trie != NULL, "there is memory for a vocabulary");
}

static bool has(const uint64_t *mask, uint32_t id)
{
    return mask[id / 64] >> (id % 64) & 1;
}

/* A runtime limit ends a walk like any request. */
static bool limit(const struct err *err)
{
    must(err->kind == ERR_FAILED && strncmp(err->text, "grammar_limit: ", 15) == 0, "only limits fail");
    return false;
}

static bool step(struct matcher *m, struct matcher *copy, uint64_t key, uint32_t n)
{
    uint64_t mask[N_IDS / 64 + 1];
    struct err err = {0};
    bool taken;
    uint32_t allowed[N_IDS], n_allowed = 0;
    if (!matcher_allowed(m, mask, &err)) return limit(&err);
    for (uint32_t id = 0; id < N_IDS; id++)
        if (has(mask, id)) allowed[n_allowed++] = id;
    must(n_allowed > 0, "something is allowed");
    must(has(mask, EOS) == matcher_accepts(m), "an answer may end when it is whole");
    uint32_t any = (uint32_t)(philox_unit(key, 2 * n) * N_IDS);
    must(matcher_copy(copy, m, &err), "a copy is made");
    if (!matcher_advance(copy, any, &taken, &err)) return limit(&err);
    must(taken == has(mask, any), "a mask agrees with a step");
    uint32_t id = allowed[(uint32_t)(philox_unit(key, 2 * n + 1) * n_allowed)];
    if (!matcher_advance(m, id, &taken, &err)) return limit(&err);
    must(taken, "what is allowed is taken");
    return id != EOS && !matcher_is_complete(m);
}

static void walk(struct vocabulary *v, struct constraint *constraint, const struct control_ids *ids)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct mask_cache *cache = mask_cache_new(&alloc, v->trie, 1 << 16, &err);
    const struct matcher_rules rules = {constraint, cache, ids, false};
    struct matcher *m = cache ? matcher_new(&alloc, &rules, &err) : NULL;
    struct matcher *copy = m ? matcher_new(&alloc, &rules, &err) : NULL;
    if (!copy) (void)limit(&err);
    for (uint32_t n = 0; copy && n < 40; n++)
        if (matcher_is_complete(m) || !step(m, copy, 1, n)) break;
    matcher_free(m);
    matcher_free(copy);
    mask_cache_free(cache);
    must(alloc.live == 0, "all memory of a walk is given back");
}

void fuzz_walk(struct constraint_request *request)
{
    static struct vocabulary vocabulary;
    struct alloc alloc = {0};
    struct err err = {0};
    struct constraint *constraint = NULL;
    struct control_ids ids = {.eos = {EOS}, .n_eos = 1, .think_end = CONTROL_NO_ID, .tool_call = CONTROL_NO_ID};
    if (!vocabulary.trie) vocabulary_init(&vocabulary);
    if (constraint_new(&constraint, &alloc, request, &ids, &err)) {
        walk(&vocabulary, constraint, &ids);
        constraint_drop(constraint);
    } else {
        must(err.kind == ERR_USER, "a refusal is ERR_USER");
        must(strncmp(err.text, "invalid_schema: ", 16) == 0 || strncmp(err.text, "unsupported_schema: ", 20) == 0,
             "a refusal begins with its code");
        must(!strchr(err.text, '\n'), "a refusal is one line");
    }
    must(alloc.live == 0, "all memory is given back");
}
