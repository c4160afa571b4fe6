#include "gram/token_trie.h"

#include "base/utf8.h"
#include "gram/grow.h"
#include "gram/text_kinds.h"
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1 << 28 };

static int by_bytes(const struct token *a, const struct token *b)
{
    uint32_t n = a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes;
    int order = memcmp(a->bytes, b->bytes, n);
    return order ? order : (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

/* Merges runs of doubling length: stable, so equal tokens stay in ascending order of ids. */
static bool sort_ids(struct token_trie *trie, struct err *err)
{
    uint32_t n = trie->n_ids, *from = trie->ids, *to = alloc_get_array(trie->alloc, n, sizeof *to, err);
    uint32_t *other = to;
    if (!to) return false;
    for (uint32_t run = 1; run < n; run *= 2) {
        for (uint32_t start = 0; start < n; start += 2 * run) {
            uint32_t middle = n - start < run ? n : start + run, end = n - middle < run ? n : middle + run;
            uint32_t a = start, b = middle, out = start;
            while (a < middle || b < end) {
                bool take_b = a == middle || (b < end && by_bytes(&trie->tokens[from[b]], &trie->tokens[from[a]]) < 0);
                to[out++] = take_b ? from[b++] : from[a++];
            }
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from == other) memcpy(trie->ids, other, n * sizeof *other);
    alloc_put(trie->alloc, other);
    return true;
}

static uint32_t common_bytes(const struct token *a, const struct token *b)
{
    uint32_t n = 0;
    while (n < a->n_bytes && n < b->n_bytes && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Lays out the nodes for sorted ids: each token adds those behind what it shares with the one before. open[d] is the
 * node at depth d of the current token. */
static bool lay_out(struct token_trie *trie, uint32_t *open, uint32_t nodes_room, struct err *err)
{
    const struct grow nodes = {trie->alloc, "nodes of a vocabulary", NODES_MAX};
    uint32_t depth = 0, bytes_room = 0;
    struct token none = {0};
    const struct token *before = &none;
    trie->n_nodes = 1;
    if (!grow_room(&nodes, &trie->nodes, &nodes_room, 2, sizeof *trie->nodes, err) ||
        !grow_room(&nodes, &trie->bytes, &bytes_room, 1, 1, err))
        return false;
    for (uint32_t i = 0; i < trie->n_ids; i++) {
        const struct token *token = &trie->tokens[trie->ids[i]];
        uint64_t need = (uint64_t)trie->n_nodes + token->n_bytes + 1;
        if (!grow_room(&nodes, &trie->nodes, &nodes_room, need, sizeof *trie->nodes, err) ||
            !grow_room(&nodes, &trie->bytes, &bytes_room, need, 1, err))
            return false;
        uint32_t shared = common_bytes(before, token);
        while (depth > shared) trie->nodes[open[depth--]].end = trie->n_nodes;
        while (depth < token->n_bytes) {
            uint32_t node = trie->n_nodes++;
            trie->bytes[node] = (uint8_t)token->bytes[depth];
            trie->nodes[node].first = i;
            open[++depth] = node;
        }
        before = token;
    }
    while (depth > 0) trie->nodes[open[depth--]].end = trie->n_nodes;
    trie->nodes[0] = (struct token_trie_node){.end = trie->n_nodes};
    trie->nodes[trie->n_nodes] = (struct token_trie_node){.first = trie->n_ids};
    return true;
}

/* The kinds of text behind each byte of a token, where a character begins there and all that follow are whole. */
static void kinds_behind(const struct token *token, uint16_t *behind)
{
    uint32_t n = token->n_bytes, code;
    size_t used, valid = 0;
    while (valid < n && utf8_next(token->bytes + valid, n - valid, &code, &used) == UTF8_VALID) valid += used;
    uint16_t kinds = valid < n ? 1u << KIND_BROKEN : 0;
    for (uint32_t depth = n; depth > 0; depth--) {
        uint8_t byte = (uint8_t)token->bytes[depth - 1];
        bool is_inside = depth < n && ((uint8_t)token->bytes[depth] & 0xC0) == 0x80;
        behind[depth] = is_inside || depth > valid ? kinds | 1u << KIND_BROKEN : kinds;
        if (depth > valid) continue;
        if (byte < 0x80)
            kinds |= (uint16_t)(1u << text_kind_of(byte));
        else
            kinds |= 1u << KIND_CHARACTER;
    }
}

static void note_chars(struct token_trie *trie, uint32_t i)
{
    const struct token *token = &trie->tokens[trie->ids[i]];
    uint32_t n = 0;
    for (uint32_t k = 0; k < token->n_bytes; k++) n += ((uint8_t)token->bytes[k] & 0xC0) != 0x80;
    trie->chars[i] = n < UINT8_MAX ? (uint8_t)n : UINT8_MAX;
}

/* Goes along each token once more and notes what it has behind each of its nodes. path[d] is the node at depth d. */
static bool note_below(struct token_trie *trie, uint32_t *path, struct err *err)
{
    trie->kinds_below = alloc_get_array(trie->alloc, trie->n_nodes, sizeof *trie->kinds_below, err);
    trie->bytes_below = trie->kinds_below ? alloc_get(trie->alloc, trie->n_nodes, err) : NULL;
    trie->chars = trie->bytes_below ? alloc_get_array(trie->alloc, trie->n_ids, 1, err) : NULL;
    uint16_t *behind = trie->chars ? alloc_get_array(trie->alloc, trie->depth_max + 1, sizeof *behind, err) : NULL;
    if (!behind) return false;
    uint32_t node = 0, depth = 0;
    const struct token *before = &(struct token){0};
    for (uint32_t i = 0; i < trie->n_ids; i++) {
        const struct token *token = &trie->tokens[trie->ids[i]];
        for (depth = common_bytes(before, token); depth < token->n_bytes; depth++) path[depth + 1] = ++node;
        kinds_behind(token, behind);
        for (depth = 1; depth <= token->n_bytes; depth++) {
            uint32_t bytes = token->n_bytes - depth, at = path[depth];
            if (depth < token->n_bytes) trie->kinds_below[at] |= behind[depth];
            if (bytes > UINT8_MAX) bytes = UINT8_MAX;
            if (bytes > trie->bytes_below[at]) trie->bytes_below[at] = (uint8_t)bytes;
        }
        note_chars(trie, i);
        before = token;
    }
    alloc_put(trie->alloc, behind);
    return true;
}

static bool fill(struct token_trie *trie, struct err *err)
{
    trie->ids = alloc_get_array(trie->alloc, trie->id_end, sizeof *trie->ids, err);
    if (!trie->ids) return false;
    for (uint32_t id = 0; id < trie->id_end; id++) {
        const struct token *token = &trie->tokens[id];
        if (token->n_bytes == 0) continue;
        trie->ids[trie->n_ids++] = id;
        if (token->n_bytes > trie->depth_max) trie->depth_max = token->n_bytes;
    }
    uint32_t *open = alloc_get_array(trie->alloc, (uint64_t)trie->depth_max + 1, sizeof *open, err);
    bool ok = open && sort_ids(trie, err) && lay_out(trie, open, 0, err) && note_below(trie, open, err);
    alloc_put(trie->alloc, open);
    return ok;
}

static struct token_trie *begin(struct alloc *alloc, uint32_t n, struct err *err)
{
    struct token_trie *trie = alloc_get(alloc, sizeof *trie, err);
    if (!trie) return NULL;
    trie->alloc = alloc;
    trie->id_end = n;
    trie->tokens = alloc_get_array(alloc, n, sizeof *trie->tokens, err);
    if (trie->tokens) return trie;
    token_trie_free(trie);
    return NULL;
}

static struct token_trie *complete(struct token_trie *trie, struct err *err)
{
    if (fill(trie, err)) return trie;
    token_trie_free(trie);
    return NULL;
}

struct token_trie *token_trie_new(struct alloc *alloc, const struct tokenizer *tokenizer, struct err *err)
{
    struct token_trie *trie = begin(alloc, tokenizer_id_end(tokenizer), err);
    if (!trie) return NULL;
    for (uint32_t id = 0; id < trie->id_end; id++) {
        struct token token = tokenizer_token(tokenizer, id);
        if (token.kind == TOKEN_BASE) trie->tokens[id] = token;
    }
    return complete(trie, err);
}

struct token_trie *token_trie_of(struct alloc *alloc, const struct token *tokens, uint32_t n, struct err *err)
{
    struct token_trie *trie = begin(alloc, n, err);
    if (!trie) return NULL;
    for (uint32_t id = 0; id < n; id++)
        if (tokens[id].kind == TOKEN_BASE) trie->tokens[id] = tokens[id];
    return complete(trie, err);
}

void token_trie_free(struct token_trie *trie)
{
    if (!trie) return;
    alloc_put(trie->alloc, trie->nodes);
    alloc_put(trie->alloc, trie->bytes);
    alloc_put(trie->alloc, trie->kinds_below);
    alloc_put(trie->alloc, trie->bytes_below);
    alloc_put(trie->alloc, trie->chars);
    alloc_put(trie->alloc, trie->ids);
    alloc_put(trie->alloc, trie->tokens);
    alloc_put(trie->alloc, trie);
}
