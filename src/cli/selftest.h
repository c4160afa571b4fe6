#ifndef CLI_SELFTEST_H
#define CLI_SELFTEST_H
/* The parts of `weir selftest`. */
#include "base/buf.h"
#include "cli/commands.h"
#include "run/engine.h"

enum { SELFTEST_VOCAB = 512, SELFTEST_END = 493, SELFTEST_PROMPT = 70, SELFTEST_ANSWER = 60, SELFTEST_TOKEN_TEXT = 3 };

/* Writes a checkpoint of the architecture with random weights into an existing folder: config.json, tokenizer.json and
 * one shard, some megabytes. The same on every machine. */
bool selftest_model_write(struct alloc *alloc, const char *folder, struct err *err) MUST_CHECK;

/* Its vocabulary. Only tokens that are readable are ever the likeliest; no two of those have the same text. */
bool selftest_vocabulary_write(struct alloc *alloc, const char *folder, struct err *err) MUST_CHECK;
bool selftest_token_is_readable(uint32_t id);
void selftest_token_text(char text[SELFTEST_TOKEN_TEXT], uint32_t id); /* of one that is readable */

/* A token of the prompt. */
uint32_t selftest_prompt(uint32_t i);

/* What a model answered: the likeliest token each time, and a digest of the logits that it was taken from. */
struct transcript {
    uint32_t ids[SELFTEST_ANSWER];
    uint64_t digests[SELFTEST_ANSWER];
};

enum { SELFTEST_CONTEXT = 512, SELFTEST_LOGIT_ROWS = 8 };

/* How a model is opened. */
struct selftest_way {
    const char *folder;
    unsigned n_threads;
    uint32_t cpu_mask;
    double experts_resident;
    uint32_t n_drafts; /* by the MTP layer, in each round; 0: none */
};

struct engine_settings selftest_engine_settings(const struct selftest_way *way);

bool selftest_answer(struct transcript *out, struct alloc *alloc, const struct selftest_way *way,
                     struct err *err) MUST_CHECK;

/* The same by two processes: one is killed while it answers, and this one goes on from the state that it had saved.
 * *n_restored: tokens that did not have to be computed again. */
bool selftest_answer_killed(struct transcript *out, uint32_t *n_restored, struct alloc *alloc,
                            const struct selftest_way *way, const char *state_path, struct err *err) MUST_CHECK;

/* As a server makes it: with the scheduler, with the drafts of `way`. Without digests. *n_drafted: how many there were.
 */
bool selftest_scheduled(struct transcript *out, uint32_t *n_drafted, struct alloc *alloc,
                        const struct selftest_way *way, struct err *err) MUST_CHECK;

/* What came through HTTP. */
struct served {
    uint32_t n_cached; /* tokens of the prompt that the second server found on disk */
    uint32_t n_drafted;
    uint32_t n_killed_at; /* bytes that the first server had sent of the answer in which it was killed */
};

/* Two servers on the loopback, in processes of their own, with their states in `folder`, which is there. The first one
 * answers, is asked again and is killed while it answers; the second one goes on from what is on disk. Every answer
 * must have the tokens of `want`, and both the same log-probabilities. */
bool selftest_serve(struct served *out, struct alloc *alloc, const struct selftest_way *way, const char *folder,
                    const struct transcript *want, struct err *err) MUST_CHECK;

/* An answer of a server at 127.0.0.1: the body behind a head that says 200, up to the end of the connection or, with
 * bytes_max, until so many are there. `body` NULL: GET. */
bool selftest_ask(struct buf *answer, uint16_t port, const char *path, const char *body, size_t bytes_max,
                  struct err *err) MUST_CHECK;

/* Prompt and answer read as one text: the logits behind the last token must be those that were seen when it was
 * written. */
bool selftest_reread(uint64_t *digest, struct alloc *alloc, const struct selftest_way *way,
                     const struct transcript *transcript, struct err *err) MUST_CHECK;

#endif
