#ifndef FMT_TOKEN_LIST_H
#define FMT_TOKEN_LIST_H
/* Token ids that grow, up to a ceiling given at birth. fini is safe twice and on a zeroed list. Owned by one thread. */
#include "base/alloc.h"

struct token_list {
    struct alloc *alloc;
    uint32_t *ids; /* [n] */
    size_t n, room, n_max;
};

void token_list_init(struct token_list *list, struct alloc *alloc, size_t n_max);
void token_list_fini(struct token_list *list);

/* A list that would pass its ceiling is ERR_BUSY, and stays as it was. */
bool token_list_add(struct token_list *list, const uint32_t *ids, size_t n, struct err *err) MUST_CHECK;

/* Makes a list of ids as people write them: numbers parted by blanks, line breaks or commas, brackets around them
 * allowed. `source` names the text in messages. An empty list, or anything else in it, is ERR_USER. */
bool token_list_parse(struct token_list *list, struct alloc *alloc, const char *source, const char *text,
                      struct err *err) MUST_CHECK;

#endif
