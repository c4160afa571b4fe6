/* A state that went through a file equals one that never did: the same logits, bit for bit, at lengths around the block
 * size, around index_topk (16) and far beyond both; with the MTP layer's rows and without. */
#include "run/session.h"
#include "run/state_identity.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <stdlib.h>

enum { LONGEST = 4000, MORE = 20 };

static uint32_t token_at(uint32_t i)
{
    return (i * 37 + i / 7) % 290;
}

static void feed(struct session *session, uint32_t first, uint32_t n)
{
    struct err err = {0};
    uint32_t *tokens = calloc(n, sizeof *tokens);
    for (uint32_t i = 0; i < n; i++) tokens[i] = token_at(first + i);
    if (!session_feed(session, tokens, n, NULL, NULL, &err)) fail_msg("%s", err.text);
    free(tokens);
}

static void absorb_mtp(struct session *session, uint32_t n)
{
    struct err err = {0};
    size_t hidden = engine_config(session->engine)->hidden;
    float *state = calloc(hidden, sizeof *state); /* any hidden state: only the rows' survival is looked at */
    for (uint32_t i = 0; i < n; i++) {
        state[i % hidden] = (float)i / 50;
        const struct forward_mtp_row row = {
            .kv = &session->kv, .token = token_at(i + 1), .position = i, .hidden = state};
        if (!forward_mtp(engine_forward(session->engine), &row, 1, &err)) fail_msg("%s", err.text);
    }
    free(state);
}

static void expect_same_mtp_rows(const struct kv *a, const struct kv *b, uint32_t layer)
{
    assert_int_equal(a->n_mtp_rows, b->n_mtp_rows);
    for (uint32_t p = 0; p < a->n_mtp_rows; p++)
        assert_memory_equal(kv_latent(a, layer, p, NULL), kv_latent(b, layer, p, NULL),
                            a->pool->layout.latent_width * sizeof(float));
}

static void check_length(struct engine *engine, const struct temp_folder *folder, uint32_t n, bool with_mtp)
{
    const struct state_identity identity = state_identity_of(engine);
    size_t vocab = engine_config(engine)->vocab;
    struct session lived, restored;
    struct err err = {0};
    bool is_torn = false;
    char path[600];
    uint32_t *ids = calloc(n, sizeof *ids);
    float *want = calloc(vocab, sizeof *want);
    for (uint32_t i = 0; i < n; i++) ids[i] = token_at(i);
    snprintf(path, sizeof path, "%s/s%u", folder->path, n);

    session_init(&lived, engine);
    session_init(&restored, engine);
    feed(&lived, 0, n);
    if (with_mtp) absorb_mtp(&lived, n);
    if (!state_file_write(path, engine_alloc(engine), write_system_real(), &identity, &lived.kv, ids, n, &err) ||
        !state_file_read(path, engine_alloc(engine), file_system_real(), &identity, &restored.kv, ids, n, &is_torn,
                         &err))
        fail_msg("%s", err.text);
    assert_false(is_torn);
    assert_int_equal(session_tokens(&restored), n);
    if (with_mtp) expect_same_mtp_rows(&lived.kv, &restored.kv, engine_config(engine)->n_layers);

    feed(&lived, n, MORE);
    memcpy(want, lived.logits, vocab * sizeof *want);
    feed(&restored, n, MORE);
    if (memcmp(want, restored.logits, vocab * sizeof *want) != 0) fail_msg("other bits after %u restored tokens", n);
    session_fini(&restored);
    session_fini(&lived);
    free(want);
    free(ids);
}

static void check_model(const char *dir, bool with_mtp)
{
    static const uint32_t lengths[] = {1, 15, 16, 17, 63, 64, 65, LONGEST};
    struct temp_folder folder;
    struct alloc alloc = {0};
    struct engine *engine;
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(dir);
    settings.context_tokens = LONGEST + 2 * MORE;
    settings.n_threads = 2;
    temp_folder_make(&folder);
    if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) check_length(engine, &folder, lengths[i], with_mtp);
    engine_close(engine);
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
}

static void restored_equals_uninterrupted(void **state)
{
    (void)state;
    check_model("tests/fixtures/glm52-tiny/plain", false);
}

static void restored_equals_uninterrupted_with_mtp_rows(void **state)
{
    (void)state;
    check_model("tests/fixtures/glm52-tiny/mtp", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_equals_uninterrupted),
        cmocka_unit_test(restored_equals_uninterrupted_with_mtp_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
