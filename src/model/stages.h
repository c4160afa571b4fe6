#ifndef MODEL_STAGES_H
#define MODEL_STAGES_H
/* Where the time of passes goes. The engine thread reads the clock where one stage ends and the next begins, a dozen
 * times a layer, so that the figures can always be kept. Belongs to the forward pass that counts. */
#include <stdint.h>

/* X(stage, name). Work of the team counts where the engine thread waits for it. */
#define STAGE_LIST(X)                                                     \
    X(EMBED, "embed")                                                     \
    X(NORM, "norm")       /* norms, and adding to the residual stream */  \
    X(PROJECT, "project") /* attention: queries, latents, output */       \
    X(INDEX, "index")     /* index keys, scores and selection */          \
    X(ABSORB, "absorb")   /* queries into the latent space, mixes back */ \
    X(ATTEND, "attend")   /* scores, softmax, mix */                      \
    X(DENSE, "dense")                                                     \
    X(ROUTER, "router")                                                   \
    X(WAIT, "wait") /* for experts that are not there yet */              \
    X(EXPERTS, "experts")                                                 \
    X(SHARED, "shared") /* the shared expert */                           \
    X(HEAD, "head")

enum stage {
#define X(stage, name) STAGE_##stage,
    STAGE_LIST(X)
#undef X
        STAGE_COUNT
};

const char *stage_name(enum stage stage);

struct stage_times {
    int64_t ns[STAGE_COUNT];
};

/* Monotonic nanoseconds. */
typedef int64_t stage_now_fn(void *context);

struct stage_clock {
    stage_now_fn *now_ns; /* NULL: nothing is counted */
    void *context;
    /* Where a stage ends, the engine thread looks up from its work: for whoever has something to look after. */
    void (*looks_up)(void *who); /* NULL: nobody */
    void *who;
    int64_t last_ns;
    struct stage_times times; /* of all passes so far */
};

/* A pass begins. */
void stage_begin(struct stage_clock *clock);

/* What was done since the last call of either belongs to `stage`. */
void stage_end(struct stage_clock *clock, enum stage stage);

#endif
