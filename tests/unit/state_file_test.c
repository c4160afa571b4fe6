/* State files give back what was written, refuse what is not theirs, and survive damage as far as it can be survived.
 */
#include "run/state_file.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct config config = {
    .n_layers = 3, .kv_rank = 20, .rope_dim = 6, .index_head_dim = 14, .is_full = {true, false, true}};
static const struct state_identity identity = {.model = {1, 2, 3}, .numerics = 0};

struct subject {
    struct alloc alloc;
    struct kv_pool pool;
    struct kv kv;
    struct temp_folder folder;
    char path[600];
    uint32_t ids[4000];
};

static void subject_open(struct subject *s, uint32_t n, enum kv_storage storage)
{
    struct err err = {0};
    struct kv_layout layout;
    memset(s, 0, sizeof *s);
    temp_folder_make(&s->folder);
    snprintf(s->path, sizeof s->path, "%s/a.state", s->folder.path);
    kv_layout_init(&layout, &config, storage, true, true, false);
    kv_pool_init(&s->pool, &s->alloc, &layout, UINT32_MAX);
    kv_init(&s->kv, &s->pool);
    for (uint32_t p = 0; p < n; p++) {
        float row[32];
        s->ids[p] = p * 7 + 1;
        assert_true(kv_make_writable(&s->kv, p, &err));
        for (size_t i = 0; i < 32; i++) row[i] = (float)(p * 32 + i) * 0.37f;
        for (uint32_t layer = 0; layer < 4; layer++) kv_put_latent(&s->kv, layer, p, row);
        kv_put_key(&s->kv, 0, p, row);
        kv_put_key(&s->kv, 2, p, row);
    }
    s->kv.n_rows = n;
    s->kv.n_mtp_rows = n > 3 ? n - 3 : 0;
}

static void subject_close(struct subject *s)
{
    kv_fini(&s->kv);
    kv_pool_fini(&s->pool);
    temp_folder_remove(&s->folder);
    assert_int_equal(s->alloc.live, 0);
}

static bool save(struct subject *s, struct write_system ws, uint32_t n, struct err *err)
{
    return state_file_write(s->path, &s->alloc, ws, &identity, &s->kv, s->ids, n, err);
}

static void expect_same_rows(const struct kv *a, const struct kv *b, uint32_t n)
{
    float left[32], right[32];
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t layer = 0; layer < 4; layer++)
            assert_memory_equal(kv_latent(a, layer, p, left), kv_latent(b, layer, p, right), 26 * sizeof(float));
        assert_memory_equal(kv_key(a, 2, p, left), kv_key(b, 2, p, right), 14 * sizeof(float));
    }
}

static void what_was_written_comes_back(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 63, 64, 65, 200, 4000};
    for (size_t i = 0; i < 6; i++)
        for (int storage = 0; storage < KV_STORAGES; storage++) {
            struct subject s;
            struct err err = {0};
            struct kv back;
            struct token_list ids;
            bool is_torn = false;
            uint32_t n = lengths[i];
            subject_open(&s, n, storage);
            if (!save(&s, write_system_real(), n, &err)) fail_msg("%s", err.text);
            token_list_init(&ids, &s.alloc, 1 << 20);
            if (!state_file_peek(s.path, &s.alloc, file_system_real(), &identity, &s.pool.layout, &ids, &err))
                fail_msg("%s", err.text);
            assert_int_equal(ids.n, n);
            assert_memory_equal(ids.ids, s.ids, n * sizeof *ids.ids);
            for (uint32_t part = n; part > 0; part /= 3) {
                kv_init(&back, &s.pool);
                if (!state_file_read(s.path, &s.alloc, file_system_real(), &identity, &back, s.ids, part, &is_torn,
                                     &err))
                    fail_msg("%s", err.text);
                assert_false(is_torn);
                assert_int_equal(back.n_rows, part);
                assert_int_equal(back.n_mtp_rows, part < s.kv.n_mtp_rows ? part : s.kv.n_mtp_rows);
                expect_same_rows(&back, &s.kv, part);
                kv_fini(&back);
            }
            token_list_fini(&ids);
            subject_close(&s);
        }
}

static bool try_read(struct subject *s, const struct state_identity *as, uint32_t *n_rows, struct err *err)
{
    struct kv back;
    bool is_torn, ok;
    kv_init(&back, &s->pool);
    ok = state_file_read(s->path, &s->alloc, file_system_real(), as, &back, s->ids, UINT32_MAX, &is_torn, err);
    *n_rows = back.n_rows;
    if (ok) expect_same_rows(&back, &s->kv, back.n_rows);
    if (!ok) assert_int_equal(back.n_blocks, 0);
    kv_fini(&back);
    return ok;
}

static void a_foreign_file_is_refused(void **state)
{
    (void)state;
    struct subject s;
    struct err err = {0};
    uint32_t n;
    subject_open(&s, 100, KV_STORAGE_F32);
    assert_true(save(&s, write_system_real(), 100, &err));
    struct state_identity sibling = identity; /* the same geometry, other weights */
    sibling.model[31] ^= 1;
    assert_false(try_read(&s, &sibling, &n, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "another model"));
    struct state_identity tier = identity;
    tier.numerics = 1;
    assert_false(try_read(&s, &tier, &n, &err));
    assert_non_null(strstr(err.text, "--numerics"));
    assert_true(try_read(&s, &identity, &n, &err)); /* and it was left as it was */
    subject_close(&s);
}

static void flipped_bits_and_lost_ends_are_noticed(void **state)
{
    (void)state;
    struct subject s;
    struct err err = {0};
    struct stat st;
    uint32_t n, n_shorter = 0, n_refused = 0;
    subject_open(&s, 150, KV_STORAGE_F32);
    assert_true(save(&s, write_system_real(), 150, &err));
    assert_int_equal(stat(s.path, &st), 0);
    int file = open(s.path, O_RDWR);
    for (off_t at = 0; at < st.st_size; at += at < 800 ? 1 : 997) {
        char byte, flipped;
        assert_int_equal(pread(file, &byte, 1, at), 1);
        flipped = (char)(byte ^ 16);
        assert_int_equal(pwrite(file, &flipped, 1, at), 1);
        if (try_read(&s, &identity, &n, &err)) {
            assert_true(n < 150); /* what is damaged is not believed */
            n_shorter++;
        } else {
            n_refused++;
        }
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
    }
    for (off_t length = st.st_size - 1; length >= 0; length = length * 9 / 10 - 1) {
        assert_int_equal(ftruncate(file, length), 0);
        if (try_read(&s, &identity, &n, &err)) assert_true(n < 150 && n % 64 == 0);
    }
    print_message("%u flips gave a shorter state, %u a refusal\n", n_shorter, n_refused);
    assert_true(n_shorter > 10);
    assert_true(n_refused > 100);
    close(file);
    subject_close(&s);
}

/* Whatever write fails or is the last before the process is killed: the older file is there, whole. */
static void a_failed_save_keeps_the_older_state(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct subject s;
        struct err err = {0};
        uint32_t n;
        subject_open(&s, 150, KV_STORAGE_F32);
        assert_true(save(&s, write_system_real(), 70, &err));
        struct faulty_write faulty = {.fail_at = k, .stops = k % 2, .tears = k % 3 == 0};
        bool ok = save(&s, faulty_write_system(&faulty), 150, &err);
        bool reached = faulty.calls >= k;
        if (!try_read(&s, &identity, &n, &err)) fail_msg("after call %lu: %s", (unsigned long)k, err.text);
        assert_true(n == 70 || n == 150);
        if (ok) assert_int_equal(n, 150);
        subject_close(&s);
        if (ok && !reached) break;
    }
}

static void every_failed_allocation_is_clean(void **state)
{
    (void)state;
    struct subject s;
    struct err err = {0};
    subject_open(&s, 150, KV_STORAGE_Q8);
    for (uint64_t k = 1;; k++) {
        uint32_t n;
        s.alloc.fail_at = atomic_load(&s.alloc.calls) + k;
        bool ok = save(&s, write_system_real(), 150, &err) && try_read(&s, &identity, &n, &err);
        bool reached = atomic_load(&s.alloc.calls) >= s.alloc.fail_at;
        s.alloc.fail_at = 0;
        kv_pool_trim(&s.pool);
        if (ok && !reached) break;
    }
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_comes_back),
        cmocka_unit_test(a_foreign_file_is_refused),
        cmocka_unit_test(flipped_bits_and_lost_ends_are_noticed),
        cmocka_unit_test(a_failed_save_keeps_the_older_state),
        cmocka_unit_test(every_failed_allocation_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
