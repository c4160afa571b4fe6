#ifndef SUPPORT_CONSTRAINED_H
#define SUPPORT_CONSTRAINED_H
/* Constraints over a small vocabulary: every single byte, pieces that cross all kinds of borders, and control tokens.
 */
#include "base/philox.h"
#include "gram/matcher.h"
#include <json-c/json.h>

enum { VOCABULARY_MAX = 1024 };

/* Ids of the control tokens. */
enum {
    ID_EOS = 1000,
    ID_EOS_TOO,
    ID_THINK_END,
    ID_CALL,
    ID_CALL_END,
    ID_KEY,
    ID_KEY_END,
    ID_VALUE,
    ID_VALUE_END,
    ID_END,
};

struct constrained {
    struct alloc alloc;
    struct token tokens[ID_END];
    struct control_ids ids;
    struct token_trie *trie;
    struct mask_cache *cache;
};

struct numbers {
    uint64_t key, next;
};
uint32_t numbers_below(struct numbers *numbers, uint32_t n);

void constrained_init(struct constrained *c);
void constrained_fini(struct constrained *c); /* checks that nothing leaks */

/* The test fails unless the text is JSON. */
struct json_object *json_of(const char *text);

/* From a schema as text. NULL and *err when it is refused. */
struct constraint *constrained_schema(struct constrained *c, const char *schema, struct err *err);
struct constraint *constrained_kind(struct constrained *c, enum constraint_kind kind, const char *text,
                                    struct err *err);

/* At the beginning. The constraint changes hands: the matcher holds it. */
struct matcher *constrained_start(struct constrained *c, struct constraint *constraint);

/* Feeds a text byte by byte; the number of bytes taken. */
size_t matcher_feed(struct matcher *m, const char *text, size_t n);

/* The whole text is taken and the answer may end there. */
bool constrained_takes(struct constrained *c, struct constraint *constraint, const char *text, size_t n);

/* The mask that a byte by byte walk of every token gives. `scratch` is a matcher of the same constraint. */
void brute_mask(struct constrained *c, const struct matcher *m, struct matcher *scratch, uint64_t *mask);

/* Generates by drawing among allowed tokens, ends when it can once `n_free` tokens are out, and gives up after n_max
 * tokens. Masks are compared with brute force on every `check_every`-th token. True when the answer is whole. */
struct walk {
    struct numbers *numbers;
    uint32_t n_free, n_max, check_every;
    struct buf *out;
    uint32_t n_tokens, n_checked;
};
bool constrained_walk(struct constrained *c, struct constraint *constraint, struct walk *walk);

#endif
