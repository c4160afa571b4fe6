#ifndef SERVE_LOGPROBS_JSON_H
#define SERVE_LOGPROBS_JSON_H
/* Log-probabilities as the OpenAI endpoints write them. */
#include "fmt/tokenizer.h"
#include "run/sampler.h"
#include "serve/jot.h"

/* {"token", "logprob", "bytes", "top_logprobs": [...]} */
void logprobs_json_entry(struct jot *json, const struct tokenizer *tokenizer, const struct sampled *sampled);

/* A token's bytes as a JSON string; what is not UTF-8 is U+FFFD. */
void logprobs_json_token(struct jot *json, const struct tokenizer *tokenizer, uint32_t id);

/* The same as a C string, for a key: cut where it is too long, and U+0000 becomes U+FFFD. */
enum { LOGPROBS_KEY_BYTES = 512 };
void logprobs_json_key(char key[LOGPROBS_KEY_BYTES], const struct tokenizer *tokenizer, uint32_t id);

#endif
