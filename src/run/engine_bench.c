#include "run/engine_bench.h"

#include "base/assert.h"
#include "base/checked.h"
#include "par/read_rate.h"

enum { CEILING_BLOCKS = 32, MEMORY_RUNS = 5 };
#define MEMORY_BYTES (UINT64_C(512) << 20)
#define PIECE_BYTES (UINT64_C(4) << 20)

struct bench {
    struct engine *engine;
    struct alloc *alloc;
    struct engine_bench_result *result;
    struct disk_bench *disk;
    struct session session;
    uint64_t random, spine_bytes;
};

static uint32_t random_token(struct bench *b)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t vocab = engine_config(b->engine)->vocab;
    return (uint32_t)(b->random >> 33) % (vocab > 64 ? vocab - 64 : vocab); /* special tokens come last */
}

static bool open_disk(struct bench *b, uint64_t seed, struct err *err)
{
    const struct disk_trial trial = {.direct = streamed_is_direct(engine_streamed(b->engine)),
                                     .depth = engine_settings_of(b->engine)->streamed.io_depth,
                                     .block_bytes = engine_plan(b->engine)->classes.of[0].slot_bytes,
                                     .piece_bytes = PIECE_BYTES,
                                     .seed = seed};
    return disk_bench_new(&b->disk, b->alloc, engine_inventory(b->engine)->catalogue, &trial, err);
}

static bool measure_disk(struct bench *b, struct engine_bench_phase *p, struct err *err)
{
    return disk_bench_run(b->disk, CEILING_BLOCKS, &p->ceiling, err);
}

bool memory_bench_run(double *bytes_per_s, struct alloc *alloc, unsigned n_threads, struct err *err)
{
    struct team *team = NULL;
    struct read_rate rate = {0};
    *bytes_per_s = 0;
    bool ok = team_new(&team, alloc, n_threads, err) && read_rate_init(&rate, alloc, team, MEMORY_BYTES, err);
    for (int i = 0; ok && i < MEMORY_RUNS; i++) {
        int64_t begin_ns = clock_now_ns(clock_real());
        read_rate_run(&rate, team);
        double seconds = (double)(clock_now_ns(clock_real()) - begin_ns) / 1e9;
        if (MEMORY_BYTES / seconds > *bytes_per_s) *bytes_per_s = MEMORY_BYTES / seconds;
    }
    read_rate_fini(&rate);
    team_free(team);
    return ok;
}

struct snapshot {
    int64_t ns;
    struct slots_stats slots;
    struct streamer_stats streamer;
    struct reader_stats reader;
};

static struct snapshot snap(const struct bench *b)
{
    struct streamed *s = engine_streamed(b->engine);
    return (struct snapshot){clock_now_ns(clock_real()), *slots_stats(streamed_slots(s)), *streamed_stats(s),
                             *reader_stats(streamed_reader(s))};
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Adds what happened since `from`. */
static void add_round(struct bench *b, struct engine_bench_phase *p, const struct snapshot *from, uint32_t n_tokens,
                      uint32_t n_passes)
{
    struct snapshot to = snap(b);
    p->n_tokens += n_tokens;
    p->n_passes += n_passes;
    p->ns += to.ns - from->ns;
    p->waited_ns += to.streamer.waited_ns - from->streamer.waited_ns;
    p->busy_ns += to.reader.busy_ns - from->reader.busy_ns;
    p->bytes_wanted += to.slots.bytes_wanted - from->slots.bytes_wanted;
    p->bytes_needed += to.slots.bytes_needed - from->slots.bytes_needed;
    p->bytes_read += to.reader.bytes_landed - from->reader.bytes_landed;
    p->bytes_spine += n_passes * b->spine_bytes;
    p->n_hits += to.slots.n_hits - from->slots.n_hits;
    p->n_misses += to.slots.n_misses - from->slots.n_misses;
    p->n_joined += to.slots.n_joined - from->slots.n_joined;
    p->n_hints += to.slots.n_hints - from->slots.n_hints;
    p->lead_ns += to.streamer.lead_ns - from->streamer.lead_ns;
    p->n_hint_hits += to.slots.n_hint_hits - from->slots.n_hint_hits;
}

static void weigh(struct engine_bench_phase *p, const struct engine_bench_result *r, bool is_decode)
{
    double seconds = (double)p->ns / 1e9, disk = disk_figures_rate(&p->ceiling);
    if (p->n_tokens == 0) return;
    p->disk_floor_s = (double)p->bytes_needed / disk;
    p->memory_floor_s = (double)(p->bytes_wanted + p->bytes_spine) / r->memory_bytes_per_s;
    p->processor_s = (double)(p->ns - p->waited_ns) / 1e9;
    if (is_decode && r->n_resident > 0) p->processor_s = (double)r->resident_ns / 1e9 * (double)p->n_tokens;
    p->over_floor = seconds / larger(p->disk_floor_s, p->processor_s);
    p->disk_share = (double)p->bytes_read / seconds / disk;
}

static bool feed_prompt(struct bench *b, struct engine_bench_phase *p, uint32_t n, struct err *err)
{
    uint32_t *tokens = alloc_get_array(b->alloc, n, sizeof *tokens, err);
    if (!tokens) return false;
    for (uint32_t i = 0; i < n; i++) tokens[i] = random_token(b);
    struct snapshot from = snap(b);
    bool ok = session_feed(&b->session, tokens, n, NULL, NULL, err);
    add_round(b, p, &from, n, (uint32_t)div_up(n, engine_settings_of(b->engine)->pass_rows));
    alloc_put(b->alloc, tokens);
    return ok;
}

static bool run_prompts(struct bench *b, struct engine_bench_phase *p, uint32_t n_tokens, uint32_t n_rounds,
                        struct err *err)
{
    if (!measure_disk(b, p, err)) return false;
    for (uint32_t i = 0; i < n_rounds; i++)
        if (!feed_prompt(b, p, n_tokens, err) || !measure_disk(b, p, err)) return false;
    return true;
}

static bool feed_likeliest(struct bench *b, uint32_t *token, struct err *err)
{
    *token = forward_argmax(b->session.logits, engine_config(b->engine)->vocab);
    return session_feed(&b->session, token, 1, NULL, NULL, err);
}

static bool run_decode(struct bench *b, struct engine_bench_phase *p, uint32_t n_tokens, uint32_t n_rounds,
                       struct err *err)
{
    if (!measure_disk(b, p, err)) return false;
    for (uint32_t done = 0, round = 1; round <= n_rounds; round++) {
        uint32_t n = (uint32_t)((uint64_t)n_tokens * round / n_rounds) - done, token;
        struct snapshot from = snap(b);
        for (uint32_t i = 0; i < n; i++)
            if (!feed_likeliest(b, &token, err)) return false;
        add_round(b, p, &from, n, n);
        done += n;
        if (!measure_disk(b, p, err)) return false;
    }
    return true;
}

/* Every token twice: the second time its experts are in memory, and what remains is the processor's. With too few slots
 * for one token's experts there is no such time. */
static bool run_resident(struct bench *b, uint32_t n_tokens, struct err *err)
{
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint32_t token;
        if (!feed_likeliest(b, &token, err)) return false;
        session_rewind(&b->session, session_tokens(&b->session) - 1);
        struct snapshot from = snap(b);
        if (!session_feed(&b->session, &token, 1, NULL, NULL, err)) return false;
        struct snapshot to = snap(b);
        if (to.slots.n_misses + to.slots.n_joined > from.slots.n_misses + from.slots.n_joined) continue;
        int64_t ns = to.ns - from.ns;
        if (b->result->n_resident++ == 0 || ns < b->result->resident_ns) b->result->resident_ns = ns;
    }
    return true;
}

uint32_t engine_bench_tokens(const struct engine_bench_shape *s)
{
    return s->prompt_tokens * (1 + s->prompt_rounds) + s->warm_up_tokens + s->decode_tokens + s->resident_tokens;
}

static bool run_phases(struct bench *b, const struct engine_bench_shape *shape, struct err *err)
{
    struct engine_bench_result *r = b->result;
    return run_prompts(b, &r->first_prompt, shape->prompt_tokens, 1, err) &&
           run_prompts(b, &r->prefill, shape->prompt_tokens, shape->prompt_rounds, err) &&
           run_decode(b, &r->warm_up, shape->warm_up_tokens, 1, err) &&
           run_decode(b, &r->decode, shape->decode_tokens, shape->decode_rounds, err) &&
           run_resident(b, shape->resident_tokens, err) && streamed_regret(engine_streamed(b->engine), &r->regret, err);
}

bool engine_bench_run(struct engine_bench_result *result, struct engine *engine, const struct engine_bench_shape *shape,
                      struct err *err)
{
    struct bench b = {.engine = engine, .alloc = engine_alloc(engine), .result = result, .random = shape->seed};
    struct spine_bytes spine;
    ASSERT(shape->prompt_tokens > 0);
    ASSERT(shape->decode_rounds > 0);
    *result = (struct engine_bench_result){0};
    if (!engine_streamed(engine))
        return err_set(err, ERR_USER, "%s: a checkpoint does not stream", engine_settings_of(engine)->model_dir);
    if (!spine_count(&spine, b.alloc, engine_inventory(engine), engine_settings_of(engine)->streamed.spine, err))
        return false;
    b.spine_bytes = spine.main + spine.indexers;
    result->is_direct = streamed_is_direct(engine_streamed(engine));
    result->n_slots = engine_plan(engine)->n_slots_total;
    if (!memory_bench_run(&result->memory_bytes_per_s, b.alloc, engine_settings_of(engine)->n_threads, err))
        return false;
    session_init(&b.session, engine);
    bool ok = open_disk(&b, shape->seed, err) && run_phases(&b, shape, err);
    disk_bench_free(b.disk);
    session_fini(&b.session);
    weigh(&result->first_prompt, result, false);
    weigh(&result->prefill, result, false);
    weigh(&result->warm_up, result, true);
    weigh(&result->decode, result, true);
    return ok;
}
