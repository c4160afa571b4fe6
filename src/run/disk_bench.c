#include "run/disk_bench.h"

#include "base/assert.h"
#include "base/checked.h"
#include "plat/pages.h"
#include "plat/reader.h"
#include "resid/shard_files.h"
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

enum { N_THREADS = 16, WINDOW_MAX = 64 };

struct disk_bench {
    struct alloc *alloc;
    const struct catalogue *catalogue;
    struct disk_trial trial;
    struct reader *reader;
    uint32_t *files;
    unsigned char *memory; /* [window][block_bytes] */
    uint32_t window;       /* blocks under way: enough that the reader is never short of pieces */
    uint32_t reads_out[WINDOW_MAX];
    bool is_direct;
    uint64_t random;
};

double disk_figures_rate(const struct disk_figures *figures)
{
    return figures->ns > 0 ? (double)figures->bytes * 1e9 / (double)figures->ns : 0;
}

static uint64_t roll(struct disk_bench *b, uint64_t n)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (b->random >> 20) % n;
}

static uint32_t pick_shard(struct disk_bench *b)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < b->catalogue->n_shards; i++) {
        uint64_t bytes = b->catalogue->shards[i].file.identity.bytes;
        total += bytes >= b->trial.block_bytes ? bytes : 0;
    }
    uint64_t at = roll(b, total);
    for (uint32_t i = 0;; i++) {
        uint64_t bytes = b->catalogue->shards[i].file.identity.bytes;
        if (bytes < b->trial.block_bytes) continue;
        if (at < bytes) return i;
        at -= bytes;
    }
}

static bool start_block(struct disk_bench *b, uint32_t place, struct err *err)
{
    const struct disk_trial *t = &b->trial;
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

bool disk_bench_run(struct disk_bench *b, uint32_t n_blocks, struct disk_figures *figures, struct err *err)
{
    uint32_t n_started = 0;
    struct clock clock = clock_real();
    struct read_done done;
    int64_t begin_ns = clock_now_ns(clock);
    for (; n_started < b->window && n_started < n_blocks; n_started++)
        if (!start_block(b, n_started, err)) return false;
    while (reader_wait(b->reader, &done)) {
        if (done.error) return reader_explain(b->reader, &done, err);
        figures->bytes += done.bytes;
        if (--b->reads_out[done.tag] > 0 || n_started == n_blocks) continue;
        n_started++;
        if (!start_block(b, (uint32_t)done.tag, err)) return false;
    }
    figures->ns += clock_now_ns(clock) - begin_ns;
    return true;
}

static bool check_shards(const struct disk_bench *b, struct err *err)
{
    for (uint32_t i = 0; i < b->catalogue->n_shards; i++)
        if (b->catalogue->shards[i].file.identity.bytes >= b->trial.block_bytes) return true;
    return err_set(err, ERR_DATA, "no shard is as large as a block of %" PRIu64 " bytes", b->trial.block_bytes);
}

static bool get_ready(struct disk_bench *b, struct err *err)
{
    const struct disk_trial *t = &b->trial;
    uint64_t pieces = t->piece_bytes ? div_up(t->block_bytes, t->piece_bytes) : 1;
    uint64_t window = div_up(t->depth, pieces) + 1;
    b->window = window < WINDOW_MAX ? (uint32_t)window : WINDOW_MAX;
    const struct reader_settings with = {
        .depth = t->depth, .requests_max = (uint32_t)(b->window * pieces), .files_max = b->catalogue->n_shards};
    if (!check_shards(b, err)) return false;
    b->memory = pages_get(b->alloc, b->window * t->block_bytes, err);
    if (!b->memory) return false;
    memset(b->memory, 1, b->window * t->block_bytes); /* or the first reads would wait for pages to be made */
    if (!reader_new_real(&b->reader, b->alloc, &with, N_THREADS, err)) return false;
    b->files = shard_files_add(b->alloc, b->reader, b->catalogue,
                               t->direct ? READER_DIRECT_IF_POSSIBLE : READER_BUFFERED, err);
    if (!b->files) return false;
    b->is_direct = reader_is_direct(b->reader, b->files[0]);
    return true;
}

bool disk_bench_new(struct disk_bench **bench, struct alloc *alloc, const struct catalogue *catalogue,
                    const struct disk_trial *trial, struct err *err)
{
    ASSERT(trial->depth > 0);
    ASSERT(trial->block_bytes > 0);
    ASSERT(trial->block_bytes % READER_ALIGNMENT == 0);
    ASSERT(trial->piece_bytes % READER_ALIGNMENT == 0);
    struct disk_bench *b = alloc_get(alloc, sizeof *b, err);
    if (!b) return false;
    *b = (struct disk_bench){.alloc = alloc, .catalogue = catalogue, .trial = *trial, .random = trial->seed};
    if (!get_ready(b, err)) {
        disk_bench_free(b);
        return false;
    }
    *bench = b;
    return true;
}

void disk_bench_free(struct disk_bench *b)
{
    if (!b) return;
    reader_free(b->reader);
    alloc_put(b->alloc, b->files);
    pages_put(b->alloc, b->memory, b->window * b->trial.block_bytes);
    alloc_put(b->alloc, b);
}

bool disk_bench_is_direct(const struct disk_bench *b)
{
    return b->is_direct;
}
