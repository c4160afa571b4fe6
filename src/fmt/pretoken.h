#ifndef FMT_PRETOKEN_H
#define FMT_PRETOKEN_H
/* Cuts text into the pieces that byte-level BPE works on, as the split pattern of a tokenizer.json says.
 *
 * There is no regex engine here: each known pattern has a scanner by hand, and a pattern string is compared as a whole.
 * "Something near" would give other ids without a word. Pure; any thread. */
#include <stdbool.h>
#include <stddef.h>

enum pretoken_family {
    PRETOKEN_GLM,  /* GLM and Llama 3: numbers by one to three digits */
    PRETOKEN_QWEN, /* the same with each digit on its own */
};

/* The family whose pattern is exactly this string; false when there is none. */
bool pretoken_family_find(const char *pattern, size_t bytes, enum pretoken_family *family);

const char *pretoken_pattern(enum pretoken_family family);

/* Bytes of the first piece of a text that is not empty and is valid UTF-8 (checked by the caller: a scanner does not
 * look again). The pieces of a text are found by calling this on what remains. A piece never depends on what is before
 * it, and has no bound. All calls on a text together take time that is linear in its bytes. */
size_t pretoken_next(enum pretoken_family family, const char *text, size_t bytes);

#endif
