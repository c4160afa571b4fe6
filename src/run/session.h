#ifndef RUN_SESSION_H
#define RUN_SESSION_H
/* One sequence on an engine: its tokens' state and the logits behind its last token.
 *
 * Belongs to the engine thread; the engine must outlive it. session_fini is safe twice and on a zeroed session. */
#include "run/engine.h"

struct session {
    struct engine *engine;
    struct kv kv;
    const float *logits; /* [vocab] behind the last token fed; good until the engine's next pass. NULL before any */
};

void session_init(struct session *session, struct engine *engine);
void session_fini(struct session *session);

uint32_t session_tokens(const struct session *session); /* how many it holds */

/* Gets each token's logits, in order. Returns false with an error to stop the feeding. */
typedef bool session_logits_fn(void *context, uint32_t position, const float *logits, struct err *err);

/* Appends tokens, in passes of the engine's size. With `each`, logits are made for every token and handed to it;
 * without, for the last one only. On failure the session holds the tokens of the passes that succeeded. */
bool session_feed(struct session *session, const uint32_t *tokens, size_t n, session_logits_fn *each, void *context,
                  struct err *err) MUST_CHECK;

/* Forgets every token from n on. */
void session_rewind(struct session *session, uint32_t n);

#endif
