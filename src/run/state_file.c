#include "run/state_file.h"

#include "base/assert.h"
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC "WEIRKV1\n"
#define IDS_MAX (1u << 21)

/* All numbers little endian, as on every machine that weir runs on. */
struct header {
    char magic[8];
    uint32_t header_bytes, numerics;
    uint8_t model[32];
    uint32_t storage, n_layers, latent_width, key_width, block_rows;
    uint32_t n_rows, n_mtp_rows, reserved;
    uint64_t block_bytes;
    uint64_t checksum; /* XXH3-64 of what stands before it */
};
static_assert(sizeof(struct header) == 96, "the header has no holes");

enum record_kind { RECORD_IDS = 1, RECORD_BLOCK = 2 };

/* In front of a payload; behind it stands the XXH3-64 of both. */
struct record {
    uint32_t kind, index;
    uint64_t bytes;
};
static_assert(sizeof(struct record) == 16, "a record's head has no holes");

static struct header make_header(const struct state_identity *identity, const struct kv_layout *layout, uint32_t n_rows,
                                 uint32_t n_mtp_rows)
{
    struct header h = {.header_bytes = sizeof h,
                       .numerics = identity->numerics,
                       .storage = layout->storage,
                       .n_layers = layout->n_layers,
                       .latent_width = layout->latent_width,
                       .key_width = layout->key_width,
                       .block_rows = KV_BLOCK_ROWS,
                       .n_rows = n_rows,
                       .n_mtp_rows = n_mtp_rows,
                       .block_bytes = layout->block_bytes};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.model, identity->model, sizeof h.model);
    h.checksum = XXH3_64bits(&h, offsetof(struct header, checksum));
    return h;
}

static uint64_t record_size(uint64_t payload_bytes)
{
    return sizeof(struct record) + payload_bytes + sizeof(uint64_t);
}

static uint64_t record_checksum(const struct record *record, const void *payload)
{
    return XXH3_64bits_withSeed(payload, record->bytes, XXH3_64bits(record, sizeof *record));
}

/* --- writing --- */

static bool put(struct state_writer *w, const void *data, uint64_t bytes, struct err *err)
{
    if (!file_write(&w->file, data, bytes, w->bytes, err)) return false;
    w->bytes += bytes;
    return true;
}

static bool put_record(struct state_writer *w, enum record_kind kind, uint32_t index, const void *payload,
                       uint64_t bytes, struct err *err)
{
    const struct record record = {.kind = kind, .index = index, .bytes = bytes};
    uint64_t checksum = record_checksum(&record, payload);
    return put(w, &record, sizeof record, err) && put(w, payload, bytes, err) &&
           put(w, &checksum, sizeof checksum, err);
}

bool state_writer_start(struct state_writer *writer, const char *path, struct alloc *alloc, struct write_system ws,
                        const struct state_identity *identity, const struct kv *kv, const uint32_t *ids, uint32_t n,
                        struct err *err)
{
    uint32_t n_mtp_rows = kv->mtp_first > 0 ? 0 : kv->n_mtp_rows < n ? kv->n_mtp_rows : n;
    const struct header header = make_header(identity, &kv->pool->layout, n, n_mtp_rows);
    ASSERT(n > 0);
    ASSERT(n <= kv->n_rows);
    *writer = (struct state_writer){.kv = kv, .ids = ids, .n = n};
    if (!file_create(&writer->file, alloc, ws, path, err)) return false;
    if (put(writer, &header, sizeof header, err)) return true;
    state_writer_abandon(writer);
    return false;
}

bool state_writer_step(struct state_writer *writer, bool *is_done, struct err *err)
{
    struct state_writer *w = writer;
    uint32_t n_blocks = kv_blocks_for(w->n), block = w->next;
    *is_done = false;
    if (!w->has_ids) {
        w->has_ids = true;
        return put_record(w, RECORD_IDS, 0, w->ids, (uint64_t)w->n * sizeof *w->ids, err);
    }
    if (block < n_blocks) {
        w->next++;
        return put_record(w, RECORD_BLOCK, block, w->kv->blocks[block]->data, w->kv->pool->layout.block_bytes, err);
    }
    *is_done = true;
    return file_commit(&w->file, err);
}

void state_writer_abandon(struct state_writer *writer)
{
    file_abandon(&writer->file);
    *writer = (struct state_writer){0};
}

uint64_t state_file_bytes(const struct kv_layout *layout, uint32_t n)
{
    return sizeof(struct header) + record_size((uint64_t)n * sizeof(uint32_t)) +
           kv_blocks_for(n) * record_size(layout->block_bytes);
}

bool state_file_write(const char *path, struct alloc *alloc, struct write_system ws,
                      const struct state_identity *identity, const struct kv *kv, const uint32_t *ids, uint32_t n,
                      struct err *err)
{
    struct state_writer writer;
    bool is_done = false;
    bool ok = state_writer_start(&writer, path, alloc, ws, identity, kv, ids, n, err);
    while (ok && !is_done) ok = state_writer_step(&writer, &is_done, err);
    state_writer_abandon(&writer);
    return ok;
}

/* --- reading --- */

static bool check_header(const char *path, const struct header *h, const struct state_identity *identity,
                         const struct kv_layout *layout, struct err *err)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0 || h->header_bytes != sizeof *h)
        return err_set(err, ERR_DATA, "%s: not a state file of this version", path);
    if (h->checksum != XXH3_64bits(h, offsetof(struct header, checksum)))
        return err_set(err, ERR_DATA, "%s: damaged: the header's checksum is wrong", path);
    if (memcmp(h->model, identity->model, sizeof h->model) != 0)
        return err_set(err, ERR_DATA, "%s: belongs to another model, or to this one with other files", path);
    if (h->numerics != identity->numerics || h->storage != layout->storage)
        return err_set(err, ERR_DATA, "%s: was made with other --numerics or --kv", path);
    if (h->n_layers != layout->n_layers || h->latent_width != layout->latent_width ||
        h->key_width != layout->key_width || h->block_rows != KV_BLOCK_ROWS || h->block_bytes != layout->block_bytes)
        return err_set(err, ERR_DATA, "%s: keeps other layers than this run, such as the MTP layer's", path);
    if (h->n_rows == 0 || h->n_rows > IDS_MAX || h->n_mtp_rows > h->n_rows)
        return err_set(err, ERR_DATA, "%s: damaged: says that it holds %" PRIu32 " rows", path, h->n_rows);
    return true;
}

/* Reads the record at `at` into payload [bytes], which it must be. */
static bool get_record(const struct file *file, uint64_t at, enum record_kind kind, uint32_t index, void *payload,
                       uint64_t bytes, struct err *err)
{
    struct record record;
    uint64_t checksum;
    if (!file_read(file, &record, sizeof record, at, err)) return false;
    if (record.kind != (uint32_t)kind || record.index != index || record.bytes != bytes)
        return err_set(err, ERR_DATA, "%s: damaged at offset %" PRIu64 ": no record of the kind that belongs here",
                       file->path, at);
    if (!file_read(file, payload, bytes, at + sizeof record, err)) return false;
    if (!file_read(file, &checksum, sizeof checksum, at + sizeof record + bytes, err)) return false;
    if (checksum != record_checksum(&record, payload))
        return err_set(err, ERR_DATA, "%s: damaged at offset %" PRIu64 ": the checksum is wrong", file->path, at);
    return true;
}

static bool open_checked(struct file *file, struct header *h, const char *path, struct alloc *alloc,
                         struct file_system fs, const struct state_identity *identity, const struct kv_layout *layout,
                         struct err *err)
{
    if (!file_open(file, alloc, fs, path, err)) return false;
    if (file_read(file, h, sizeof *h, 0, err) && check_header(path, h, identity, layout, err)) return true;
    file_close(file);
    return false;
}

/* [n_rows] of them, to be given back with alloc_put. */
static uint32_t *read_ids(const struct file *file, const struct header *h, struct alloc *alloc, struct err *err)
{
    uint32_t *ids = alloc_get_array(alloc, h->n_rows, sizeof *ids, err);
    if (ids && get_record(file, sizeof *h, RECORD_IDS, 0, ids, h->n_rows * sizeof *ids, err)) return ids;
    alloc_put(alloc, ids);
    return NULL;
}

bool state_file_peek(const char *path, struct alloc *alloc, struct file_system fs,
                     const struct state_identity *identity, const struct kv_layout *layout, struct token_list *ids,
                     struct err *err)
{
    struct file file;
    struct header h;
    if (!open_checked(&file, &h, path, alloc, fs, identity, layout, err)) return false;
    uint32_t *read = read_ids(&file, &h, alloc, err);
    bool ok = read && token_list_add(ids, read, h.n_rows, err);
    alloc_put(alloc, read);
    file_close(&file);
    return ok;
}

/* Blocks one after the other, until one is damaged or all that were asked for are there. */
static bool read_blocks(const struct file *file, const struct header *h, struct kv *kv, uint32_t n, bool *is_torn,
                        struct err *err)
{
    uint64_t at = sizeof *h + record_size((uint64_t)h->n_rows * sizeof(uint32_t));
    for (uint32_t i = 0; i < kv_blocks_for(n); i++) {
        struct err damage = {0};
        uint32_t last = (i + 1) * KV_BLOCK_ROWS < n ? (i + 1) * KV_BLOCK_ROWS : n;
        if (!kv_make_writable(kv, last - 1, err)) return false;
        if (!get_record(file, at, RECORD_BLOCK, i, kv->blocks[i]->data, h->block_bytes, &damage)) {
            *is_torn = true;
            kv_truncate(kv, i * KV_BLOCK_ROWS);
            if (damage.kind == ERR_DATA && i > 0) return true;
            if (err) *err = damage;
            return false;
        }
        kv->n_rows = last;
        at += record_size(h->block_bytes);
    }
    return true;
}

bool state_file_read(const char *path, struct alloc *alloc, struct file_system fs,
                     const struct state_identity *identity, struct kv *kv, const uint32_t *ids, uint32_t n,
                     bool *is_torn, struct err *err)
{
    struct file file;
    struct header h;
    ASSERT(kv->n_blocks == 0);
    *is_torn = false;
    if (!open_checked(&file, &h, path, alloc, fs, identity, &kv->pool->layout, err)) return false;
    if (n > h.n_rows) n = h.n_rows;
    uint32_t *held = read_ids(&file, &h, alloc, err); /* rows are worth nothing without the ids that they are for */
    bool ok = held != NULL;
    if (ok && memcmp(held, ids, n * sizeof *ids) != 0)
        ok = err_set(err, ERR_DATA, "%s: holds the rows of another text than it did", path);
    ok = ok && read_blocks(&file, &h, kv, n, is_torn, err);
    if (ok) kv->n_mtp_rows = h.n_mtp_rows < kv->n_rows ? h.n_mtp_rows : kv->n_rows;
    if (!ok) kv_truncate(kv, 0);
    alloc_put(alloc, held);
    file_close(&file);
    return ok;
}
