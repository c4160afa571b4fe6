#include "fetch/blob.h"

#include "base/assert.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STATE_BYTES_MAX = 64 << 20, BLOCK_BYTES = 1 << 20 };

void blob_init(struct blob *blob, const struct hub_cache *cache, const struct hub_file *file)
{
    *blob = (struct blob){.cache = cache, .name = file->blob, .path = file->path, .bytes = file->bytes};
}

static bool blob_path(struct hub_path *path, const struct blob *b, const char *suffix, struct err *err)
{
    return hub_cache_blob(path, b->cache, b->name, suffix, err);
}

/* --- what is here --- */

static bool look_whether_complete(struct blob *b, struct err *err)
{
    struct hub_path path;
    uint64_t bytes;
    if (!blob_path(&path, b, "", err)) return false;
    b->is_complete = hub_file_bytes(b->cache, path.text, &bytes) && bytes == b->bytes;
    return true;
}

/* The segments beside the partial file, if both are there and fit together; else none, and *found is false. */
static bool read_segments(struct blob *b, struct segments *out, bool *found, struct err *err)
{
    struct hub_path partial, state;
    uint64_t extent;
    size_t bytes;
    const struct hub_cache *c = b->cache;
    *found = false;
    if (!blob_path(&partial, b, HUB_PARTIAL, err) || !blob_path(&state, b, HUB_SEGMENTS, err)) return false;
    if (!hub_file_bytes(c, partial.text, &extent) || !file_present(c->fs, state.text)) return true;
    char *text = file_read_all(c->alloc, c->fs, state.text, STATE_BYTES_MAX, &bytes, err);
    if (!text) return false;
    struct err none = {0};
    bool ok = segments_parse(out, c->alloc, b->bytes, text, &none);
    alloc_put(c->alloc, text);
    if (none.kind) {
        *err = none;
        return false;
    }
    *found = ok && segments_extent(out) <= extent && extent <= b->bytes;
    if (ok && !*found) segments_fini(out);
    return true;
}

/* Bytes of what another client left unfinished. It fills its file from the beginning; if that was not so, the digest
 * will tell. */
static bool foreign_bytes(const struct blob *b, uint64_t *bytes, struct err *err)
{
    struct hub_path path;
    if (!blob_path(&path, b, HUB_FOREIGN_PARTIAL, err)) return false;
    if (!hub_file_bytes(b->cache, path.text, bytes) || *bytes > b->bytes) *bytes = 0;
    return true;
}

bool blob_credit(struct blob *b, struct err *err)
{
    struct segments segments = {0};
    bool found;
    b->credit = 0;
    if (!look_whether_complete(b, err)) return false;
    if (b->is_complete) {
        b->credit = b->bytes;
        return true;
    }
    if (!read_segments(b, &segments, &found, err)) return false;
    if (!found) return foreign_bytes(b, &b->credit, err);
    b->credit = segments.bytes_done;
    segments_fini(&segments);
    return true;
}

/* --- opening --- */

static bool write_segments(const struct blob *b, struct err *err)
{
    struct hub_path path;
    struct buf text;
    const struct hub_cache *c = b->cache;
    buf_init(&text, c->alloc, STATE_BYTES_MAX);
    bool ok = blob_path(&path, b, HUB_SEGMENTS, err) && segments_print(&b->segments, &text, err) &&
              file_write_all(c->alloc, c->ws, path.text, text.data, text.bytes, err);
    buf_fini(&text);
    return ok;
}

/* The other client's lock is ours now, so its partial file can be ours too. The segments come first: alone they count
 * for nothing. */
static bool adopt(struct blob *b, uint64_t bytes, struct err *err)
{
    struct hub_path from, to;
    struct write_system ws = b->cache->ws;
    segments_credit(&b->segments, bytes);
    if (!blob_path(&from, b, HUB_FOREIGN_PARTIAL, err) || !blob_path(&to, b, HUB_PARTIAL, err)) return false;
    if (!write_segments(b, err)) return false;
    if (ws.ops->rename(ws.context, from.text, to.text) == 0) return true;
    return err_set(err, ERR_IO, "%s: cannot go on with what another program left; remove it", from.text);
}

static bool find_beginning(struct blob *b, uint64_t segment_bytes, struct err *err)
{
    bool found;
    uint64_t foreign;
    struct hub_path partial;
    if (!read_segments(b, &b->segments, &found, err) || !foreign_bytes(b, &foreign, err)) return false;
    if (found) return true;
    if (!blob_path(&partial, b, HUB_PARTIAL, err) || !file_remove(b->cache->alloc, b->cache->ws, partial.text, err))
        return false;
    if (!segments_init(&b->segments, b->cache->alloc, b->bytes, segment_bytes, err)) return false;
    return foreign == 0 || adopt(b, foreign, err);
}

static bool start_digest(struct blob *b, struct err *err)
{
    digest_fini(&b->digest);
    b->bytes_hashed = 0;
    if (strlen(b->name) == 40) return digest_init_git_blob(&b->digest, b->bytes, err);
    return digest_init(&b->digest, err);
}

static bool open_files(struct blob *b, struct err *err)
{
    struct hub_path path, partial;
    const struct hub_cache *c = b->cache;
    if (!blob_path(&path, b, "", err) || !blob_path(&partial, b, HUB_PARTIAL, err)) return false;
    if (!file_continue(&b->writer, c->alloc, c->ws, path.text, partial.text, err)) return false;
    if (!file_open(&b->reader, c->alloc, c->fs, partial.text, err)) return false;
    b->block = alloc_get(c->alloc, BLOCK_BYTES, err);
    return b->block && start_digest(b, err);
}

bool blob_open(struct blob *b, uint64_t segment_bytes, struct err *err)
{
    if (!hub_cache_lock(&b->lock, b->cache, b->name, err)) return false;
    b->is_open = true;
    if (!look_whether_complete(b, err)) goto fail; /* whoever had the lock before may have finished it */
    if (b->is_complete) {
        blob_close(b);
        return true;
    }
    if (!find_beginning(b, segment_bytes, err) || !open_files(b, err)) goto fail;
    b->credit = b->bytes_saved = b->segments.bytes_done;
    return true;
fail:
    blob_close(b);
    return false;
}

void blob_close(struct blob *b)
{
    if (!b->is_open) return;
    file_suspend(&b->writer);
    file_close(&b->reader);
    segments_fini(&b->segments);
    digest_fini(&b->digest);
    alloc_put(b->cache->alloc, b->block);
    b->block = NULL;
    folder_unlock(&b->lock);
    b->is_open = false;
}

/* --- bytes --- */

bool blob_put(struct blob *b, uint32_t segment, const void *data, uint64_t bytes, struct err *err)
{
    ASSERT(b->is_open);
    if (!file_write(&b->writer, data, bytes, segments_offset(&b->segments, segment), err)) return false;
    segments_advance(&b->segments, segment, bytes);
    return true;
}

bool blob_hash(struct blob *b, uint64_t bytes_max, struct err *err)
{
    ASSERT(b->is_open);
    uint64_t prefix = segments_prefix(&b->segments);
    uint64_t end = prefix - b->bytes_hashed < bytes_max ? prefix : b->bytes_hashed + bytes_max;
    while (b->bytes_hashed < end) {
        uint64_t n = end - b->bytes_hashed < BLOCK_BYTES ? end - b->bytes_hashed : BLOCK_BYTES;
        if (!file_read(&b->reader, b->block, n, b->bytes_hashed, err) || !digest_add(&b->digest, b->block, n, err))
            return false;
        b->bytes_hashed += n;
    }
    return true;
}

bool blob_save(struct blob *b, struct err *err)
{
    ASSERT(b->is_open);
    if (b->segments.bytes_done == b->bytes_saved) return true;
    if (!file_sync(&b->writer, err) || !write_segments(b, err)) return false;
    b->bytes_saved = b->segments.bytes_done;
    return true;
}

bool blob_restart(struct blob *b, struct err *err)
{
    ASSERT(b->is_open);
    struct hub_path path;
    segments_restart(&b->segments);
    b->bytes_saved = 0;
    /* What will be written over must not count if the process ends in between. */
    return blob_path(&path, b, HUB_SEGMENTS, err) && file_remove(b->cache->alloc, b->cache->ws, path.text, err) &&
           start_digest(b, err);
}

bool blob_tidy(const struct blob *b, struct err *err)
{
    static const char *const left[] = {HUB_SEGMENTS, HUB_SEGMENTS ".tmp"};
    struct hub_path path;
    ASSERT(b->is_complete);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (!blob_path(&path, b, left[i], err) ||
            (file_present(b->cache->fs, path.text) && !file_remove(b->cache->alloc, b->cache->ws, path.text, err)))
            return false;
    return true;
}

bool blob_finish(struct blob *b, bool *matches, struct err *err)
{
    char text[DIGEST_TEXT];
    ASSERT(b->is_open);
    ASSERT(b->bytes_hashed == b->bytes);
    if (!digest_text(&b->digest, text, err)) return false;
    *matches = strcmp(text, b->name) == 0;
    if (!*matches) return true;
    b->is_complete = file_commit(&b->writer, err);
    blob_close(b);
    return b->is_complete && blob_tidy(b, err);
}
