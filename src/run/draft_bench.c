#include "run/draft_bench.h"

#include "base/assert.h"
#include "base/philox.h"
#include "run/bench_text.h"
#include "run/scheduler.h"
#include <stdlib.h>

enum {
    FILL_TOKENS = 48, /* of a prompt that only brings experts into memory */
    FILL_PROMPTS_MAX = 40,
    TAIL = 2 * (1 + DRAFTS_MTP_MAX), /* tokens behind a turn: what ends an answer must not end it early */
};

struct bench {
    struct engine *engine;
    const struct draft_bench_shape *shape;
    struct scheduler *schedulers[DRAFT_BENCH_WAYS_MAX];
    uint32_t *text;    /* [context] ids of this round */
    uint64_t *allowed; /* [vocab / 64 + 1] one bit: the next id */
    uint32_t n_vocab, n_prompt, n_got;
    uint64_t coin; /* the key of its draws */
    bool is_over;
};

/* --- the text and the coin --- */

/* What is drawn in a round, each of its own key. */
enum draw { DRAW_TEXT, DRAW_COIN, DRAW_FILL };

static uint64_t key_of(uint64_t seed, enum draw draw, uint32_t round)
{
    return seed << 34 ^ (uint64_t)draw << 32 ^ round;
}

static void make_text(struct bench *b, uint32_t round, uint32_t n)
{
    uint64_t key = key_of(b->shape->seed, DRAW_TEXT, round);
    for (uint32_t i = 0; i < n; i++) b->text[i] = bench_text_id(philox_unit(key, i), b->n_vocab);
    b->coin = key_of(b->shape->seed, DRAW_COIN, round);
}

/* --- the job --- */

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct bench *b = context;
    ASSERT(sampled->id == b->text[b->n_prompt + b->n_got]);
    b->n_got++;
    return STOP_NONE;
}

static void see_done(void *context, const struct job_result *result)
{
    struct bench *b = context;
    (void)result;
    b->is_over = true;
}

static const uint64_t *the_next(void *context)
{
    struct bench *b = context;
    uint32_t at = b->n_prompt + b->n_got;
    if (b->n_got > 0) b->allowed[b->text[at - 1] / 64] = 0;
    b->allowed[b->text[at] / 64] = UINT64_C(1) << b->text[at] % 64;
    return b->allowed;
}

static uint32_t right_or_wrong(void *context, uint32_t at, uint32_t draft)
{
    const struct bench *b = context;
    uint32_t right = b->text[at];
    if (philox_unit(b->coin, at) < b->shape->chance) return right;
    return draft == right ? (draft + 1) % b->n_vocab : draft;
}

/* --- turns --- */

static struct draft_bench_turn read_counters(const struct bench *b, const struct scheduler *scheduler)
{
    const struct reader *reader = streamed_reader(engine_streamed(b->engine));
    struct scheduler_stats stats = scheduler_stats(scheduler);
    return (struct draft_bench_turn){.ns = clock_now_ns(clock_real()),
                                     .n_tokens = b->n_got,
                                     .n_passes = stats.n_passes,
                                     .n_drafted = stats.n_drafted,
                                     .n_accepted = stats.n_accepted,
                                     .bytes_read = reader_stats(reader)->bytes_landed};
}

static struct draft_bench_turn between(const struct draft_bench_turn *from, const struct draft_bench_turn *to)
{
    return (struct draft_bench_turn){to->ns - from->ns,
                                     to->n_tokens - from->n_tokens,
                                     to->n_passes - from->n_passes,
                                     to->n_drafted - from->n_drafted,
                                     to->n_accepted - from->n_accepted,
                                     to->bytes_read - from->bytes_read};
}

static void set_pace(const struct bench *b, uint64_t bytes_per_s)
{
    if (b->shape->pace) b->shape->pace->bytes_per_s = bytes_per_s;
}

/* One answer. What counts begins and ends between two passes, and drafts are made behind the pass before theirs. */
static bool take_turn(struct bench *b, struct scheduler *scheduler, struct draft_bench_turn *turn, struct err *err)
{
    const struct draft_bench_shape *shape = b->shape;
    uint32_t begins = shape->warm_up_tokens, ends = begins + shape->turn_tokens;
    struct sampling sampling = sampling_built_in();
    struct draft_bench_turn from = {0}, to;
    bool is_counting = false;
    sampling.temperature = 0;
    sampling.max_tokens = ends + TAIL;
    const struct sampler_rules rules = {.sampling = &sampling};
    struct job job = {
        .prompt = b->text,
        .n_prompt = b->n_prompt,
        .rules = &rules,
        .events = {.context = b, .token = see_token, .done = see_done, .allowed = the_next, .draft = right_or_wrong}};
    b->n_got = 0;
    b->is_over = false;
    set_pace(b, 0);
    streamed_forget_use(engine_streamed(b->engine));
    if (!scheduler_submit(scheduler, &job, err)) return false;
    while (!b->is_over && b->n_got < ends) {
        scheduler_step(scheduler);
        if (b->n_got > 0) set_pace(b, shape->bytes_per_s);
        if (is_counting || b->n_got < begins) continue;
        is_counting = true;
        from = read_counters(b, scheduler);
    }
    to = read_counters(b, scheduler);
    b->allowed[b->text[b->n_prompt + b->n_got] / 64] = b->allowed[b->text[b->n_prompt + b->n_got - 1] / 64] = 0;
    *turn = between(&from, &to);
    if (b->is_over) return err_set(err, ERR_IO, "a pass failed"); /* nothing else ends it */
    job_cancel(&job);
    scheduler_end_cancelled(scheduler);
    set_pace(b, 0);
    return true;
}

uint32_t draft_bench_context(const struct draft_bench_shape *shape)
{
    uint32_t n = shape->prompt_tokens + shape->warm_up_tokens + shape->turn_tokens + TAIL;
    return n > FILL_TOKENS + TAIL ? n : FILL_TOKENS + TAIL;
}

static struct scheduler_settings settings_of(const struct engine *engine, uint32_t depth)
{
    struct scheduler_settings s = scheduler_settings_for(engine);
    s.n_tokens = engine_config(engine)->vocab;
    s.n_running_max = s.n_waiting_max = 1;
    s.decode_stall_ns_max = INT64_MAX;
    s.demote_idle_ns = INT64_MAX;
    s.clock = clock_real();
    s.draft = depth == 0 ? DRAFT_OFF : DRAFT_MTP;
    s.weighs_drafts = depth == DRAFT_BENCH_AUTO;
    if (depth != DRAFT_BENCH_AUTO) s.n_drafts_max = depth;
    return s;
}

static bool prepare(struct bench *b, struct engine *engine, struct err *err)
{
    b->engine = engine;
    b->n_vocab = engine_config(engine)->vocab;
    b->text = alloc_get_array(engine_alloc(engine), engine_settings_of(engine)->context_tokens, sizeof *b->text, err);
    b->allowed = alloc_get_array(engine_alloc(engine), b->n_vocab / 64 + 1, sizeof *b->allowed, err);
    return b->text && b->allowed;
}

static void clean_up(struct bench *b)
{
    for (uint32_t i = 0; i < DRAFT_BENCH_WAYS_MAX; i++) scheduler_free(b->schedulers[i]);
    alloc_put(engine_alloc(b->engine), b->allowed);
    alloc_put(engine_alloc(b->engine), b->text);
}

static bool run_rounds(struct bench *b, struct draft_bench_result *result, struct err *err)
{
    const struct draft_bench_shape *shape = b->shape;
    for (uint32_t round = 0; round <= shape->rounds; round++) {
        make_text(b, round, draft_bench_context(shape));
        for (uint32_t k = 0; k < result->n_ways; k++) {
            uint32_t i = (k + round) % result->n_ways;
            struct draft_bench_way *way = &result->ways[i];
            if (round == 0 && way->depth != 0 && way->depth != DRAFT_BENCH_AUTO) continue;
            if (!take_turn(b, b->schedulers[i], round == 0 ? &way->first : &way->turns[round - 1], err)) return false;
        }
    }
    return true;
}

bool draft_bench_run(struct draft_bench_result *result, struct engine *engine, const struct draft_bench_shape *shape,
                     struct err *err)
{
    struct bench b = {.shape = shape, .n_prompt = shape->prompt_tokens};
    ASSERT(shape->n_depths <= DRAFT_BENCH_WAYS_MAX);
    ASSERT(shape->rounds > 0 && shape->rounds <= DRAFT_BENCH_ROUNDS_MAX);
    ASSERT(shape->prompt_tokens > 0 && shape->warm_up_tokens > 0);
    *result = (struct draft_bench_result){.n_ways = shape->n_depths};
    bool ok = prepare(&b, engine, err);
    for (uint32_t i = 0; ok && i < shape->n_depths; i++) {
        const struct scheduler_settings settings = settings_of(engine, shape->depths[i]);
        result->ways[i].depth = shape->depths[i];
        ok = scheduler_new(&b.schedulers[i], engine, &settings, err);
    }
    if (ok) ok = run_rounds(&b, result, err);
    clean_up(&b);
    return ok;
}

bool draft_bench_fill(struct engine *engine, uint64_t seed, struct err *err)
{
    const struct draft_bench_shape shape = {.warm_up_tokens = 1, .prompt_tokens = FILL_TOKENS, .seed = seed};
    struct bench b = {.shape = &shape, .n_prompt = FILL_TOKENS};
    const struct scheduler_settings settings = settings_of(engine, 1);
    const struct slots_stats *slots = slots_stats(streamed_slots(engine_streamed(engine)));
    bool ok = prepare(&b, engine, err) && scheduler_new(&b.schedulers[0], engine, &settings, err);
    for (uint32_t i = 0; ok && i < FILL_PROMPTS_MAX; i++) {
        struct draft_bench_turn unused;
        uint64_t missed = slots->n_misses, evicted = slots->n_evictions;
        for (uint32_t k = 0; k < engine_settings_of(engine)->context_tokens; k++)
            b.text[k] = (uint32_t)(philox_unit(key_of(seed, DRAW_FILL, i), k) * b.n_vocab);
        ok = take_turn(&b, b.schedulers[0], &unused, err);
        if (slots->n_evictions > evicted || slots->n_misses == missed) break;
    }
    clean_up(&b);
    return ok;
}

bool draft_bench_device(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    enum { THREADS = 8 };
    struct err why;
    struct aio *under;
    if (!aio_uring_new(&under, alloc, depth, &why) && !aio_pool_new(&under, alloc, depth, THREADS, err)) return false;
    return aio_throttled_new(aio, alloc, under, context, clock_real(), err);
}

/* --- figures --- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rate_of(const struct draft_bench_turn *turn)
{
    return turn->ns > 0 ? (double)turn->n_tokens * 1e9 / (double)turn->ns : 0;
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double draft_bench_rate(const struct draft_bench_way *way, uint32_t rounds)
{
    double rates[DRAFT_BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < rounds; i++) rates[i] = rate_of(&way->turns[i]);
    return median(rates, rounds);
}

struct draft_bench_ratio draft_bench_compare(const struct draft_bench_way *way, const struct draft_bench_way *other,
                                             uint32_t rounds)
{
    double ratios[DRAFT_BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < rounds; i++) ratios[i] = rate_of(&way->turns[i]) / rate_of(&other->turns[i]);
    double middle = median(ratios, rounds); /* sorts */
    return (struct draft_bench_ratio){.median = middle, .least = ratios[0], .most = ratios[rounds - 1]};
}
