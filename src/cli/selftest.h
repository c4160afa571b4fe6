#ifndef CLI_SELFTEST_H
#define CLI_SELFTEST_H
/* The parts of `weir selftest`. */
#include "cli/commands.h"

/* Writes a checkpoint of the architecture with random weights into an existing folder: config.json and one shard, some
 * megabytes. The same on every machine. */
bool selftest_model_write(struct alloc *alloc, const char *folder, struct err *err) MUST_CHECK;

enum { SELFTEST_VOCAB = 512, SELFTEST_PROMPT = 70, SELFTEST_ANSWER = 60 };

/* A token of the prompt. */
uint32_t selftest_prompt(uint32_t i);

/* What a model answered: the likeliest token each time, and a digest of the logits that it was taken from. */
struct transcript {
    uint32_t ids[SELFTEST_ANSWER];
    uint64_t digests[SELFTEST_ANSWER];
};

/* How a model is opened. */
struct selftest_way {
    const char *folder;
    unsigned n_threads;
    uint32_t cpu_mask;
    double experts_resident;
};

bool selftest_answer(struct transcript *out, struct alloc *alloc, const struct selftest_way *way,
                     struct err *err) MUST_CHECK;

/* The same by two processes: one is killed while it answers, and this one goes on from the state that it had saved.
 * *n_restored: tokens that did not have to be computed again. */
bool selftest_answer_killed(struct transcript *out, uint32_t *n_restored, struct alloc *alloc,
                            const struct selftest_way *way, const char *state_path, struct err *err) MUST_CHECK;

/* Prompt and answer read as one text: the logits behind the last token must be those that were seen when it was
 * written. */
bool selftest_reread(uint64_t *digest, struct alloc *alloc, const struct selftest_way *way,
                     const struct transcript *transcript, struct err *err) MUST_CHECK;

#endif
