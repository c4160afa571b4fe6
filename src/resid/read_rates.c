#include "resid/read_rates.h"

#include "base/assert.h"
#include "plat/pages.h"
#include <fcntl.h>

#define PIECE_BYTES (UINT64_C(4) << 20)
enum { PIECES_A_ROUND = 8, ROUNDS = 2 };

struct trial {
    struct reader *reader;
    struct clock clock;
    const struct file *file;
    unsigned char *memory; /* [PIECES_A_ROUND * PIECE_BYTES] */
    uint64_t stride;       /* between pieces */
    uint32_t n_pieces;     /* used so far */
};

/* Pieces at places of their own, so that no way reads what another has just brought into the page cache. */
static bool one_round(struct trial *t, uint32_t id, int64_t *ns, struct err *err)
{
    struct read_done done;
    bool ok = true;
    uint64_t first = t->n_pieces;
    for (uint64_t i = 0; i < PIECES_A_ROUND; i++)
        (void)posix_fadvise(t->file->descriptor, (off_t)((first + i) * t->stride), (off_t)PIECE_BYTES,
                            POSIX_FADV_DONTNEED);
    int64_t begin_ns = clock_now_ns(t->clock);
    for (uint64_t i = 0; i < PIECES_A_ROUND && ok; i++) {
        struct read_request ask = {.file = id,
                                   .offset = (first + i) * t->stride,
                                   .bytes = PIECE_BYTES,
                                   .bytes_needed = PIECE_BYTES,
                                   .buffer = t->memory + i * PIECE_BYTES};
        ok = reader_submit(t->reader, &ask, err);
    }
    while (reader_wait(t->reader, &done))
        if (done.error && ok) ok = reader_explain(t->reader, &done, err);
    *ns += clock_now_ns(t->clock) - begin_ns;
    t->n_pieces += PIECES_A_ROUND;
    return ok;
}

static const struct file *largest_shard(const struct catalogue *catalogue)
{
    const struct file *largest = &catalogue->shards[0].file;
    for (uint32_t i = 1; i < catalogue->n_shards; i++)
        if (catalogue->shards[i].file.identity.bytes > largest->identity.bytes) largest = &catalogue->shards[i].file;
    return largest;
}

static uint64_t rate(int64_t ns)
{
    double bytes = (double)PIECES_A_ROUND * ROUNDS * (double)PIECE_BYTES;
    return ns > 0 ? (uint64_t)(bytes * 1e9 / (double)ns) : 0;
}

bool read_rates_measure(struct read_rates *rates, struct alloc *alloc, const struct catalogue *catalogue,
                        struct reader *reader, struct clock clock, struct err *err)
{
    struct trial t = {.reader = reader, .clock = clock, .file = largest_shard(catalogue)};
    uint32_t buffered, direct;
    int64_t buffered_ns = 0, direct_ns = 0;
    *rates = (struct read_rates){0};
    ASSERT(reader_outstanding(reader) == 0);
    /* Whole pieces at page boundaries, twice the rounds because there are two ways. */
    t.stride = t.file->identity.bytes / (2 * ROUNDS * PIECES_A_ROUND) / READER_ALIGNMENT * READER_ALIGNMENT;
    if (t.stride < PIECE_BYTES) return true;
    t.memory = pages_get(alloc, PIECES_A_ROUND * PIECE_BYTES, err);
    if (!t.memory) return false;
    if (!reader_add_file(reader, t.file, READER_BUFFERED, &buffered, err)) goto fail;
    if (!reader_add_file(reader, t.file, READER_DIRECT_IF_POSSIBLE, &direct, err)) goto fail;
    for (int round = 0; round < ROUNDS; round++) {
        if (!one_round(&t, buffered, &buffered_ns, err)) goto fail;
        if (reader_is_direct(reader, direct) && !one_round(&t, direct, &direct_ns, err)) goto fail;
    }
    rates->buffered_bytes_per_s = rate(buffered_ns);
    rates->direct_bytes_per_s = rate(direct_ns);
    rates->bytes_read = t.n_pieces * PIECE_BYTES;
    pages_put(alloc, t.memory, PIECES_A_ROUND * PIECE_BYTES);
    return true;
fail:
    pages_put(alloc, t.memory, PIECES_A_ROUND * PIECE_BYTES);
    return false;
}
