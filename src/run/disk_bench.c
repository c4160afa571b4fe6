#include "run/disk_bench.h"

#include "base/assert.h"
#include "plat/pages.h"
#include "plat/reader.h"
#include "resid/shard_files.h"
#include <fcntl.h>
#include <inttypes.h>

enum { N_THREADS = 16, WINDOW = 32 };

struct bench {
    const struct catalogue *catalogue;
    const struct disk_trial *trial;
    struct reader *reader;
    uint32_t *files;
    unsigned char *memory; /* [WINDOW][block_bytes] */
    uint32_t reads_out[WINDOW];
    uint64_t random;
};

static uint64_t roll(struct bench *b, uint64_t n)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (b->random >> 20) % n;
}

static uint32_t pick_shard(struct bench *b)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < b->catalogue->n_shards; i++) {
        uint64_t bytes = b->catalogue->shards[i].file.identity.bytes;
        total += bytes >= b->trial->block_bytes ? bytes : 0;
    }
    uint64_t at = roll(b, total);
    for (uint32_t i = 0;; i++) {
        uint64_t bytes = b->catalogue->shards[i].file.identity.bytes;
        if (bytes < b->trial->block_bytes) continue;
        if (at < bytes) return i;
        at -= bytes;
    }
}

static bool start_block(struct bench *b, uint32_t place, struct err *err)
{
    const struct disk_trial *t = b->trial;
    uint32_t shard = pick_shard(b);
    const struct file *file = &b->catalogue->shards[shard].file;
    uint64_t first = roll(b, (file->identity.bytes - t->block_bytes) / READER_ALIGNMENT + 1) * READER_ALIGNMENT;
    uint64_t piece = t->piece_bytes ? t->piece_bytes : t->block_bytes;
    if (!t->direct) (void)posix_fadvise(file->descriptor, (off_t)first, (off_t)t->block_bytes, POSIX_FADV_DONTNEED);
    for (uint64_t at = 0; at < t->block_bytes; at += piece) {
        uint64_t bytes = t->block_bytes - at < piece ? t->block_bytes - at : piece;
        const struct read_request ask = {.file = b->files[shard],
                                         .offset = first + at,
                                         .bytes = bytes,
                                         .bytes_needed = bytes,
                                         .buffer = b->memory + place * t->block_bytes + at,
                                         .tag = place};
        if (!reader_submit(b->reader, &ask, err)) return false;
        b->reads_out[place]++;
    }
    return true;
}

static bool run(struct bench *b, struct disk_figures *out, struct err *err)
{
    uint32_t n_started = 0, window = b->trial->n_blocks < WINDOW ? b->trial->n_blocks : WINDOW;
    struct clock clock = clock_real();
    struct read_done done;
    int64_t begin_ns = clock_now_ns(clock);
    for (; n_started < window; n_started++)
        if (!start_block(b, n_started, err)) return false;
    while (reader_wait(b->reader, &done)) {
        if (done.error) return reader_explain(b->reader, &done, err);
        out->bytes += done.bytes;
        if (--b->reads_out[done.tag] > 0 || n_started == b->trial->n_blocks) continue;
        n_started++;
        if (!start_block(b, (uint32_t)done.tag, err)) return false;
    }
    out->ns = clock_now_ns(clock) - begin_ns;
    out->bytes_per_s = out->ns > 0 ? (double)out->bytes * 1e9 / (double)out->ns : 0;
    return true;
}

bool disk_bench_run(struct disk_figures *out, struct alloc *alloc, const struct catalogue *catalogue,
                    const struct disk_trial *trial, struct err *err)
{
    struct bench b = {.catalogue = catalogue, .trial = trial, .random = trial->seed};
    uint64_t largest = 0, pieces = trial->piece_bytes ? trial->block_bytes / trial->piece_bytes + 1 : 1;
    const struct reader_settings with = {
        .depth = trial->depth, .requests_max = (uint32_t)(WINDOW * pieces), .files_max = catalogue->n_shards};
    bool ok = false;
    ASSERT(trial->block_bytes % READER_ALIGNMENT == 0);
    ASSERT(trial->piece_bytes % READER_ALIGNMENT == 0);
    *out = (struct disk_figures){0};
    for (uint32_t i = 0; i < catalogue->n_shards; i++)
        if (catalogue->shards[i].file.identity.bytes > largest) largest = catalogue->shards[i].file.identity.bytes;
    if (largest < trial->block_bytes)
        return err_set(err, ERR_DATA, "no shard is as large as a block of %" PRIu64 " bytes", trial->block_bytes);
    b.memory = pages_get(alloc, WINDOW * trial->block_bytes, err);
    if (!b.memory) return false;
    if (!reader_new_real(&b.reader, alloc, &with, N_THREADS, err)) goto fail;
    b.files =
        shard_files_add(alloc, b.reader, catalogue, trial->direct ? READER_DIRECT_IF_POSSIBLE : READER_BUFFERED, err);
    if (!b.files) goto fail;
    out->is_direct = reader_is_direct(b.reader, b.files[0]);
    ok = run(&b, out, err);
fail:
    reader_free(b.reader);
    alloc_put(alloc, b.files);
    pages_put(alloc, b.memory, WINDOW * trial->block_bytes);
    return ok;
}
