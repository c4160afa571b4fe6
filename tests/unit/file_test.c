#include "plat/file.h"
#include "support/check.h"
#include "support/faulty_files.h"
#include "support/temp_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
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

static const char *put_bytes(const char *name, size_t n)
{
    unsigned char *data = malloc(n + 1);
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * 7);
    const char *path = temp_path(&folder, name);
    put_file(path, data, n);
    free(data);
    return path;
}

static void reads_are_whole_however_the_system_cuts_them(void **state)
{
    (void)state;
    const char *path = put_bytes("a", 5000);
    static const struct faulty_files kinds[] = {
        {0}, {.read_most = 1}, {.read_most = 999}, {.interrupts = true}, {.read_most = 3, .interrupts = true}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct faulty_files faulty = kinds[k];
        struct alloc alloc = {0};
        struct file file;
        struct err err = {0};
        unsigned char bytes[1000];
        if (!file_open(&file, &alloc, faulty_files_system(&faulty), path, &err)) fail_msg("%s", err.text);
        assert_int_equal(file.identity.bytes, 5000);
        if (!file_read(&file, bytes, 1000, 3999, &err)) fail_msg("%s", err.text);
        for (size_t i = 0; i < 1000; i++) assert_int_equal(bytes[i], (unsigned char)((i + 3999) * 7));
        assert_true(file_read(&file, bytes, 0, 5000, &err));
        file_close(&file);
        file_close(&file);
        assert_int_equal(faulty.n_open, 0);
        assert_int_equal(alloc.live, 0);
    }
}

static void a_read_past_the_end_says_where_the_file_ends(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct file file;
    struct err err = {0};
    unsigned char bytes[100];
    if (!file_open(&file, &alloc, file_system_real(), put_bytes("b", 50), &err)) fail_msg("%s", err.text);
    assert_false(file_read(&file, bytes, 20, 40, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "ends at 50, inside the 20 bytes at offset 40"));
    assert_false(file_read(&file, bytes, 1, UINT64_MAX, &err));
    assert_false(file_read(&file, bytes, 1, INT64_MAX, &err));
    assert_false(file_read(&file, bytes, UINT64_MAX, 1, &err));
    assert_non_null(strstr(err.text, "no file reaches offset"));
    file_close(&file);
    assert_int_equal(alloc.live, 0);
}

static void errors_have_the_kind_of_their_cause(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct file file;
    struct err err = {0};
    const char *path = put_bytes("c", 10), *link = temp_path(&folder, "loop");
    char below[600];
    snprintf(below, sizeof below, "%s/below", path);
    assert_int_equal(symlink("loop", link), 0);
    const char *nowhere[] = {"/nonexistent", below, link};
    for (size_t i = 0; i < 3; i++) {
        assert_false(file_open(&file, &alloc, file_system_real(), nowhere[i], &err));
        assert_int_equal(err.kind, ERR_DATA);
        assert_non_null(strstr(err.text, nowhere[i]));
    }
    for (uint64_t k = 1; k <= 2; k++) {
        struct faulty_files faulty = {.fail_at = k, .error = EACCES};
        assert_false(file_open(&file, &alloc, faulty_files_system(&faulty), path, &err));
        assert_int_equal(err.kind, ERR_IO);
        assert_non_null(strstr(err.text, strerror(EACCES)));
        assert_int_equal(faulty.n_open, 0);
    }
    file_close(&file); /* safe after a failed open */
    struct alloc failing = {.fail_at = 1};
    assert_false(file_open(&file, &failing, file_system_real(), path, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
    assert_int_equal(alloc.live + failing.live, 0);
}

static void a_changed_file_is_noticed(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct file file;
    struct err err = {0};
    const char *path = put_bytes("d", 100);
    if (!file_open(&file, &alloc, file_system_real(), path, &err)) fail_msg("%s", err.text);
    if (!file_recheck(&file, &err)) fail_msg("%s", err.text);
    assert_int_equal(truncate(path, 99), 0);
    assert_false(file_recheck(&file, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "100 bytes when opened, 99 now"));
    assert_int_equal(truncate(path, 100), 0);
    const struct timeval times[2] = {{1000000000, 0}, {1000000000, 0}}; /* same size, other time */
    assert_int_equal(utimes(path, times), 0);
    assert_false(file_recheck(&file, &err));
    file_close(&file);

    if (!file_open(&file, &alloc, file_system_real(), path, &err)) fail_msg("%s", err.text);
    if (!file_recheck(&file, &err)) fail_msg("%s", err.text);
    assert_int_equal(unlink(path), 0);
    put_bytes("d", 100); /* the same name and size, another file */
    assert_false(file_recheck(&file, &err));
    assert_non_null(strstr(err.text, "deleted or replaced"));
    file_close(&file);
    assert_int_equal(alloc.live, 0);
}

static void whole_files_have_a_limit_and_a_nul_behind_them(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    size_t bytes;
    const char *path = put_bytes("e", 300);
    char *text = file_read_all(&alloc, file_system_real(), path, 300, &bytes, &err);
    assert_non_null(text);
    assert_int_equal(bytes, 300);
    assert_int_equal(text[300], 0);
    alloc_put(&alloc, text);
    assert_null(file_read_all(&alloc, file_system_real(), path, 299, &bytes, &err));
    assert_non_null(strstr(err.text, "300 bytes, more than the limit of 299"));
    for (uint64_t k = 1; k <= 3; k++) {
        struct faulty_files faulty = {.fail_at = k};
        assert_null(file_read_all(&alloc, faulty_files_system(&faulty), path, 300, &bytes, &err));
        assert_int_equal(err.kind, ERR_IO);
        assert_int_equal(faulty.n_open, 0);
    }
    assert_int_equal(alloc.live, 0);
}

static void presence_is_of_a_name_not_of_what_it_leads_to(void **state)
{
    (void)state;
    struct file_system fs = file_system_real();
    assert_true(file_present(fs, put_bytes("f", 1)));
    assert_true(file_present(fs, folder.path));
    assert_false(file_present(fs, temp_path(&folder, "absent")));
    assert_int_equal(symlink("absent", temp_path(&folder, "dangling")), 0);
    assert_true(file_present(fs, temp_path(&folder, "dangling")));
    assert_int_equal(mkfifo(temp_path(&folder, "pipe"), 0600), 0);
    assert_true(file_present(fs, temp_path(&folder, "pipe"))); /* and does not wait for a writer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_whole_however_the_system_cuts_them),
        cmocka_unit_test(a_read_past_the_end_says_where_the_file_ends),
        cmocka_unit_test(errors_have_the_kind_of_their_cause),
        cmocka_unit_test(a_changed_file_is_noticed),
        cmocka_unit_test(whole_files_have_a_limit_and_a_nul_behind_them),
        cmocka_unit_test(presence_is_of_a_name_not_of_what_it_leads_to),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
