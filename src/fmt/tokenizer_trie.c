#include "base/assert.h"
#include "fmt/tokenizer_int.h"

bool trie_init(struct trie *trie, struct arena *arena, uint64_t content_bytes, struct err *err)
{
    ASSERT(content_bytes < UINT32_MAX);
    *trie = (struct trie){.n_nodes = 1, .room = (uint32_t)content_bytes + 1};
    trie->nodes = arena_get_array(arena, trie->room, sizeof *trie->nodes, err);
    return trie->nodes != NULL;
}

/* The child of a node for this byte, or 0. */
static uint32_t child_of(const struct trie *trie, uint32_t node, unsigned char byte)
{
    if (node == 0) return trie->first[byte];
    uint32_t child = trie->nodes[node].child;
    while (child && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
    return child;
}

static uint32_t add_child(struct trie *trie, uint32_t node, unsigned char byte)
{
    ASSERT(trie->n_nodes < trie->room);
    uint32_t child = trie->n_nodes++;
    trie->nodes[child] = (struct trie_node){.byte = byte, .id = NO_ID};
    if (node == 0) {
        trie->first[byte] = child;
    } else {
        trie->nodes[child].sibling = trie->nodes[node].child;
        trie->nodes[node].child = child;
    }
    return child;
}

bool trie_add(struct trie *trie, const char *content, size_t bytes, uint32_t id, bool special)
{
    ASSERT(bytes > 0);
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t child = child_of(trie, node, (unsigned char)content[i]);
        node = child ? child : add_child(trie, node, (unsigned char)content[i]);
    }
    if (trie->nodes[node].id != NO_ID) return false;
    trie->nodes[node].id = id;
    trie->nodes[node].special = special;
    return true;
}

uint32_t trie_find(const struct trie *trie, const char *content, size_t bytes)
{
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        node = child_of(trie, node, (unsigned char)content[i]);
        if (!node) return NO_ID;
    }
    return node ? trie->nodes[node].id : NO_ID;
}

uint32_t trie_match(const struct trie *trie, bool with_special, const char *text, size_t bytes, size_t *matched)
{
    uint32_t node = 0, id = NO_ID;
    for (size_t i = 0; i < bytes; i++) {
        node = child_of(trie, node, (unsigned char)text[i]);
        if (!node) break;
        const struct trie_node *at = &trie->nodes[node];
        if (at->id == NO_ID || (at->special && !with_special)) continue;
        id = at->id;
        *matched = i + 1;
    }
    return id;
}
