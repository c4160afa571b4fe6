#include "support/temp_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void temp_folder_make(struct temp_folder *folder)
{
    const char *base = getenv("TMPDIR");
    /* In memory where that is possible: a rename over a file makes some disks wait for its data. */
    if (!base) base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder->path, sizeof folder->path, "%s/weir-test-XXXXXX", base);
    if (!mkdtemp(folder->path)) fail_msg("%s: %s", folder->path, strerror(errno));
}

void temp_folder_remove(struct temp_folder *folder)
{
    remove_tree(folder->path);
}

const char *temp_path(const struct temp_folder *folder, const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder->path, name);
    return path;
}

void put_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) fail_msg("%s: cannot write", path);
}

unsigned char *take_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    if (fread(data, 1, *bytes, file) != *bytes) fail_msg("%s: cannot read", path);
    data[*bytes] = 0;
    fclose(file);
    return data;
}

bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

void remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0) return;
    if (!S_ISDIR(st.st_mode)) {
        unlink(path);
        return;
    }
    chmod(path, 0700);
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char inner[1024];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        remove_tree(inner);
    }
    closedir(dir);
    rmdir(path);
}

/* Every file of `a` has a twin in `b`; returns how many there are. */
static unsigned compare_one_way(const char *a, const char *b)
{
    unsigned n = 0;
    DIR *dir = opendir(a);
    if (!dir) fail_msg("%s: %s", a, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char left[1024], right[1024];
        snprintf(left, sizeof left, "%s/%s", a, entry->d_name);
        snprintf(right, sizeof right, "%s/%s", b, entry->d_name);
        if (!file_exists(right)) fail_msg("%s is in %s only", entry->d_name, a);
        size_t n_left, n_right;
        unsigned char *x = take_file(left, &n_left), *y = take_file(right, &n_right);
        if (n_left != n_right || memcmp(x, y, n_left) != 0) fail_msg("%s differs from %s", left, right);
        free(x);
        free(y);
        n++;
    }
    closedir(dir);
    return n;
}

void assert_same_folders(const char *a, const char *b)
{
    unsigned n = compare_one_way(a, b);
    assert_true(n > 0); /* two empty folders would prove nothing */
    assert_int_equal(n, compare_one_way(b, a));
}
