#ifndef RUN_ENGINE_H
#define RUN_ENGINE_H
/* A model that is open and can run: files, weights, kernels, threads and the forward pass, joined.
 *
 * Owned by one thread, the engine thread, which is the only one that may run passes. Everything it reads from the
 * folder is checked first; a failure names the file and what to do, and leaves nothing behind. */
#include "model/forward.h"

struct engine;

struct engine_settings {
    const char *model_dir;
    unsigned n_threads;      /* 0: as many as this process may keep busy */
    uint32_t cpu_mask;       /* instruction sets that may be used, of those this machine has */
    uint32_t context_tokens; /* of one sequence */
    uint32_t pass_rows;      /* rows of one pass at most */
    uint32_t logit_rows;     /* rows of one pass whose logits may be asked for */
    float latent_norm_eps;   /* NAN: what the model says */
};

/* What a program that states nothing else gets. */
struct engine_settings engine_settings_default(const char *model_dir);

bool engine_open(struct engine **engine, struct alloc *alloc, struct file_system fs,
                 const struct engine_settings *settings, struct err *err) MUST_CHECK;
void engine_close(struct engine *engine); /* NULL is fine */

const struct config *engine_config(const struct engine *engine);
const struct inventory *engine_inventory(const struct engine *engine);
const struct engine_settings *engine_settings_of(const struct engine *engine); /* with the choices made */
struct forward *engine_forward(struct engine *engine);
struct alloc *engine_alloc(struct engine *engine);

#endif
