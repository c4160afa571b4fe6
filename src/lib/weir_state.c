#include "lib/lib_int.h"

#include "plat/file_write.h"
#include "run/state_identity.h"
#include <string.h>

#define IDS_MAX (UINT32_C(1) << 21)

static bool check_idle(const struct weir_session *s, const char *path, struct err *err)
{
    if (!lib_need(path, "path", err)) return false;
    return !s->goes_on || err_set(err, ERR_BUSY, "the session is still answering");
}

static bool save(struct weir_session *s, const char *path, size_t *n_saved, struct err *err)
{
    struct weir_engine *e = s->engine;
    const struct state_identity identity = state_identity_of(e->engine);
    struct kv kv;
    if (!check_idle(s, path, err)) return false;
    if (s->ids.n == 0) return err_set(err, ERR_USER, "the session holds nothing yet");
    kv_init(&kv, forward_kv_pool(engine_forward(e->engine)));
    uint32_t n = scheduler_recall(e->scheduler, &kv, s->ids.ids, (uint32_t)s->ids.n);
    bool ok =
        n > 0 || err_set(err, ERR_FAILED,
                         "%s: the state of the session had to make room for others, so there is nothing to save", path);
    ok = ok && state_file_write(path, e->alloc, write_system_real(), &identity, &kv, s->ids.ids, n, err);
    kv_fini(&kv);
    if (ok && n_saved) *n_saved = n;
    return ok;
}

enum weir_status weir_session_save(struct weir_session *session, const char *path, size_t *n_saved,
                                   struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_need(session, "session", &err) && lib_enter(session->engine, &err);
    if (ok) {
        ok = save(session, path, n_saved, &err);
        lib_leave(session->engine);
    }
    return lib_end(ok, &err, error);
}

/* Reads the rows for `ids`, as far as they are sound, and keeps them where the next prompt looks. */
static bool read_rows(struct weir_session *s, const char *path, struct token_list *ids, struct err *err)
{
    struct weir_engine *e = s->engine;
    const struct state_identity identity = state_identity_of(e->engine);
    struct kv kv;
    bool is_torn;
    if (!scheduler_make_room(e->scheduler, (uint32_t)ids->n))
        return err_set(err, ERR_BUSY, "%s: there is no room for a state of %zu tokens", path, ids->n);
    kv_init(&kv, forward_kv_pool(engine_forward(e->engine)));
    bool ok = state_file_read(path, e->alloc, e->model->fs, &identity, &kv, ids->ids, (uint32_t)ids->n, &is_torn, err);
    if (ok) ids->n = kv.n_rows;
    if (ok && kv.n_rows > 0) scheduler_remember(e->scheduler, &kv, ids->ids, kv.n_rows);
    kv_fini(&kv);
    return ok;
}

static bool restore(struct weir_session *s, const char *path, size_t *n_restored, struct err *err)
{
    struct weir_engine *e = s->engine;
    const struct state_identity identity = state_identity_of(e->engine);
    const struct kv_layout *layout = &forward_kv_pool(engine_forward(e->engine))->layout;
    struct token_list ids;
    uint32_t context = engine_settings_of(e->engine)->context_tokens;
    if (!check_idle(s, path, err)) return false;
    token_list_init(&ids, e->alloc, IDS_MAX);
    bool ok = state_file_peek(path, e->alloc, e->model->fs, &identity, layout, &ids, err);
    if (ok && ids.n > context)
        ok = err_set(err, ERR_USER, "%s: it holds %zu tokens, and the engine was opened for %u", path, ids.n, context);
    ok = ok && read_rows(s, path, &ids, err);
    if (ok) {
        s->ids.n = 0;
        ok = token_list_add(&s->ids, ids.ids, ids.n, err);
    }
    if (ok && n_restored) *n_restored = ids.n;
    token_list_fini(&ids);
    return ok;
}

enum weir_status weir_session_restore(struct weir_session *session, const char *path, size_t *n_restored,
                                      struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_need(session, "session", &err) && lib_enter(session->engine, &err);
    if (ok) {
        ok = restore(session, path, n_restored, &err);
        lib_leave(session->engine);
    }
    return lib_end(ok, &err, error);
}
