#include "fetch/hub_cache.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REF_BYTES_MAX = 4096 };

static bool print_path(struct hub_path *path, struct err *err, const char *format, ...) PRINTF_LIKE(3, 4);
static bool print_path(struct hub_path *path, struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(path->text, sizeof path->text, format, args);
    va_end(args);
    if (n >= 0 && n < (int)sizeof path->text) return true;
    return err_set(err, ERR_USER, "%.100s...: the path is too long; HF_HUB_CACHE can name a shorter one", path->text);
}

void hub_cache_init(struct hub_cache *cache, const char *root, const char *id, struct alloc *alloc,
                    struct file_system fs, struct write_system ws)
{
    const char *slash = strchr(id, '/');
    *cache = (struct hub_cache){.root = root, .alloc = alloc, .fs = fs, .ws = ws};
    snprintf(cache->folder, sizeof cache->folder, "models--%.*s%s%s", slash ? (int)(slash - id) : HUB_ID_MAX, id,
             slash ? "--" : "", slash ? slash + 1 : "");
}

bool hub_cache_blob(struct hub_path *path, const struct hub_cache *cache, const char *blob, const char *suffix,
                    struct err *err)
{
    return print_path(path, err, "%s/%s/blobs/%s%s", cache->root, cache->folder, blob, suffix);
}

bool hub_cache_snapshot(struct hub_path *path, const struct hub_cache *cache, const char *commit, struct err *err)
{
    return print_path(path, err, "%s/%s/snapshots/%s", cache->root, cache->folder, commit);
}

bool hub_cache_prepare(const struct hub_cache *cache, struct err *err)
{
    struct hub_path path;
    return print_path(&path, err, "%s/%s/blobs", cache->root, cache->folder) &&
           folder_make(cache->alloc, cache->ws, path.text, err) &&
           print_path(&path, err, "%s/.locks/%s", cache->root, cache->folder) &&
           folder_make(cache->alloc, cache->ws, path.text, err);
}

bool hub_cache_lock(struct folder_lock *lock, const struct hub_cache *cache, const char *blob, struct err *err)
{
    struct hub_path path;
    return print_path(&path, err, "%s/.locks/%s/%s.lock", cache->root, cache->folder, blob) &&
           file_lock(lock, cache->ws, path.text, err);
}

bool hub_file_bytes(const struct hub_cache *cache, const char *path, uint64_t *bytes)
{
    struct file file;
    struct err ignored = {0};
    if (!file_open(&file, cache->alloc, cache->fs, path, &ignored)) return false;
    *bytes = file.identity.bytes;
    file_close(&file);
    return true;
}

/* "../../blobs/DIGEST", with one more step up for each folder inside the snapshot. */
static bool print_target(struct hub_path *target, const struct hub_file *file, struct err *err)
{
    size_t used = 0;
    target->text[0] = 0;
    for (const char *c = file->path; *c && used + 4 < sizeof target->text; c++)
        if (*c == '/') used += (size_t)snprintf(target->text + used, sizeof target->text - used, "../");
    int n = snprintf(target->text + used, sizeof target->text - used, "../../blobs/%s", file->blob);
    if (n >= 0 && used + (size_t)n < sizeof target->text) return true;
    return err_set(err, ERR_USER, "%.100s...: the path is too long; --exclude leaves the file out", file->path);
}

bool hub_cache_link(const struct hub_cache *cache, const char *commit, const struct hub_file *file, struct err *err)
{
    struct hub_path folder, path, target, now;
    uint64_t bytes;
    const char *slash = strrchr(file->path, '/');
    if (!print_target(&target, file, err) || !hub_cache_snapshot(&folder, cache, commit, err) ||
        !print_path(&path, err, "%s/%s", folder.text, file->path))
        return false;
    ssize_t n = readlink(path.text, now.text, sizeof now.text);
    if (n == (ssize_t)strlen(target.text) && memcmp(now.text, target.text, (size_t)n) == 0) return true;
    /* Where links do not work, other clients put the file itself here. */
    if (n < 0 && errno == EINVAL && hub_file_bytes(cache, path.text, &bytes) && bytes == file->bytes) return true;
    if (slash &&
        !print_path(&folder, err, "%.*s", (int)(slash - file->path + (long)strlen(folder.text) + 1), path.text))
        return false;
    return folder_make(cache->alloc, cache->ws, folder.text, err) &&
           file_link(cache->alloc, cache->ws, target.text, path.text, err);
}

static bool print_ref(struct hub_path *path, const struct hub_cache *cache, const char *revision, struct err *err)
{
    return print_path(path, err, "%s/%s/refs/%s", cache->root, cache->folder, revision);
}

bool hub_cache_read_ref(const struct hub_cache *cache, const char *revision, char commit[HUB_COMMIT_TEXT], bool *found,
                        struct err *err)
{
    struct hub_path path;
    size_t bytes;
    *found = false;
    if (!print_ref(&path, cache, revision, err)) return false;
    if (!file_present(cache->fs, path.text)) return true;
    char *text = file_read_all(cache->alloc, cache->fs, path.text, REF_BYTES_MAX, &bytes, err);
    if (!text) return false;
    text[strcspn(text, " \r\n")] = 0;
    *found = hub_is_commit(text);
    if (*found) memcpy(commit, text, HUB_COMMIT_TEXT);
    alloc_put(cache->alloc, text);
    return *found || err_set(err, ERR_DATA, "%s: does not hold a commit; remove it", path.text);
}

bool hub_cache_write_ref(const struct hub_cache *cache, const char *revision, const char *commit, struct err *err)
{
    struct hub_path path, folder;
    if (!print_ref(&path, cache, revision, err)) return false;
    folder = path;
    *strrchr(folder.text, '/') = 0;
    return folder_make(cache->alloc, cache->ws, folder.text, err) &&
           file_write_all(cache->alloc, cache->ws, path.text, commit, strlen(commit), err);
}

bool hub_cache_free_bytes(const struct hub_cache *cache, uint64_t *bytes, struct err *err)
{
    struct hub_path path;
    if (!print_path(&path, err, "%s", cache->root)) return false;
    for (;;) {
        if (cache->ws.ops->free_bytes(cache->ws.context, path.text, bytes) == 0) return true;
        char *slash = strrchr(path.text, '/');
        if (errno != ENOENT || !slash || !path.text[1]) break;
        slash[slash == path.text] = 0; /* the root of all keeps its slash */
    }
    return folder_free_bytes(cache->ws, cache->root, bytes, err);
}
