/* Files appear whole or not at all, under every single fault; locks exclude; messages tell what to do. */
#include "plat/file_write.h"
#include "plat/digest.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct temp_folder folder;

static int make_folder(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void assert_file_is(const char *path, const char *want)
{
    size_t bytes;
    unsigned char *data = take_file(path, &bytes);
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(data, want, bytes);
    free(data);
}

/* 5,000 bytes in three writes, the last part first. */
static char long_text[5001];

static bool write_long(struct alloc *alloc, struct write_system ws, const char *path, struct err *err)
{
    struct file_writer writer;
    memset(long_text, 'w', 5000);
    if (!file_create(&writer, alloc, ws, path, err)) return false;
    if (!file_write(&writer, long_text, 2000, 3000, err) || !file_write(&writer, long_text, 1000, 0, err) ||
        !file_write(&writer, long_text, 2000, 1000, err)) {
        file_abandon(&writer);
        file_abandon(&writer);
        return false;
    }
    return file_commit(&writer, err);
}

static void whole_file_with_the_real_system(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    const char *path = temp_path(&folder, "real");
    if (!write_long(&alloc, write_system_real(), path, &err)) fail_msg("%s", err.text);
    assert_file_is(path, long_text);
    assert_true(file_write_all(&alloc, write_system_real(), path, "new", 3, &err));
    assert_file_is(path, "new");
    assert_false(file_exists(temp_path(&folder, "real.tmp")));
    assert_true(file_remove(&alloc, write_system_real(), path, &err));
    assert_true(file_remove(&alloc, write_system_real(), path, &err)); /* not there is fine */
    assert_false(file_exists(path));
    assert_int_equal(alloc.live, 0);
}

static void interruptions_and_short_writes_do_not_show(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct faulty_write faulty = {.interrupts = true};
    const char *path = temp_path(&folder, "interrupted");
    if (!write_long(&alloc, faulty_write_system(&faulty), path, &err)) fail_msg("%s", err.text);
    assert_file_is(path, long_text);
    assert_true(faulty.calls > 8); /* the writes were really cut in pieces */
}

static void old_or_new_but_never_between(void **state)
{
    (void)state;
    bool seen_old = false, seen_new = false;
    for (int kind = 0; kind < 3; kind++) {
        for (uint64_t k = 1;; k++) {
            struct alloc alloc = {0};
            struct err err = {0};
            struct faulty_write faulty = {.fail_at = k, .stops = kind > 0, .loses = kind > 1, .tears = true};
            const char *path = temp_path(&folder, "swept");
            put_file(path, "old", 3);
            bool ok = write_long(&alloc, faulty_write_system(&faulty), path, &err);
            size_t bytes;
            unsigned char *data = take_file(path, &bytes);
            bool is_old = bytes == 3 && !memcmp(data, "old", 3),
                 is_new = bytes == 5000 && !memcmp(data, long_text, 5000);
            free(data);
            if (!is_old && !is_new) fail_msg("kind %d, fault at operation %d: torn file", kind, (int)k);
            if (ok && !is_new) fail_msg("kind %d, operation %d: told success, wrote nothing", kind, (int)k);
            if (!ok && !err.text[0]) fail_msg("kind %d, operation %d: failed without a word", kind, (int)k);
            if (!faulty.stops && file_exists(temp_path(&folder, "swept.tmp"))) fail_msg("operation %d: litter", (int)k);
            assert_int_equal(alloc.live, 0);
            seen_old |= is_old, seen_new |= is_new;
            if (ok && faulty.calls < k) break;
        }
    }
    assert_true(seen_old && seen_new);
}

static void allocation_failures(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        bool ok = write_long(&alloc, write_system_real(), temp_path(&folder, "lean"), &err);
        assert_int_equal(alloc.live, 0);
        if (ok) break;
        assert_int_equal(err.kind, ERR_NOMEM);
    }
}

static void a_full_disk_says_so(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct faulty_write faulty = {.fail_at = 4, .stops = false, .tears = true, .error = ENOSPC};
    assert_false(write_long(&alloc, faulty_write_system(&faulty), temp_path(&folder, "full"), &err));
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "full.tmp: writing 1000 bytes at offset 0"));
    assert_non_null(strstr(err.text, "make room"));
    assert_false(file_exists(temp_path(&folder, "full")));
    assert_false(file_exists(temp_path(&folder, "full.tmp")));
}

static void links_are_replaced_not_followed(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    put_file(temp_path(&folder, "target"), "keep", 4);
    assert_int_equal(symlink(temp_path(&folder, "target"), temp_path(&folder, "link")), 0);
    assert_int_equal(symlink(temp_path(&folder, "target"), temp_path(&folder, "link.tmp")), 0);
    assert_true(file_write_all(&alloc, write_system_real(), temp_path(&folder, "link"), "new", 3, &err));
    assert_file_is(temp_path(&folder, "target"), "keep");
    assert_file_is(temp_path(&folder, "link"), "new");
}

static void one_writer_per_folder(void **state)
{
    (void)state;
    struct err err = {0};
    struct folder_lock first = {0}, second = {0};
    const char *path = temp_path(&folder, "locked");
    assert_true(folder_lock(&first, write_system_real(), path, &err));
    assert_false(folder_lock(&second, write_system_real(), path, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_non_null(strstr(err.text, "another process"));
    folder_unlock(&second);
    folder_unlock(&first);
    folder_unlock(&first);
    assert_true(folder_lock(&second, write_system_real(), path, &err));
    folder_unlock(&second);

    put_file(temp_path(&folder, "plain"), "", 0);
    assert_false(folder_lock(&first, write_system_real(), temp_path(&folder, "plain"), &err));
    assert_int_equal(err.kind, ERR_IO);
    uint64_t bytes = 0;
    assert_true(folder_free_bytes(write_system_real(), path, &bytes, &err));
    assert_true(bytes > 0);
    assert_false(folder_free_bytes(write_system_real(), temp_path(&folder, "nowhere"), &bytes, &err));
}

static void a_file_in_more_than_one_run(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct file_writer writer;
    struct folder_lock first = {0}, second = {0};
    char path[512], part[512];
    snprintf(path, sizeof path, "%s", temp_path(&folder, "grown"));
    snprintf(part, sizeof part, "%s", temp_path(&folder, "grown.part"));
    assert_true(file_lock(&first, write_system_real(), temp_path(&folder, "lock"), &err));
    assert_false(file_lock(&second, write_system_real(), temp_path(&folder, "lock"), &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_true(file_continue(&writer, &alloc, write_system_real(), path, part, &err));
    assert_true(file_write(&writer, "cd", 2, 2, &err) && file_sync(&writer, &err));
    file_suspend(&writer);
    file_suspend(&writer);
    assert_false(file_exists(path));
    assert_true(file_continue(&writer, &alloc, write_system_real(), path, part, &err));
    assert_true(file_write(&writer, "ab", 2, 0, &err) && file_commit(&writer, &err));
    assert_file_is(path, "abcd");
    assert_false(file_exists(part));
    folder_unlock(&first);
    assert_true(file_lock(&second, write_system_real(), temp_path(&folder, "lock"), &err));
    folder_unlock(&second);

    assert_int_equal(symlink(path, part), 0); /* nothing is written through a link */
    assert_false(file_continue(&writer, &alloc, write_system_real(), path, part, &err));
    for (uint64_t k = 1; k <= 2; k++) {
        alloc.fail_at = alloc.calls + k;
        assert_false(file_continue(&writer, &alloc, write_system_real(), path, path, &err));
    }
    assert_int_equal(alloc.live, 0);
}

static void folders_and_links(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct write_system ws = write_system_real();
    char target[64];
    for (int again = 0; again < 2; again++) assert_true(folder_make(&alloc, ws, temp_path(&folder, "a/b/c"), &err));
    assert_true(file_exists(temp_path(&folder, "a/b/c")));
    assert_true(file_link(&alloc, ws, "../one", temp_path(&folder, "a/link"), &err));
    assert_true(file_link(&alloc, ws, "../two", temp_path(&folder, "a/link"), &err));
    ssize_t n = readlink(temp_path(&folder, "a/link"), target, sizeof target - 1);
    assert_int_equal(n, 6);
    assert_memory_equal(target, "../two", 6);
    assert_int_equal(symlink("../old", temp_path(&folder, "a/link.tmp")), 0); /* of a run that was killed */
    assert_true(file_link(&alloc, ws, "../three", temp_path(&folder, "a/link"), &err));
    assert_int_equal(readlink(temp_path(&folder, "a/link"), target, sizeof target - 1), 8);
    assert_memory_equal(target, "../three", 8);
    put_file(temp_path(&folder, "a/file"), "", 0);
    assert_false(folder_make(&alloc, ws, temp_path(&folder, "a/file/b"), &err));
    assert_non_null(strstr(err.text, "cannot make the folder: Not a directory"));
    assert_false(file_link(&alloc, ws, "x", temp_path(&folder, "a/nowhere/link"), &err));
    for (uint64_t k = 1; k <= 2; k++) {
        struct faulty_write faulty = {.fail_at = k};
        assert_false(file_link(&alloc, faulty_write_system(&faulty), "x", temp_path(&folder, "a/other"), &err));
        assert_false(file_exists(temp_path(&folder, "a/other")));
    }
    assert_int_equal(alloc.live, 0);
}

static void only_files_are_replaced(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    static const char *const names[] = {"pipe", "to_pipe", "folder", "output"};
    struct stat st;
    assert_int_equal(mkfifo(temp_path(&folder, "pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", temp_path(&folder, "to_pipe")), 0);
    assert_int_equal(mkdir(temp_path(&folder, "folder"), 0700), 0);
    assert_int_equal(symlink("/proc/self/exe", temp_path(&folder, "output")), 0); /* a file, by way of a process */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct err err = {0};
        char path[256], path_tmp[264];
        snprintf(path, sizeof path, "%s", temp_path(&folder, names[i]));
        snprintf(path_tmp, sizeof path_tmp, "%s.tmp", path);
        print_message("%s\n", path);
        assert_false(file_write_all(&alloc, write_system_real(), path, "new", 3, &err));
        assert_int_equal(err.kind, ERR_IO);
        assert_non_null(strstr(err.text, "something else than a file has this name"));
        assert_false(file_exists(path_tmp));
        assert_int_equal(lstat(path, &st), 0);
        assert_false(S_ISREG(st.st_mode));
    }
    assert_int_equal(alloc.live, 0);
}

/* Two downloads of one model come to the same link at the same time. */
static void processes_that_make_the_same_link(void **state)
{
    (void)state;
    enum { PROCESSES = 4, TIMES = 500 };
    pid_t children[PROCESSES];
    const char *path = temp_path(&folder, "same");
    char target[64];
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        struct alloc alloc = {0};
        struct err err = {0};
        bool ok = true;
        for (int times = 0; ok && times < TIMES; times++)
            ok = file_link(&alloc, write_system_real(), "../one", path, &err);
        if (!ok) fprintf(stderr, "%s\n", err.text);
        _exit(!ok);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(readlink(path, target, sizeof target), 6);
    assert_memory_equal(target, "../one", 6);
}

static void digests(void **state)
{
    (void)state;
    struct digest digest;
    struct err err = {0};
    char text[DIGEST_TEXT];
    assert_true(digest_init_git_blob(&digest, 6, &err) && digest_add(&digest, "hel", 3, &err) &&
                digest_add(&digest, "lo\n", 3, &err) && digest_text(&digest, text, &err));
    digest_fini(&digest);
    assert_string_equal(text, "ce013625030ba8dba906f756967f9e9ca394464a"); /* as git hash-object says */
    assert_true(digest_init(&digest, &err) && digest_add(&digest, "hello\n", 6, &err) &&
                digest_text(&digest, text, &err));
    digest_fini(&digest);
    digest_fini(&digest);
    assert_string_equal(text, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_file_with_the_real_system),
        cmocka_unit_test(interruptions_and_short_writes_do_not_show),
        cmocka_unit_test(old_or_new_but_never_between),
        cmocka_unit_test(allocation_failures),
        cmocka_unit_test(a_full_disk_says_so),
        cmocka_unit_test(links_are_replaced_not_followed),
        cmocka_unit_test(only_files_are_replaced),
        cmocka_unit_test(one_writer_per_folder),
        cmocka_unit_test(a_file_in_more_than_one_run),
        cmocka_unit_test(folders_and_links),
        cmocka_unit_test(processes_that_make_the_same_link),
        cmocka_unit_test(digests),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
