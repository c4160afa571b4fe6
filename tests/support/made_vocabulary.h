#ifndef SUPPORT_MADE_VOCABULARY_H
#define SUPPORT_MADE_VOCABULARY_H
/* A vocabulary as large as that of GLM-5.2 and of the same make: every byte, numbers of up to three digits, words with
 * and without a space in front, Chinese and Cyrillic, runs of blanks and marks of code. Made from a fixed key. */
#include "fmt/tokenizer.h"

enum { MADE_VOCABULARY_TOKENS = 154820 };

struct made_vocabulary {
    struct alloc *alloc;
    struct token *tokens; /* [MADE_VOCABULARY_TOKENS] */
    char *bytes;
};

void made_vocabulary_init(struct made_vocabulary *vocabulary, struct alloc *alloc);
void made_vocabulary_fini(struct made_vocabulary *vocabulary);

#endif
