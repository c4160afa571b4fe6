#include "resid/streamed.h"

#include "base/assert.h"
#include "resid/shard_files.h"

enum { IO_DEPTH = 32, IO_THREADS = 8 };
#define PIECE_BYTES (UINT64_C(4) << 20)

struct streamed {
    struct alloc *alloc;
    const struct inventory *inventory;
    struct reader *reader;
    uint32_t *files;
    struct spine_store *spine;
    struct policy *policy;
    struct weights *weights;
    struct read_rates rates;
    bool is_direct;
};

struct streamed_settings streamed_settings_default(void)
{
    return (struct streamed_settings){.spine = {.with_dsa = true, .with_mtp = true},
                                      .direct = DIRECT_AUTO,
                                      .io_depth = IO_DEPTH,
                                      .n_io_threads = IO_THREADS,
                                      .policy = POLICY_DEFAULT};
}

static bool open_reader(struct streamed *s, const struct streamed_settings *settings, struct err *err)
{
    const struct catalogue *catalogue = s->inventory->catalogue;
    struct reader_settings with = {
        .depth = settings->io_depth, .requests_max = STREAMED_REQUESTS_MAX, .files_max = catalogue->n_shards + 2};
    if (!reader_new_real(&s->reader, s->alloc, &with, settings->n_io_threads, err)) return false;
    s->is_direct = settings->direct != DIRECT_OFF;
    if (settings->direct == DIRECT_AUTO) {
        if (!read_rates_measure(&s->rates, s->alloc, catalogue, s->reader, clock_real(), err)) return false;
        s->is_direct = s->rates.direct_bytes_per_s >= s->rates.buffered_bytes_per_s;
    }
    enum reader_direct direct = s->is_direct ? READER_DIRECT_IF_POSSIBLE : READER_BUFFERED;
    s->files = shard_files_add(s->alloc, s->reader, catalogue, direct, err);
    if (!s->files) return false;
    s->is_direct = reader_is_direct(s->reader, s->files[0]);
    return true;
}

static bool open_streamer(struct streamed *s, const struct streamed_settings *settings, struct err *err)
{
    const struct plan *plan = settings->plan;
    const struct config *config = s->inventory->config;
    struct policy_shape shape = {config->n_layers + 1, config->n_experts, plan->n_slots_total};
    if (!policy_new(&s->policy, s->alloc, settings->policy, &shape, err)) return false;
    struct streamer_settings with = {.spine = spine_of(s->spine),
                                     .clock = clock_real(),
                                     .embedding_rows_kept = STREAMED_EMBEDDING_ROWS,
                                     .slots = {.inventory = s->inventory,
                                               .classes = &plan->classes,
                                               .reader = s->reader,
                                               .policy = s->policy,
                                               .files = s->files,
                                               .piece_bytes = PIECE_BYTES}};
    for (uint32_t c = 0; c < plan->classes.n; c++) with.slots.n_slots[c] = plan->n_slots[c];
    return streamer_new(&s->weights, s->alloc, &with, err);
}

bool streamed_open(struct streamed **out, struct alloc *alloc, const struct inventory *inventory,
                   const struct streamed_settings *settings, struct err *err)
{
    ASSERT(settings->plan->n_slots_total > 0);
    struct streamed *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    *s = (struct streamed){.alloc = alloc, .inventory = inventory};
    if (!open_reader(s, settings, err)) goto fail;
    if (!spine_load(&s->spine, alloc, inventory, settings->spine, s->reader, s->files, PIECE_BYTES, err)) goto fail;
    if (!open_streamer(s, settings, err)) goto fail;
    *out = s;
    return true;
fail:
    streamed_close(s);
    return false;
}

void streamed_close(struct streamed *s)
{
    if (!s) return;
    streamer_free(s->weights);
    policy_free(s->policy);
    spine_free(s->spine);
    reader_free(s->reader);
    alloc_put(s->alloc, s->files);
    alloc_put(s->alloc, s);
}

struct weights *streamed_weights(struct streamed *s)
{
    return s->weights;
}

struct slots *streamed_slots(struct streamed *s)
{
    return streamer_slots(s->weights);
}

const struct reader *streamed_reader(const struct streamed *s)
{
    return s->reader;
}

const struct streamer_stats *streamed_stats(const struct streamed *s)
{
    return streamer_stats(s->weights);
}

const struct read_rates *streamed_rates(const struct streamed *s)
{
    return &s->rates;
}

bool streamed_is_direct(const struct streamed *s)
{
    return s->is_direct;
}
