#ifndef SERVE_COMPLETIONS_API_H
#define SERVE_COMPLETIONS_API_H
/* OpenAI text completions: raw prompts, and the scoring of prompts that evaluation harnesses live on. */
#include "serve/call.h"

extern const struct protocol completions_protocol;

#endif
