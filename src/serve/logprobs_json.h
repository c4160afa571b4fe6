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

#endif
