#include "run/batch_bench.h"

#include "base/assert.h"
#include "plat/clock.h"
#include "run/bench_text.h"

enum { SEQUENCES_MAX = 64 };

struct bench {
    struct engine *engine;
    const struct batch_bench_shape *shape;
    struct kv kv[SEQUENCES_MAX];
    uint64_t random;
};

struct snapshot {
    int64_t ns, waited_ns;
    uint64_t bytes_wanted, bytes_read;
};

static struct snapshot snap(const struct bench *b)
{
    struct snapshot now = {.ns = clock_now_ns(clock_real())};
    struct streamed *s = engine_streamed(b->engine);
    if (!s) return now;
    now.waited_ns = streamed_stats(s)->waited_ns;
    now.bytes_wanted = slots_stats(streamed_slots(s))->bytes_wanted;
    now.bytes_read = reader_stats(streamed_reader(s))->bytes_landed;
    return now;
}

static uint32_t random_token(struct bench *b)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return bench_text_id((double)(b->random >> 33) / 2147483648.0, engine_config(b->engine)->vocab);
}

/* One pass with a row of each of the first n sequences. */
static bool decode(struct bench *b, uint32_t n, struct err *err)
{
    struct forward_row rows[SEQUENCES_MAX];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct forward_row){
            .kv = &b->kv[i], .token = random_token(b), .position = b->kv[i].n_rows, .wants_logits = true};
    return engine_pass(b->engine, rows, n, err);
}

static uint32_t passes_of(uint32_t n_tokens, uint32_t n_sequences)
{
    uint32_t n = (n_tokens + n_sequences - 1) / n_sequences;
    return n > 2 ? n : 2;
}

static bool take_turn(struct bench *b, struct batch_bench_row *row, struct err *err)
{
    const struct batch_bench_shape *shape = b->shape;
    uint32_t n_warm_up = passes_of(shape->warm_up_tokens, row->n_sequences);
    uint32_t n_passes = passes_of(shape->turn_tokens, row->n_sequences);
    for (uint32_t i = 0; i < n_warm_up; i++)
        if (!decode(b, row->n_sequences, err)) return false;
    struct snapshot from = snap(b);
    for (uint32_t i = 0; i < n_passes; i++)
        if (!decode(b, row->n_sequences, err)) return false;
    struct snapshot to = snap(b);
    row->n_tokens += (uint64_t)n_passes * row->n_sequences;
    row->ns += to.ns - from.ns;
    row->waited_ns += to.waited_ns - from.waited_ns;
    row->bytes_wanted += to.bytes_wanted - from.bytes_wanted;
    row->bytes_read += to.bytes_read - from.bytes_read;
    return true;
}

uint32_t batch_bench_context(const struct batch_bench_shape *shape)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < shape->n_sizes; i++)
        n += passes_of(shape->warm_up_tokens, shape->sizes[i]) + passes_of(shape->turn_tokens, shape->sizes[i]);
    return n * shape->rounds;
}

bool batch_bench_run(struct batch_bench_result *result, struct engine *engine, const struct batch_bench_shape *shape,
                     struct err *err)
{
    struct bench b = {.engine = engine, .shape = shape, .random = shape->seed};
    *result = (struct batch_bench_result){.n_rows = shape->n_sizes};
    if (engine_plan(engine)) result->n_slots = engine_plan(engine)->n_slots_total;
    for (uint32_t i = 0; i < shape->n_sizes; i++) {
        ASSERT(shape->sizes[i] > 0);
        ASSERT(shape->sizes[i] <= SEQUENCES_MAX);
        result->rows[i].n_sequences = shape->sizes[i];
    }
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) kv_init(&b.kv[i], forward_kv_pool(engine_forward(engine)));
    bool ok = true;
    for (uint32_t round = 0; ok && round < shape->rounds; round++)
        for (uint32_t i = 0; ok && i < result->n_rows; i++) ok = take_turn(&b, &result->rows[i], err);
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) kv_fini(&b.kv[i]);
    return ok;
}
