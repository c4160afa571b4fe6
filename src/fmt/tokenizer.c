#include "fmt/tokenizer.h"

#include "fmt/tokenizer_int.h"
#include <inttypes.h>
#include <string.h>

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer) return;
    arena_fini(&tokenizer->arena);
    alloc_put(tokenizer->alloc, tokenizer);
}

uint32_t tokenizer_id_end(const struct tokenizer *tokenizer)
{
    return tokenizer->id_end;
}
bool tokenizer_ignores_merges(const struct tokenizer *tokenizer)
{
    return tokenizer->ignore_merges;
}
enum pretoken_family tokenizer_family(const struct tokenizer *tokenizer)
{
    return tokenizer->family;
}

struct token tokenizer_token(const struct tokenizer *tokenizer, uint32_t id)
{
    if (id >= tokenizer->id_end) return (struct token){.bytes = "", .kind = TOKEN_DEAD};
    const struct span *span = &tokenizer->spans[id];
    return (struct token){tokenizer->bytes + span->offset, span->bytes, (enum token_kind)tokenizer->kinds[id]};
}

bool tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, struct token *token, struct err *err)
{
    *token = tokenizer_token(tokenizer, id);
    if (token->kind != TOKEN_DEAD) return true;
    return err_set(err, ERR_USER, "token id %" PRIu32 " has no token; ids of this tokenizer are below %" PRIu32, id,
                   tokenizer->id_end);
}

bool tokenizer_id(const struct tokenizer *tokenizer, const char *content, uint32_t *id)
{
    uint32_t found = trie_find(&tokenizer->added, content, strlen(content));
    if (found == NO_ID) return false;
    *id = found;
    return true;
}

uint32_t tokenizer_dead_ids(const struct tokenizer *tokenizer, uint32_t n_rows, uint32_t *ids, uint32_t room)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < n_rows; id++) {
        if (id < tokenizer->id_end && tokenizer->kinds[id] != TOKEN_DEAD) continue;
        if (n < room) ids[n] = id;
        n++;
    }
    return n;
}

uint32_t tokenizer_raw_prefix(const struct tokenizer *tokenizer, const uint32_t **ids)
{
    *ids = tokenizer->prefix;
    return tokenizer->n_prefix;
}
