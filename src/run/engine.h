#ifndef RUN_ENGINE_H
#define RUN_ENGINE_H
/* A model that is open and can run: files, weights, kernels, threads and the forward pass, joined.
 *
 * Owned by one thread, the engine thread, which is the only one that may run passes. Everything it reads from the
 * folder is checked first; a failure names the file and what to do, and leaves nothing behind. */
#include "model/forward.h"
#include "resid/streamed.h"
#include "run/drafts.h"

struct engine;

enum { ENGINE_CHUNK_MAX = PLAN_CHUNK_MAX }; /* rows of a prompt in one pass, at most */

struct engine_settings {
    const char *model_dir;
    unsigned n_threads;      /* 0: as many as this process may keep busy */
    uint32_t cpu_mask;       /* instruction sets that may be used, of those this machine has */
    uint32_t context_tokens; /* of one sequence */
    uint32_t n_sequences;    /* that share passes */
    uint32_t pass_rows;      /* rows of a prompt in one pass; 0: as many as memory allows sensibly */
    uint32_t logit_rows;     /* rows of one pass whose logits may be asked for; at least those of all drafts */
    struct draft_choice drafts;
    float latent_norm_eps;  /* NAN: what the model says */
    enum numerics numerics; /* anything but exact changes answers */
    enum kv_storage kv_storage;

    uint64_t ram_budget_bytes;         /* PLAN_AUTO: what this machine has to give, less a reserve */
    uint64_t prompt_cache_bytes;       /* PLAN_AUTO: a little of that */
    double experts_resident;           /* share of the routed experts, above 0 and up to 1; NAN: as many as fit */
    struct streamed_settings streamed; /* how experts are read; its plan is made by engine_open */
};

/* What a program that states nothing else gets. */
struct engine_settings engine_settings_default(const char *model_dir);

/* The memory plan that these settings lead to, from headers only. facts: of another machine, or NULL for this one.
 * disk_bytes_per_s: for the predicted rate; 0: none. ERR_FIT leaves the plan's lines for showing. */
bool engine_fit(struct plan *plan, struct alloc *alloc, struct file_system fs, const struct engine_settings *settings,
                const struct memory_facts *facts, uint64_t disk_bytes_per_s, struct err *err) MUST_CHECK;

bool engine_open(struct engine **engine, struct alloc *alloc, struct file_system fs,
                 const struct engine_settings *settings, struct err *err) MUST_CHECK;
void engine_close(struct engine *engine); /* NULL is fine */

const struct config *engine_config(const struct engine *engine);
const struct inventory *engine_inventory(const struct engine *engine);
const struct engine_settings *engine_settings_of(const struct engine *engine); /* with the choices made */
/* Why the MTP layer was wished for and there are no drafts; else "". */
const char *engine_no_drafts(const struct engine *engine);
struct forward *engine_forward(struct engine *engine);

/* [pass_rows] Room for the rows of one pass, for whoever makes the next one. */
struct forward_row *engine_rows(struct engine *engine);

/* forward_pass, and what is due around every pass: the model's files are still the same, and the memory budget holds.
 * ERR_DATA for a file that was cut or replaced is the end of the engine: all later passes fail with it. Any other
 * failure ends this pass only. */
bool engine_pass(struct engine *engine, const struct forward_row *rows, size_t n_rows, struct err *err) MUST_CHECK;

/* The same around forward_mtp, whose experts come from disk like any others. */
bool engine_mtp(struct engine *engine, const struct forward_mtp_row *rows, size_t n_rows, struct err *err) MUST_CHECK;

/* The plan that the model was opened by, and what streams it; both NULL for a checkpoint, which is expanded into memory
 * as a whole and is meant for small models. */
const struct plan *engine_plan(const struct engine *engine);
struct streamed *engine_streamed(struct engine *engine);
struct alloc *engine_alloc(struct engine *engine);

#endif
