#ifndef SUPPORT_TINY_MODEL_H
#define SUPPORT_TINY_MODEL_H
/* A model folder opened from its files to a forward pass, as the program does it: for tests of what a model computes.
 * Every step must succeed; a failure ends the test with its message. */
#include "kern/kern.h"
#include "model/forward.h"
#include "resid/resident.h"

struct tiny_model {
    struct alloc alloc;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct resident *resident;
    struct weights *weights;
};

struct tiny_run {
    struct tiny_model *model;
    struct team *team;
    struct forward *forward;
};

void tiny_model_open(struct tiny_model *model, const char *dir);
void tiny_model_close(struct tiny_model *model); /* checks that nothing is left allocated */

/* A forward pass over the model with so many threads and the kernels of `cpu`. `config` NULL: the model's own. */
void tiny_run_init(struct tiny_run *run, struct tiny_model *model, const struct config *config, unsigned n_threads,
                   uint32_t cpu, const struct forward_options *options);
void tiny_run_with_kernels(struct tiny_run *run, struct tiny_model *model, const struct config *config,
                           unsigned n_threads, const struct kern *kern, const struct forward_options *options);
void tiny_run_fini(struct tiny_run *run);

enum { TINY_ROWS_MAX = 1024 };

/* Feeds n tokens to a sequence in passes of `chunk` rows and writes logits of every token to out [n][vocab]. */
void tiny_run_feed(struct tiny_run *run, struct kv *kv, const uint32_t *tokens, size_t n, size_t chunk, float *out);

#endif
