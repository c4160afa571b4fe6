#ifndef SUPPORT_SOURCE_MODEL_H
#define SUPPORT_SOURCE_MODEL_H
/* A small checkpoint of the architecture with random weights and awkward widths, made from a seed.
 *
 * Three layers (the first dense; full, shared, full), two experts, an MTP layer with an indexer of its own. Matrices
 * are F32, F16, BF16 or FP8 in turn. */
#include "support/plain_tensors.h"

enum { SOURCE_MODEL_LAYERS = 3 };

/* All tensors; `config` is the text of config.json. */
void source_model_make(struct plain_set *set, uint64_t seed);
extern const char source_model_config[];

/* config.json, tokenizer.json, chat_template.jinja and two shards, into an existing folder. */
void source_model_save(const struct plain_set *set, const char *folder);
#endif
