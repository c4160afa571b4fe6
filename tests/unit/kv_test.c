/* Sequence state: shared prefixes stay what they were, codecs round as they promise, nothing leaks. */
#include "model/kv.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

static const struct config config = {
    .n_layers = 3, .kv_rank = 20, .rope_dim = 6, .index_head_dim = 14, .is_full = {true, false, true}};

static struct kv_pool pool_of(struct alloc *alloc, enum kv_storage storage, uint32_t n_blocks_max)
{
    struct kv_layout layout;
    struct kv_pool pool;
    kv_layout_init(&layout, &config, storage, true, true, false);
    kv_pool_init(&pool, alloc, &layout, n_blocks_max);
    return pool;
}

/* A row that tells sequence, layer and position apart. */
static void make_row(float *row, size_t n, uint32_t mark, uint32_t layer, uint32_t position)
{
    for (size_t i = 0; i < n; i++) row[i] = (float)(mark * 100000 + layer * 10000 + position) + (float)i / 64;
}

static void write_rows(struct kv *kv, uint32_t first, uint32_t n, uint32_t mark)
{
    struct err err = {0};
    float row[32];
    for (uint32_t p = first; p < first + n; p++) {
        if (!kv_make_writable(kv, p, &err)) fail_msg("%s", err.text);
        for (uint32_t layer = 0; layer < 4; layer++) {
            make_row(row, 26, mark, layer, p);
            kv_put_latent(kv, layer, p, row);
        }
        make_row(row, 14, mark + 7, 2, p);
        kv_put_key(kv, 2, p, row);
    }
    if (kv->n_rows < first + n) kv->n_rows = first + n;
}

static void expect_rows(const struct kv *kv, uint32_t first, uint32_t n, uint32_t mark)
{
    float want[32], scratch[32];
    for (uint32_t p = first; p < first + n; p++) {
        for (uint32_t layer = 0; layer < 4; layer++) {
            make_row(want, 26, mark, layer, p);
            assert_memory_equal(kv_latent(kv, layer, p, scratch), want, 26 * sizeof(float));
        }
        make_row(want, 14, mark + 7, 2, p);
        assert_memory_equal(kv_key(kv, 2, p, scratch), want, 14 * sizeof(float));
    }
}

static void a_fork_shares_until_somebody_writes(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct kv_pool pool = pool_of(&alloc, KV_STORAGE_F32, UINT32_MAX);
    static const uint32_t cuts[] = {0, 1, 63, 64, 65, 127, 128, 150};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        struct kv a, b;
        struct err err = {0};
        uint32_t cut = cuts[c];
        kv_init(&a, &pool);
        kv_init(&b, &pool);
        write_rows(&a, 0, 150, 1);
        uint32_t before = pool.n_blocks;
        assert_true(kv_fork(&b, &a, cut, &err));
        assert_int_equal(pool.n_blocks, before); /* shared, not copied */
        write_rows(&b, cut, 40, 2);
        expect_rows(&a, 0, 150, 1);
        expect_rows(&b, 0, cut, 1);
        expect_rows(&b, cut, 40, 2);
        write_rows(&a, 10, 1, 3); /* the older one may write too, and the younger does not see it */
        if (cut > 0) expect_rows(&b, 0, cut, 1);
        kv_fini(&a);
        expect_rows(&b, 0, cut, 1);
        kv_fini(&b);
        kv_fini(&b);
        assert_int_equal(pool.n_blocks, 0);
    }
    kv_pool_fini(&pool);
    assert_int_equal(alloc.live, 0);
}

static void the_ceiling_is_an_error_that_changes_nothing(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct kv_pool pool = pool_of(&alloc, KV_STORAGE_F32, 2);
    struct kv a, b;
    struct err err = {0};
    kv_init(&a, &pool);
    kv_init(&b, &pool);
    write_rows(&a, 0, 128, 1);
    assert_false(kv_make_writable(&a, 128, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_true(kv_fork(&b, &a, 100, &err)); /* sharing needs no block */
    assert_false(kv_make_writable(&b, 100, &err));
    expect_rows(&a, 0, 128, 1);
    expect_rows(&b, 0, 100, 1);
    kv_truncate(&a, 64); /* lets go, but b still holds it */
    assert_int_equal(pool.n_blocks, 2);
    assert_true(kv_make_writable(&b, 100, &err)); /* b alone now: no copy is needed */
    kv_fini(&a);
    kv_fini(&b);
    kv_pool_fini(&pool);
    assert_int_equal(alloc.live, 0);
}

static void every_failed_allocation_is_clean(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct kv_pool pool = pool_of(&alloc, KV_STORAGE_Q8, UINT32_MAX);
        struct kv a, b;
        struct err err = {0};
        kv_init(&a, &pool);
        kv_init(&b, &pool);
        bool ok = kv_make_writable(&a, 200, &err);
        if (ok) {
            a.n_rows = 201;
            ok = kv_fork(&b, &a, 201, &err) && kv_make_writable(&b, 200, &err);
        }
        assert_true(ok || err.kind == ERR_NOMEM);
        kv_fini(&a);
        kv_fini(&b);
        kv_pool_fini(&pool);
        assert_int_equal(alloc.live, 0);
        if (ok) break;
    }
}

static void half_is_nearest_and_ties_go_to_even(void **state)
{
    (void)state;
    const struct kv_codec *f16 = kv_codec_of(KV_STORAGE_F16);
    static const float in[] = {0,     -0.0f,    1,        1.00048828125f, 1.00146484375f, 65504,        65519.9f,
                               65520, 0x1p-24f, 0x1p-25f, 0x1.8p-24f,     0x1.ff8p-15f,   0x1.fffp-15f, -3.14159265f};
    static const float want[] = {0,        -0.0f,    1, 1,        1.001953125f, 65504,    65504,
                                 INFINITY, 0x1p-24f, 0, 0x1p-23f, 0x1.ff8p-15f, 0x1p-14f, -3.140625f};
    enum { N = sizeof in / sizeof *in };
    char packed[2 * N];
    float out[N];
    f16->pack(packed, in, N);
    f16->unpack(out, packed, N);
    for (size_t i = 0; i < N; i++) {
        if (out[i] != want[i]) fail_msg("%g became %g, not %g", in[i], out[i], want[i]);
        assert_int_equal(signbit(out[i]), signbit(want[i]));
    }
    for (uint32_t bits = 0; bits < 0x7c00; bits++) { /* every finite half is its own nearest */
        uint16_t half = (uint16_t)bits, again;
        float value;
        f16->unpack(&value, &half, 1);
        f16->pack(&again, &value, 1);
        assert_int_equal(again, half);
    }
}

static void bytes_keep_within_half_a_step(void **state)
{
    (void)state;
    const struct kv_codec *q8 = kv_codec_of(KV_STORAGE_Q8);
    enum { N = 150 };
    float in[N], out[N];
    char *packed = malloc(q8->row_bytes(N));
    assert_int_equal(q8->row_bytes(N), N + 3 * sizeof(float));
    for (size_t i = 0; i < N; i++) in[i] = sinf((float)i * 1.7f) * (i < 64 ? 1.0f : 100.0f);
    for (size_t i = 128; i < N; i++) in[i] = 0;
    q8->pack(packed, in, N);
    q8->unpack(out, packed, N);
    for (size_t i = 0; i < N; i++) assert_true(fabsf(out[i] - in[i]) <= (i < 64 ? 1.0f : 100.0f) / 127 / 2 * 1.0001f);
    for (size_t i = 128; i < N; i++) assert_true(out[i] == 0);
    free(packed);
}

/* Bytes of a row of n floats, by the description of each storage. */
static uint64_t bytes_by_hand(enum kv_storage storage, uint64_t n)
{
    if (storage == KV_STORAGE_F32) return n * 4;
    if (storage == KV_STORAGE_F16) return n * 2;
    return n + (n + KV_Q8_GROUP - 1) / KV_Q8_GROUP * 4;
}

/* What plan and admission count, a cache line to begin on included, is what the allocator gave, for every storage and
 * any length. */
static void bytes_are_counted_exactly(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 63, 64, 65, 128, 1000};
    for (enum kv_storage storage = 0; storage < KV_STORAGES; storage++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct alloc alloc = {0};
            struct kv_pool pool = pool_of(&alloc, storage, UINT32_MAX);
            struct kv kv;
            uint64_t row = 4 * bytes_by_hand(storage, 26) + 2 * bytes_by_hand(storage, 14); /* MTP layer included */
            uint32_t n_blocks = (lengths[i] + 63) / 64;
            kv_init(&kv, &pool);
            write_rows(&kv, 0, lengths[i], 1);
            assert_int_equal(pool.layout.block_bytes, 64 * row);
            assert_int_equal(pool.n_blocks, n_blocks);
            assert_int_equal(atomic_load(&alloc.live_bytes), n_blocks * (64 * row + 64 + sizeof(struct kv_block)) +
                                                                 kv.n_room * sizeof(struct kv_block *));
            kv_fini(&kv);
            kv_pool_fini(&pool);
            assert_int_equal(alloc.live_bytes, 0);
        }
}

/* GLM-5.2: 78 layers of 576 floats, keys of 128 floats in 21 of them, and the MTP layer's row without a key. */
static void a_token_of_the_full_model_takes_so_much(void **state)
{
    (void)state;
    static const uint64_t bytes[KV_STORAGES] = {79 * 2304 + 21 * 512, 79 * 1152 + 21 * 256, 79 * 612 + 21 * 136};
    static struct config full = {.n_layers = 78, .kv_rank = 512, .rope_dim = 64, .index_head_dim = 128};
    for (int i = 0; i < 21; i++) full.is_full[i] = true; /* which ones does not matter here */
    for (enum kv_storage storage = 0; storage < KV_STORAGES; storage++) {
        struct kv_layout layout;
        kv_layout_init(&layout, &full, storage, true, true, false);
        print_message("%s: %llu bytes a token, %.2f of f32\n", kv_codec_of(storage)->name,
                      (unsigned long long)layout.block_bytes / 64, (double)layout.block_bytes / 64 / (double)bytes[0]);
        assert_int_equal(layout.block_bytes, 64 * bytes[storage]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_shares_until_somebody_writes),
        cmocka_unit_test(the_ceiling_is_an_error_that_changes_nothing),
        cmocka_unit_test(every_failed_allocation_is_clean),
        cmocka_unit_test(half_is_nearest_and_ties_go_to_even),
        cmocka_unit_test(bytes_keep_within_half_a_step),
        cmocka_unit_test(bytes_are_counted_exactly),
        cmocka_unit_test(a_token_of_the_full_model_takes_so_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
