/* The cache of states on disk: its size is kept, foreign and damaged files and links are left alone, and no trouble
 * with the disk stops anybody. */
#include "run/ssd_cache.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct config config = {
    .n_layers = 2, .kv_rank = 20, .rope_dim = 6, .index_head_dim = 14, .is_full = {true}};

struct subject {
    struct alloc alloc;
    struct kv_pool pool;
    struct temp_folder folder;
    struct ssd_cache *cache;
    struct faulty_write faulty;
    struct sim_clock time;
    bool has_thread;
};

static struct ssd_settings settings_of(struct subject *s, uint64_t bytes_max)
{
    return (struct ssd_settings){.dir = s->folder.path,
                                 .bytes_max = bytes_max,
                                 .identity = {.model = {7}},
                                 .pool = &s->pool,
                                 .fs = file_system_real(),
                                 .saver = {.ws = faulty_write_system(&s->faulty),
                                           .clock = clock_simulated(&s->time),
                                           .has_thread = s->has_thread}};
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

static enum ssd_save save(struct subject *s, uint32_t mark, uint32_t n)
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
    enum ssd_save result = ssd_cache_save(s->cache, &kv, ids, n);
    kv_fini(&kv); /* what is saved is held by the cache */
    ssd_cache_finish(s->cache);
    return result;
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
        const uint32_t *ids;
        uint32_t n;
        subject_open(&s, 1 << 30);
        save(&s, 1, 10);
        assert_false(ssd_cache_take_warning(s.cache, &warning));
        s.faulty.fail_at = s.faulty.calls + 1;
        s.faulty.stops = true;
        s.faulty.error = errors[i];
        assert_int_equal(save(&s, 2, 10), SSD_BEGUN);
        assert_int_equal(save(&s, 3, 10), SSD_NOT_NOW); /* not at every turn while the disk is ill */
        assert_true(ssd_cache_take_failed(s.cache, &ids, &n));
        assert_int_equal(n, 10);
        assert_int_equal(ids[0], 2000);
        assert_false(ssd_cache_take_failed(s.cache, &ids, &n));
        s.time.now_ns = ssd_cache_retry_ns(s.cache);
        assert_int_equal(save(&s, 3, 10), SSD_BEGUN);
        assert_true(ssd_cache_take_warning(s.cache, &warning));
        print_message("%s\n", warning.text);
        assert_false(ssd_cache_take_warning(s.cache, &warning)); /* once */
        assert_int_equal(ssd_cache_stats(s.cache).n_failed, 2);  /* but each counts */
        assert_int_equal(restore(&s, 1, 10), 10);                /* and what is there goes on serving */
        s.faulty.fail_at = 0;
        s.faulty.stops = false;
        s.faulty.stopped = false;
        s.time.now_ns = ssd_cache_retry_ns(s.cache);
        save(&s, 2, 10);
        assert_int_equal(restore(&s, 2, 10), 10);
        subject_close(&s);
    }
}

/* A state is where its ids say. A copy under another name is somebody's own: not counted, not removed, not read. */
static void copies_under_other_names_are_left_alone(void **state)
{
    (void)state;
    struct subject s;
    size_t bytes;
    char own[400] = "";
    subject_open(&s, 1 << 30);
    save(&s, 1, 100);
    uint64_t one = ssd_cache_stats(s.cache).bytes;
    DIR *dir = opendir(s.folder.path);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strstr(e->d_name, ".weirkv")) snprintf(own, sizeof own, "%s", temp_path(&s.folder, e->d_name));
    closedir(dir);
    unsigned char *data = take_file(own, &bytes);
    put_file(temp_path(&s.folder, "0000000000000001.weirkv"), data, bytes);
    reopen(&s, 1 << 30, 7);
    struct ssd_stats stats = ssd_cache_stats(s.cache);
    assert_int_equal(stats.n_states, 1);
    assert_int_equal(stats.n_foreign, 1);
    assert_int_equal(stats.bytes, one);
    assert_int_equal(restore(&s, 1, 100), 100);

    assert_int_equal(unlink(own), 0); /* what is left is the copy, which nobody finds */
    reopen(&s, 1 << 30, 7);
    assert_int_equal(ssd_cache_stats(s.cache).n_states, 0);
    uint32_t ids[] = {1000, 1001};
    assert_int_equal(ssd_cache_longest(s.cache, ids, 2), 0);
    assert_int_equal(ssd_cache_stats(s.cache).n_failed, 0);
    put_file(own, data, bytes);
    free(data);
    reopen(&s, 1 << 20, 7);
    assert_int_equal(restore(&s, 1, 100), 100);
    assert_true(file_exists(temp_path(&s.folder, "0000000000000001.weirkv")));
    subject_close(&s);
}

static void damage_and_links_are_left_alone(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, 1 << 30);
    save(&s, 1, 100);
    put_file(temp_path(&s.folder, "0000000000000001.weirkv"), "WEIRKV1\nshort", 13);
    put_file(temp_path(&s.folder, "0000000000000003.weirkv.tmp"), "WEIRKV1\n", 8); /* of a run that was killed */
    put_file(temp_path(&s.folder, "else.tmp"), "", 0);
    assert_int_equal(symlink("/etc/passwd", temp_path(&s.folder, "0000000000000002.weirkv")), 0);
    reopen(&s, 1 << 30, 7);
    struct ssd_stats stats = ssd_cache_stats(s.cache);
    assert_int_equal(stats.n_states, 1);
    assert_int_equal(stats.n_damaged + stats.n_foreign, 1);
    assert_true(file_exists(temp_path(&s.folder, "0000000000000001.weirkv")));
    assert_false(file_exists(temp_path(&s.folder, "0000000000000003.weirkv.tmp")));
    assert_true(file_exists(temp_path(&s.folder, "else.tmp")));
    subject_close(&s);
}

/* A state that the cap would never hold is not written, and that is said once. */
/* Somebody gives two files each other's names: both are whole, and each holds rows of another text than its name says.
 */
static void names_that_were_exchanged_mislead_nobody(void **state)
{
    (void)state;
    struct subject s;
    char paths[2][700], spare[700];
    const struct dirent *entry;
    size_t n = 0;
    subject_open(&s, 1 << 30);
    save(&s, 1, 100);
    save(&s, 2, 100);
    DIR *dir = opendir(s.folder.path);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, ".weirkv") && n < 2)
            snprintf(paths[n++], sizeof paths[0], "%s/%s", s.folder.path, entry->d_name);
    closedir(dir);
    assert_int_equal(n, 2);
    snprintf(spare, sizeof spare, "%s/spare", s.folder.path);
    assert_int_equal(rename(paths[0], spare), 0);
    assert_int_equal(rename(paths[1], paths[0]), 0);
    assert_int_equal(rename(spare, paths[1]), 0);
    assert_int_equal(restore(&s, 1, 100), 0); /* behind a cache that is open */
    assert_int_equal(ssd_cache_stats(s.cache).n_states, 1);
    reopen(&s, 1 << 30, 7); /* and before it is opened */
    assert_int_equal(ssd_cache_stats(s.cache).n_states, 0);
    assert_int_equal(ssd_cache_stats(s.cache).n_foreign, 2);
    assert_int_equal(restore(&s, 1, 100), 0);
    assert_int_equal(restore(&s, 2, 100), 0);
    save(&s, 2, 100);
    assert_int_equal(restore(&s, 2, 100), 100); /* what is saved anew is good again */
    subject_close(&s);
}

static void what_would_not_fit_is_not_written(void **state)
{
    (void)state;
    struct subject s;
    struct err warning;
    subject_open(&s, 5000);
    assert_int_equal(save(&s, 1, 200), SSD_TOO_LONG);
    assert_int_equal(save(&s, 2, 200), SSD_TOO_LONG);
    assert_true(ssd_cache_take_warning(s.cache, &warning));
    assert_non_null(strstr(warning.text, "--ssd-cache-max"));
    assert_false(ssd_cache_take_warning(s.cache, &warning));
    assert_int_equal(ssd_cache_stats(s.cache).n_too_large, 2);
    assert_int_equal(s.faulty.bytes_written, 0);
    subject_close(&s);
}

static void one_process_at_a_time_holds_the_folder(void **state)
{
    (void)state;
    struct subject s;
    struct ssd_cache *second;
    struct err err = {0};
    subject_open(&s, 1 << 30);
    struct ssd_settings settings = settings_of(&s, 1 << 30);
    assert_false(ssd_cache_open(&second, &s.alloc, &settings, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    subject_close(&s);
}

/* --- a disk that takes time, and one that hangs --- */

struct slow {
    struct sim_clock *time;
    int64_t fsync_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hangs, is_inside;
};

static int slow_fsync(void *context, int descriptor)
{
    struct slow *d = context;
    (void)descriptor;
    pthread_mutex_lock(&d->lock);
    d->is_inside = true;
    pthread_cond_broadcast(&d->changed);
    while (d->hangs) pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
    if (d->time) d->time->now_ns += d->fsync_ns;
    return 0;
}

static struct write_ops slow_ops(void)
{
    struct write_ops ops = *write_system_real().ops;
    ops.fsync = slow_fsync;
    return ops;
}

static void fill(struct subject *s, struct kv *kv, uint32_t *ids, uint32_t n)
{
    struct err err = {0};
    kv_init(kv, &s->pool);
    for (uint32_t p = 0; p < n; p++) {
        ids[p] = p;
        assert_true(kv_make_writable(kv, p, &err));
    }
    kv->n_rows = n;
}

/* While somebody waits for tokens, saving takes one part in SAVER_SHARE of the time, and never more than one step at a
 * stretch; when nobody does, it does not rest. */
static void saving_rests_while_somebody_waits(void **state)
{
    (void)state;
    enum { BLOCKS = 20, STEP = 10000000 };
    struct subject s;
    struct slow disk = {.fsync_ns = STEP};
    struct write_ops ops = slow_ops();
    struct err err = {0};
    static uint32_t ids[BLOCKS * KV_BLOCK_ROWS];
    pthread_mutex_init(&disk.lock, NULL);
    pthread_cond_init(&disk.changed, NULL);
    for (int busy = 1; busy >= 0; busy--) {
        struct kv kv;
        subject_open(&s, 1 << 30);
        ssd_cache_close(s.cache);
        disk.time = &s.time;
        struct ssd_settings settings = settings_of(&s, 1 << 30);
        settings.saver.ws = (struct write_system){&ops, &disk};
        if (!ssd_cache_open(&s.cache, &s.alloc, &settings, &err)) fail_msg("%s", err.text);
        fill(&s, &kv, ids, BLOCKS * KV_BLOCK_ROWS);
        assert_int_equal(ssd_cache_save(s.cache, &kv, ids, BLOCKS * KV_BLOCK_ROWS), SSD_BEGUN);
        kv_fini(&kv);
        assert_int_equal(ssd_cache_held_blocks(s.cache), BLOCKS);
        int64_t begin = s.time.now_ns, in_saver = 0;
        while (ssd_cache_is_saving(s.cache)) {
            int64_t before = s.time.now_ns;
            ssd_cache_tend(s.cache, busy);
            int64_t took = s.time.now_ns - before;
            assert_true(took <= 2 * STEP); /* the last step makes file and folder durable */
            in_saver += took;
            if (busy) s.time.now_ns += 1000000; /* a pass */
        }
        int64_t all = s.time.now_ns - begin;
        print_message("%s: %lld ms of %lld ms in the saver\n", busy ? "busy" : "idle", (long long)in_saver / 1000000,
                      (long long)all / 1000000);
        assert_int_equal(in_saver, (BLOCKS + 3) * (int64_t)STEP); /* ids, blocks, file, folder */
        assert_int_equal(ssd_cache_stats(s.cache).save_ns, in_saver);
        if (busy)
            assert_true(all >= (in_saver - 2 * STEP) * SAVER_SHARE);
        else
            assert_int_equal(all, in_saver);
        assert_int_equal(ssd_cache_held_blocks(s.cache), 0);
        assert_int_equal(ssd_cache_longest(s.cache, ids, BLOCKS * KV_BLOCK_ROWS), BLOCKS * KV_BLOCK_ROWS);
        subject_close(&s);
    }
    pthread_cond_destroy(&disk.changed);
    pthread_mutex_destroy(&disk.lock);
}

/* On a disk that hangs the engine's calls return all the same; nothing is lost when it comes back. */
static void a_disk_that_hangs_stops_nobody(void **state)
{
    (void)state;
    struct subject s;
    struct slow disk = {.hangs = true};
    struct write_ops ops = slow_ops();
    struct err err = {0};
    struct kv kv;
    uint32_t ids[100];
    pthread_mutex_init(&disk.lock, NULL);
    pthread_cond_init(&disk.changed, NULL);
    subject_open(&s, 1 << 30);
    ssd_cache_close(s.cache);
    struct ssd_settings settings = settings_of(&s, 1 << 30);
    settings.saver = (struct saver_settings){.ws = {&ops, &disk}, .clock = clock_real(), .has_thread = true};
    if (!ssd_cache_open(&s.cache, &s.alloc, &settings, &err)) fail_msg("%s", err.text);
    fill(&s, &kv, ids, 100);
    ssd_cache_tend(s.cache, true); /* somebody waits for tokens: rests are for later steps, the first is due at once */
    assert_int_equal(ssd_cache_save(s.cache, &kv, ids, 100), SSD_BEGUN);
    pthread_mutex_lock(&disk.lock);
    while (!disk.is_inside) pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
    for (int pass = 0; pass < 100; pass++) ssd_cache_tend(s.cache, true);
    assert_true(ssd_cache_is_saving(s.cache));
    assert_int_equal(ssd_cache_save(s.cache, &kv, ids, 100), SSD_NOT_NOW);
    assert_int_equal(ssd_cache_longest(s.cache, ids, 100), 0); /* what is not there whole is not there */
    kv_fini(&kv);
    pthread_mutex_lock(&disk.lock);
    disk.hangs = false;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
    ssd_cache_finish(s.cache);
    assert_int_equal(ssd_cache_longest(s.cache, ids, 100), 100);
    subject_close(&s);
    pthread_cond_destroy(&disk.changed);
    pthread_mutex_destroy(&disk.lock);
}

/* --- kill -9 --- */

/* Kills its process at the k-th operation, a pwrite in the middle. */
struct killer {
    uint64_t k, calls;
};

static bool is_last(struct killer *killer)
{
    return ++killer->calls == killer->k;
}

static int killer_open(void *context, const char *path, int flags, mode_t mode)
{
    if (is_last(context)) raise(SIGKILL);
    return write_system_real().ops->open(NULL, path, flags, mode);
}

static ssize_t killer_pwrite(void *context, int descriptor, const void *buffer, size_t bytes, off_t offset)
{
    bool last = is_last(context);
    ssize_t n = write_system_real().ops->pwrite(NULL, descriptor, buffer, last ? bytes / 2 : bytes, offset);
    if (last) raise(SIGKILL);
    return n;
}

static int killer_fsync(void *context, int descriptor)
{
    (void)descriptor;
    if (is_last(context)) raise(SIGKILL);
    return 0;
}

static int killer_rename(void *context, const char *from, const char *to)
{
    if (is_last(context)) raise(SIGKILL);
    return write_system_real().ops->rename(NULL, from, to);
}

static int killer_unlink(void *context, const char *path)
{
    if (is_last(context)) raise(SIGKILL);
    return write_system_real().ops->unlink(NULL, path);
}

static struct write_ops killer_ops(void)
{
    struct write_ops ops = *write_system_real().ops;
    ops.open = killer_open;
    ops.pwrite = killer_pwrite;
    ops.fsync = killer_fsync;
    ops.rename = killer_rename;
    ops.unlink = killer_unlink;
    return ops;
}

/* In a process of its own: goes on with the sequence of mark 1 from 100 to 200 tokens. True: it was killed. */
static bool save_and_die(struct subject *s, uint64_t k)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct killer killer = {.k = k};
        struct write_ops ops = killer_ops();
        struct ssd_settings settings = settings_of(s, 1 << 30);
        struct err err;
        settings.saver.ws = (struct write_system){&ops, &killer};
        if (ssd_cache_open(&s->cache, &s->alloc, &settings, &err)) {
            save(s, 1, 200);
            ssd_cache_close(s->cache);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return true;
    assert_true(WIFEXITED(status));
    return false;
}

static uint32_t n_files(const struct subject *s)
{
    uint32_t n = 0;
    DIR *dir = opendir(s->folder.path);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Killed at whatever point, a save loses the new tokens at most; no rest of it stays. */
static void a_killed_save_keeps_the_state_before_it(void **state)
{
    (void)state;
    uint32_t n_old = 0, n_new = 0;
    for (uint64_t k = 1;; k++) {
        struct subject s;
        subject_open(&s, 1 << 30);
        save(&s, 1, 100);
        ssd_cache_close(s.cache);
        s.cache = NULL;
        bool was_killed = save_and_die(&s, k);
        reopen(&s, 1 << 30, 7);
        uint32_t n = restore(&s, 1, 200);
        if (n != 100 && n != 200) fail_msg("killed at operation %lu: %u tokens are left", (unsigned long)k, n);
        n_old += n == 100;
        n_new += n == 200;
        save(&s, 1, 250); /* and it goes on */
        assert_int_equal(restore(&s, 1, 250), 250);
        ssd_cache_finish(s.cache);
        assert_int_equal(n_files(&s), 1);
        assert_int_equal(ssd_cache_stats(s.cache).n_failed, 0);
        subject_close(&s);
        if (!was_killed) break;
    }
    print_message("killed at %u operations: %u times the older state was left, %u times the new one\n",
                  n_old + n_new - 1, n_old, n_new);
    assert_true(n_old > 10);
    assert_true(n_new > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_found_again_after_a_restart),
        cmocka_unit_test(the_size_is_kept_by_last_use),
        cmocka_unit_test(trouble_with_the_disk_is_told_once_and_counted),
        cmocka_unit_test(damage_and_links_are_left_alone),
        cmocka_unit_test(copies_under_other_names_are_left_alone),
        cmocka_unit_test(names_that_were_exchanged_mislead_nobody),
        cmocka_unit_test(what_would_not_fit_is_not_written),
        cmocka_unit_test(one_process_at_a_time_holds_the_folder),
        cmocka_unit_test(saving_rests_while_somebody_waits),
        cmocka_unit_test(a_disk_that_hangs_stops_nobody),
        cmocka_unit_test(a_killed_save_keeps_the_state_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
