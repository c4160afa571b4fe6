/* The cache of states on disk: its size is kept, foreign and damaged files and links are left alone, and no trouble
 * with the disk stops anybody. */
#include "run/ssd_cache.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <unistd.h>

static const struct config config = {
    .n_layers = 2, .kv_rank = 20, .rope_dim = 6, .index_head_dim = 14, .is_full = {true}};

struct subject {
    struct alloc alloc;
    struct kv_pool pool;
    struct temp_folder folder;
    struct ssd_cache *cache;
    struct faulty_write faulty;
};

static struct ssd_settings settings_of(struct subject *s, uint64_t bytes_max)
{
    return (struct ssd_settings){.dir = s->folder.path,
                                 .bytes_max = bytes_max,
                                 .identity = {.model = {7}},
                                 .layout = &s->pool.layout,
                                 .fs = file_system_real(),
                                 .ws = faulty_write_system(&s->faulty)};
}

static void subject_open(struct subject *s, uint64_t bytes_max)
{
    struct kv_layout layout;
    struct err err = {0};
    memset(s, 0, sizeof *s);
    temp_folder_make(&s->folder);
    kv_layout_init(&layout, &config, KV_STORAGE_F32, true, false, false);
    kv_pool_init(&s->pool, &s->alloc, &layout, UINT32_MAX);
    struct ssd_settings settings = settings_of(s, bytes_max);
    if (!ssd_cache_open(&s->cache, &s->alloc, &settings, &err)) fail_msg("%s", err.text);
}

static void reopen(struct subject *s, uint64_t bytes_max, uint8_t model)
{
    struct err err = {0};
    struct ssd_settings settings = settings_of(s, bytes_max);
    settings.identity.model[0] = model;
    ssd_cache_close(s->cache);
    if (!ssd_cache_open(&s->cache, &s->alloc, &settings, &err)) fail_msg("%s", err.text);
}

static void subject_close(struct subject *s)
{
    ssd_cache_close(s->cache);
    kv_pool_fini(&s->pool);
    temp_folder_remove(&s->folder);
    assert_int_equal(s->alloc.live, 0);
}

static void save(struct subject *s, uint32_t mark, uint32_t n)
{
    struct kv kv;
    struct err err = {0};
    uint32_t ids[300];
    float row[32] = {(float)mark};
    kv_init(&kv, &s->pool);
    for (uint32_t p = 0; p < n; p++) {
        ids[p] = mark * 1000 + p;
        assert_true(kv_make_writable(&kv, p, &err));
        for (uint32_t layer = 0; layer < 2; layer++) kv_put_latent(&kv, layer, p, row);
        kv_put_key(&kv, 0, p, row);
    }
    kv.n_rows = n;
    ssd_cache_save(s->cache, &kv, ids, n);
    kv_fini(&kv);
}

static uint32_t restore(struct subject *s, uint32_t mark, uint32_t n)
{
    struct kv kv;
    uint32_t ids[300], came;
    for (uint32_t p = 0; p < n; p++) ids[p] = mark * 1000 + p;
    kv_init(&kv, &s->pool);
    came = ssd_cache_restore(s->cache, &kv, ids, n, n);
    assert_int_equal(kv.n_rows, came);
    if (came) assert_true(kv_latent(&kv, 1, came - 1, NULL)[0] == (float)mark);
    kv_fini(&kv);
    return came;
}

static void states_are_found_again_after_a_restart(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, 1 << 30);
    save(&s, 1, 100);
    save(&s, 2, 50);
    save(&s, 2, 90); /* covers the one before it */
    assert_int_equal(ssd_cache_stats(s.cache).n_states, 2);
    reopen(&s, 1 << 30, 7);
    assert_int_equal(ssd_cache_stats(s.cache).n_states, 2);
    assert_int_equal(restore(&s, 1, 70), 70);
    assert_int_equal(restore(&s, 1, 200), 100);
    assert_int_equal(restore(&s, 2, 90), 90);
    assert_int_equal(restore(&s, 3, 90), 0);
    reopen(&s, 1 << 30, 8); /* another model: nothing is taken, nothing is touched */
    assert_int_equal(ssd_cache_stats(s.cache).n_foreign, 2);
    assert_int_equal(restore(&s, 1, 70), 0);
    reopen(&s, 1 << 30, 7);
    assert_int_equal(restore(&s, 1, 70), 70);
    subject_close(&s);
}

static void the_size_is_kept_by_last_use(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, 1 << 30);
    save(&s, 1, 10);
    uint64_t one = ssd_cache_stats(s.cache).bytes;
    reopen(&s, 3 * one + one / 2, 7);
    save(&s, 2, 10);
    save(&s, 3, 10);
    assert_int_equal(restore(&s, 1, 10), 10); /* used now: 2 is the oldest */
    save(&s, 4, 10);
    assert_int_equal(restore(&s, 2, 10), 0);
    assert_int_equal(restore(&s, 1, 10), 10);
    assert_true(ssd_cache_stats(s.cache).bytes <= 3 * one + one / 2);
    reopen(&s, one + one / 2, 7); /* a smaller cap at the next start */
    assert_int_equal(ssd_cache_stats(s.cache).n_states, 1);
    subject_close(&s);
}

static void trouble_with_the_disk_is_told_once_and_counted(void **state)
{
    (void)state;
    static const int errors[] = {28 /* ENOSPC */, 30 /* EROFS */, 2 /* ENOENT: the folder vanished */};
    for (size_t i = 0; i < 3; i++) {
        struct subject s;
        struct err warning;
        subject_open(&s, 1 << 30);
        save(&s, 1, 10);
        assert_false(ssd_cache_take_warning(s.cache, &warning));
        s.faulty.fail_at = s.faulty.calls + 1;
        s.faulty.stops = true;
        s.faulty.error = errors[i];
        save(&s, 2, 10);
        save(&s, 3, 10);
        assert_true(ssd_cache_take_warning(s.cache, &warning));
        print_message("%s\n", warning.text);
        assert_false(ssd_cache_take_warning(s.cache, &warning)); /* once */
        assert_int_equal(ssd_cache_stats(s.cache).n_failed, 2);  /* but each counts */
        assert_int_equal(restore(&s, 1, 10), 10);                /* and what is there goes on serving */
        s.faulty.fail_at = 0;
        s.faulty.stops = s.faulty.stopped = false;
        save(&s, 2, 10);
        assert_int_equal(restore(&s, 2, 10), 10);
        subject_close(&s);
    }
}

static void damage_and_links_are_left_alone(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, 1 << 30);
    save(&s, 1, 100);
    put_file(temp_path(&s.folder, "0000000000000001.weirkv"), "WEIRKV1\nshort", 13);
    assert_int_equal(symlink("/etc/passwd", temp_path(&s.folder, "0000000000000002.weirkv")), 0);
    reopen(&s, 1 << 30, 7);
    struct ssd_stats stats = ssd_cache_stats(s.cache);
    assert_int_equal(stats.n_states, 1);
    assert_int_equal(stats.n_damaged + stats.n_foreign, 1);
    assert_true(file_exists(temp_path(&s.folder, "0000000000000001.weirkv")));
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_found_again_after_a_restart),
        cmocka_unit_test(the_size_is_kept_by_last_use),
        cmocka_unit_test(trouble_with_the_disk_is_told_once_and_counted),
        cmocka_unit_test(damage_and_links_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
