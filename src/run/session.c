#include "run/session.h"

#include <inttypes.h>

void session_init(struct session *session, struct engine *engine)
{
    *session = (struct session){.engine = engine};
    kv_init(&session->kv, forward_kv_pool(engine_forward(engine)));
}

void session_fini(struct session *session)
{
    if (session->engine) kv_fini(&session->kv);
    *session = (struct session){0};
}

uint32_t session_tokens(const struct session *session)
{
    return session->kv.n_rows;
}

void session_rewind(struct session *session, uint32_t n)
{
    kv_truncate(&session->kv, n);
    session->logits = NULL;
}

/* Rows that fit one pass when every one of them, or only the last, wants logits. */
static size_t rows_per_pass(const struct engine *engine, bool all_logits)
{
    const struct engine_settings *settings = engine_settings_of(engine);
    return all_logits ? settings->logit_rows : settings->pass_rows;
}

bool session_feed(struct session *session, const uint32_t *tokens, size_t n, session_logits_fn *each, void *context,
                  struct err *err)
{
    struct forward *forward = engine_forward(session->engine);
    uint32_t room = engine_settings_of(session->engine)->context_tokens - session->kv.n_rows;
    size_t chunk = rows_per_pass(session->engine, each != NULL);
    struct forward_row *rows = engine_rows(session->engine);
    if (n > room)
        return err_set(err, ERR_USER,
                       "%zu tokens do not fit behind the %" PRIu32 " that are there: the context holds %" PRIu32
                       "; give a larger --context-length or a shorter text",
                       n, session->kv.n_rows, engine_settings_of(session->engine)->context_tokens);
    session->logits = NULL;
    for (size_t done = 0; done < n;) {
        size_t n_rows = n - done < chunk ? n - done : chunk;
        uint32_t first = session->kv.n_rows;
        for (size_t r = 0; r < n_rows; r++)
            rows[r] = (struct forward_row){.kv = &session->kv,
                                           .token = tokens[done + r],
                                           .position = first + (uint32_t)r,
                                           .wants_logits = each || done + r + 1 == n};
        if (!engine_pass(session->engine, rows, n_rows, err)) return false;
        for (size_t r = 0; each && r < n_rows; r++)
            if (!each(context, first + (uint32_t)r, forward_logits(forward, r), err)) return false;
        done += n_rows;
        if (done == n) session->logits = forward_logits(forward, n_rows - 1);
    }
    return true;
}
