#include "resid/mirrors.h"

#include "base/assert.h"
#include "base/buf.h"
#include "plat/pages.h"
#include <inttypes.h>
#include <string.h>

enum { PROBES = 8, WEIGHT_ONE = 1 << 16 };
#define PROBE_BYTES (UINT64_C(4) << 20)
#define NO_FILE UINT32_MAX

struct copy {
    struct file file;
    uint32_t id; /* the reader's, or NO_FILE */
};

struct folder {
    const char *path;
    bool is_given_up, was_told;
    uint32_t weight; /* of WEIGHT_ONE: its share of what both it and the original hold */
};

struct mirrors {
    struct alloc *alloc;
    struct reader *reader;
    const struct catalogue *catalogue;
    const uint32_t *files;
    uint32_t n_folders;
    struct folder folders[MIRRORS_MAX];
    struct copy *copies; /* [n_folders][n_shards] */
    uint64_t next_recheck;
};

static struct copy *copy_of(const struct mirrors *m, uint32_t folder, uint32_t shard)
{
    return &m->copies[(uint64_t)folder * m->catalogue->n_shards + shard];
}

static bool same_header(const struct file *original, const struct file *copy, uint64_t bytes, struct err *err)
{
    unsigned char a[4096], b[4096];
    for (uint64_t at = 0; at < bytes; at += sizeof a) {
        uint64_t n = bytes - at < sizeof a ? bytes - at : sizeof a;
        if (!file_read(original, a, n, at, err) || !file_read(copy, b, n, at, err)) return false;
        if (memcmp(a, b, n) != 0)
            return err_set(err, ERR_DATA, "%s: not a copy of %s: their headers differ", copy->path, original->path);
    }
    return true;
}

static uint64_t header_bytes(const struct file *file, struct err *err)
{
    unsigned char length[8];
    uint64_t n = 0;
    if (!file_read(file, length, sizeof length, 0, err)) return 0;
    for (int i = 8; i-- > 0;) n = n << 8 | length[i];
    return n + sizeof length;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A shard that has no copy there is fine. */
static bool open_copy(struct mirrors *m, uint32_t folder, uint32_t shard, enum reader_direct direct, struct err *err)
{
    const struct file *original = &m->catalogue->shards[shard].file;
    struct copy *copy = copy_of(m, folder, shard);
    struct buf path;
    copy->id = NO_FILE;
    buf_init(&path, m->alloc, 1 << 16);
    bool ok = buf_printf(&path, err, "%s/%s", m->folders[folder].path, name_of(original->path));
    bool is_there = ok && file_present(original->fs, path.data);
    if (is_there) ok = file_open(&copy->file, m->alloc, original->fs, path.data, err);
    buf_fini(&path);
    if (!ok || !is_there) return ok;
    if (copy->file.identity.bytes != original->identity.bytes)
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, and %s has %" PRIu64 ": not a copy of it",
                       copy->file.path, copy->file.identity.bytes, original->path, original->identity.bytes);
    uint64_t bytes = header_bytes(original, err);
    if (bytes == 0 || !same_header(original, &copy->file, bytes, err)) return false;
    return reader_add_file(m->reader, &copy->file, direct, &copy->id, err);
}

/* Bytes a second of a few reads across the file; 0 when one fails. */
static double measure(struct mirrors *m, struct clock clock, uint32_t file, uint64_t bytes, unsigned char *memory)
{
    uint64_t stride = bytes / PROBES / READER_ALIGNMENT * READER_ALIGNMENT, landed = 0;
    uint64_t n = stride < PROBE_BYTES ? stride : PROBE_BYTES;
    struct read_done done;
    bool ok = n > 0;
    int64_t begin_ns = clock_now_ns(clock);
    for (uint64_t i = 0; ok && i < PROBES; i++) {
        const struct read_request ask = {
            .file = file, .offset = i * stride, .bytes = n, .bytes_needed = n, .buffer = memory + i * PROBE_BYTES};
        ok = reader_submit(m->reader, &ask, NULL);
    }
    while (reader_wait(m->reader, &done)) {
        ok = ok && done.error == 0;
        landed += done.bytes;
    }
    int64_t ns = clock_now_ns(clock) - begin_ns;
    return ok && ns > 0 ? (double)landed / (double)ns : 0;
}

/* Each folder by its first copy against the original of that shard. */
static bool weigh(struct mirrors *m, struct clock clock, struct err *err)
{
    unsigned char *memory = pages_get(m->alloc, PROBES * PROBE_BYTES, err);
    if (!memory) return false;
    for (uint32_t f = 0; f < m->n_folders; f++)
        for (uint32_t s = 0; s < m->catalogue->n_shards; s++) {
            const struct copy *copy = copy_of(m, f, s);
            if (copy->id == NO_FILE) continue;
            uint64_t bytes = copy->file.identity.bytes;
            double here = measure(m, clock, m->files[s], bytes, memory);
            double there = measure(m, clock, copy->id, bytes, memory);
            double share = here + there > 0 ? there / (here + there) : 0.5;
            m->folders[f].weight = (uint32_t)(share * WEIGHT_ONE);
            break;
        }
    pages_put(m->alloc, memory, PROBES * PROBE_BYTES);
    return true;
}

static bool open_folder(struct mirrors *m, uint32_t folder, enum reader_direct direct, struct err *err)
{
    bool has_any = false;
    for (uint32_t s = 0; s < m->catalogue->n_shards; s++) {
        if (!open_copy(m, folder, s, direct, err)) return err_context(err, "--mirror");
        has_any |= copy_of(m, folder, s)->id != NO_FILE;
    }
    return has_any ||
           err_set(err, ERR_DATA, "--mirror: %s holds no copy of any shard of the model", m->folders[folder].path);
}

bool mirrors_new(struct mirrors **out, struct alloc *alloc, struct reader *reader, const struct catalogue *catalogue,
                 const uint32_t *files, const char *const *folders, uint32_t n_folders, enum reader_direct direct,
                 struct clock clock, struct err *err)
{
    ASSERT(n_folders <= MIRRORS_MAX);
    ASSERT(reader_outstanding(reader) == 0);
    struct mirrors *m = alloc_get(alloc, sizeof *m, err);
    if (!m) return false;
    *m = (struct mirrors){
        .alloc = alloc, .reader = reader, .catalogue = catalogue, .files = files, .n_folders = n_folders};
    for (uint32_t f = 0; f < n_folders; f++) m->folders[f].path = folders[f];
    m->copies = alloc_get_array(alloc, (uint64_t)n_folders * catalogue->n_shards, sizeof *m->copies, err);
    if (!m->copies) goto fail;
    for (uint32_t f = 0; f < n_folders; f++)
        if (!open_folder(m, f, direct, err)) goto fail;
    if (!weigh(m, clock, err)) goto fail;
    *out = m;
    return true;
fail:
    mirrors_free(m);
    return false;
}

void mirrors_free(struct mirrors *m)
{
    if (!m) return;
    for (uint64_t i = 0; m->copies && i < (uint64_t)m->n_folders * m->catalogue->n_shards; i++)
        file_close(&m->copies[i].file);
    alloc_put(m->alloc, m->copies);
    alloc_put(m->alloc, m);
}

/* Every copy in turn takes its share of what is left. */
uint32_t mirrors_choose(const struct mirrors *m, uint32_t shard, uint64_t offset)
{
    uint64_t hash = (offset / READER_ALIGNMENT + ((uint64_t)shard << 40)) * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t f = 0; f < m->n_folders; f++, hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9)) {
        uint32_t id = copy_of(m, f, shard)->id;
        if (id != NO_FILE && !m->folders[f].is_given_up && (hash >> 40) % WEIGHT_ONE < m->folders[f].weight) return id;
    }
    return m->files[shard];
}

bool mirrors_give_up(struct mirrors *m, uint32_t file, uint32_t *original)
{
    for (uint32_t f = 0; f < m->n_folders; f++)
        for (uint32_t s = 0; s < m->catalogue->n_shards; s++) {
            if (copy_of(m, f, s)->id != file) continue;
            m->folders[f].is_given_up = true;
            *original = m->files[s];
            return true;
        }
    return false;
}

/* One without a name is still the file that it was. */
static bool is_unchanged(const struct file *file, struct err *err)
{
    struct file nameless = *file;
    nameless.identity.n_links = 0;
    return file_recheck(&nameless, err);
}

bool mirrors_recheck(struct mirrors *m, uint64_t n, struct err *err)
{
    uint64_t n_copies = (uint64_t)m->n_folders * m->catalogue->n_shards;
    for (uint64_t i = 0; i < n && i < n_copies; i++) {
        uint64_t at = m->next_recheck;
        const struct copy *copy = &m->copies[at];
        m->next_recheck = (at + 1) % n_copies;
        if (copy->id == NO_FILE || file_recheck(&copy->file, NULL)) continue;
        if (!is_unchanged(&copy->file, err)) return false;
        m->folders[at / m->catalogue->n_shards].is_given_up = true;
    }
    return true;
}

const char *mirrors_news(struct mirrors *m)
{
    for (uint32_t f = 0; f < m->n_folders; f++) {
        if (!m->folders[f].is_given_up || m->folders[f].was_told) continue;
        m->folders[f].was_told = true;
        return m->folders[f].path;
    }
    return NULL;
}
