#ifndef FMT_TOKENIZER_CONFIG_H
#define FMT_TOKENIZER_CONFIG_H
/* Where a tokenizer_config.json contradicts the tokenizer.json beside it.
 *
 * That file lists the added tokens once more (added_tokens_decoder). The tokenizer.json is what counts; a contradiction
 * in the id or in `special` means that somebody's tools see other tokens than weir does, which a person should know. */
#include "base/buf.h"

struct tokenizer;

enum { TOKENIZER_CONFIG_WARNINGS_MAX = 20 };

/* Appends a line to `warnings` for each contradiction, up to a limit, and then one that counts the rest. `name` is for
 * messages. A text that cannot be read is ERR_DATA; one without the list has no contradictions. */
bool tokenizer_config_compare(const struct tokenizer *tokenizer, struct alloc *alloc, const char *name,
                              const char *json, size_t bytes, struct buf *warnings, struct err *err) MUST_CHECK;

#endif
