/* Thousands of schedules of want, next, unpin and hint against a small model on a simulated disk that delays, reorders,
 * cuts reads short and fails. Whatever happens: every byte handed out is the file's, nothing hangs, nothing leaks, the
 * invariants hold after every step, and the counters tell what the device did. */
#include "resid/shard_files.h"
#include "resid/streamer.h"
#include "support/check.h"
#include "support/toy_experts.h"

#include <dirent.h>

enum { HELD_MAX = 4 };

static struct toy toy;
static uint64_t random_state;

static uint32_t rnd(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

struct rig {
    struct alloc alloc;
    struct sim_clock time;
    struct aio_sim device;
    struct slot_classes classes;
    struct reader *reader;
    struct policy *policy;
    uint32_t *files;
    struct weights *weights;
    struct lease held[HELD_MAX + 1];
    uint32_t n_held;
    uint64_t n_given, n_refused, n_failed;
};

struct shape {
    uint32_t n_small, n_large;
    unsigned depth;
    uint32_t requests_max;
    uint64_t piece_bytes;
    const char *policy;
};

static bool rig_try(struct rig *r, struct shape shape, struct err *err)
{
    struct aio *aio;
    struct policy_shape keys = {TOY_LAYERS + 1, TOY_EXPERTS, shape.n_small + shape.n_large};
    struct reader_settings settings = {
        .depth = shape.depth, .requests_max = shape.requests_max, .files_max = TOY_SHARDS};
    if (!slot_classes_find(&r->classes, &r->alloc, &toy.inventory, true, err)) return false;
    if (!aio_sim_new(&aio, &r->alloc, settings.depth, &r->device, &r->time, err)) return false;
    if (!reader_new(&r->reader, &r->alloc, aio, clock_simulated(&r->time), &settings, err)) return false;
    if (!policy_new(&r->policy, &r->alloc, shape.policy, &keys, err)) return false;
    r->files = shard_files_add(&r->alloc, r->reader, &toy.catalogue, READER_BUFFERED, err);
    if (!r->files) return false;
    struct streamer_settings with = {.slots = {.inventory = &toy.inventory,
                                               .classes = &r->classes,
                                               .n_slots = {shape.n_small, shape.n_large},
                                               .reader = r->reader,
                                               .policy = r->policy,
                                               .files = r->files,
                                               .piece_bytes = shape.piece_bytes},
                                     .clock = clock_simulated(&r->time),
                                     .embedding_rows_kept = 1};
    return streamer_new(&r->weights, &r->alloc, &with, err);
}

static void rig_open(struct rig *r, struct shape shape)
{
    struct err err = {0};
    if (!rig_try(r, shape, &err)) fail_msg("%s", err.text);
}

static void rig_fini(struct rig *r)
{
    streamer_free(r->weights);
    policy_free(r->policy);
    reader_free(r->reader);
    alloc_put(&r->alloc, r->files);
    assert_int_equal(r->alloc.live, 0);
    assert_int_equal(r->alloc.live_bytes, 0);
    assert_int_equal(r->device.n_flying, 0);
}

static void give_back(struct rig *r, uint32_t i)
{
    struct lease *lease = &r->held[i];
    /* Still untouched after all that happened; the comparison takes most of the time, so not always. */
    if (rnd(4) == 0) toy_compare(&toy, lease->layer, lease->expert, lease->part);
    r->weights->ops->unpin(r->weights, lease);
    r->held[i] = r->held[--r->n_held];
}

static uint32_t pick(uint32_t *ids, uint32_t most)
{
    uint32_t n = 0, chance = 1 + rnd(TOY_EXPERTS);
    for (uint32_t e = 0; e < TOY_EXPERTS && n < most; e++)
        if (rnd(TOY_EXPERTS) < chance) ids[n++] = e;
    return n;
}

/* One expert of a want. False when the rest of the want is not to come. */
static bool one_next(struct rig *r, uint32_t layer, enum want_order order, uint32_t expected, uint32_t *seen)
{
    struct lease lease;
    struct err err = {0};
    if (rnd(40) == 0) return false; /* called off: the next want takes over */
    if (!r->weights->ops->next(r->weights, &lease, &err)) {
        assert_true(err.kind == ERR_IO || err.kind == ERR_FIT);
        if (err.kind == ERR_IO) assert_non_null(strstr(err.text, "toy/"));
        if (err.kind == ERR_FIT) assert_true(r->n_held > 0);
        r->n_failed += err.kind == ERR_IO;
        r->n_refused += err.kind == ERR_FIT;
        return false;
    }
    r->n_given++;
    assert_int_equal(lease.layer, layer);
    if (order == ORDER_ASCENDING) assert_int_equal(lease.expert, expected);
    assert_false(*seen & 1u << lease.expert);
    *seen |= 1u << lease.expert;
    toy_compare(&toy, layer, lease.expert, lease.part);
    r->held[r->n_held++] = lease;
    return true;
}

/* One want and its nexts, with leases held for a while. */
static void one_want(struct rig *r, uint32_t layer)
{
    uint32_t ids[TOY_EXPERTS], n = pick(ids, TOY_EXPERTS), seen = 0;
    enum want_order order = rnd(3) == 0 ? ORDER_ASCENDING : ORDER_ANY;
    struct err err = {0};
    uint32_t hold_max = rnd(4) == 0 ? rnd(HELD_MAX) : 0;
    if (n == 0) return;
    assert_true(r->weights->ops->want(r->weights, layer, ids, n, order, &err));
    for (uint32_t k = 0; k < n && one_next(r, layer, order, ids[k], &seen); k++) {
        slots_check(streamer_slots(r->weights));
        while (r->n_held > hold_max) give_back(r, rnd(r->n_held));
        if (rnd(2) == 0) r->weights->ops->tend(r->weights);
        slots_check(streamer_slots(r->weights));
    }
    if (rnd(3) == 0) {
        uint32_t hints[TOY_EXPERTS], other = 1 + rnd(TOY_LAYERS), n_hints = pick(hints, 4);
        r->weights->ops->hint(r->weights, other, hints, rnd(n_hints + 1), n_hints);
    }
    while (r->n_held > 0) give_back(r, 0);
}

static void check_counters(const struct rig *r)
{
    const struct reader_stats *reader = reader_stats(r->reader);
    const struct slots_stats *slots = slots_stats(streamer_slots(r->weights));
    assert_int_equal(reader->n_attempts, r->device.n_attempts);
    assert_int_equal(reader->bytes_landed, r->device.n_bytes);
    assert_int_equal(reader->n_eio, r->device.n_eio);
    assert_true(slots->bytes_loaded <= r->device.n_bytes);
    assert_int_equal(slots->n_loads, slots->n_misses + slots->n_hints);
    assert_true(slots->n_hits + slots->n_misses + slots->n_joined >= r->n_given);
    assert_int_equal(slots->n_leased, 0);
}

#ifdef WEIR_SLOW_ASSERTS /* sanitizer builds are many times slower and look for other things */
enum { SEEDS = 300 };
#else
enum { SEEDS = 2000 };
#endif

static void any_schedule(void **state)
{
    (void)state;
    static const uint64_t pieces[] = {0, EXTENT_PAGE * 3, EXTENT_PAGE * 16};
    uint64_t n_given = 0, n_refused = 0, n_failed = 0, n_gave_way = 0, n_hint_hits = 0, n_stale = 0, n_evictions = 0;
    toy_open(&toy, 1);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        random_state = seed * 7919;
        bool is_rough = rnd(2);
        struct rig r = {.device = {.seed = seed,
                                   .delay_ns_min = rnd(2) * 1000,
                                   .delay_ns_max = 1000 + rnd(3000000),
                                   .short_chance = is_rough ? 100 : 0,
                                   .interrupt_chance = is_rough ? 50 : 0,
                                   .eio_chance = is_rough ? rnd(250) : 0}};
        rig_open(&r, (struct shape){.n_small = 1 + rnd(2 * TOY_EXPERTS),
                                    .n_large = 1 + rnd(TOY_EXPERTS),
                                    .depth = 1 + rnd(8),
                                    .requests_max = 64 + rnd(200),
                                    .piece_bytes = pieces[rnd(3)],
                                    .policy = policy_kind_at(seed % policy_count()).name});
        struct slots *slots = streamer_slots(r.weights);
        for (int pass = 0; pass < 4; pass++) {
            for (uint32_t layer = 1; layer <= TOY_LAYERS; layer++) one_want(&r, layer);
            r.weights->ops->drop(r.weights);
            if (rnd(4) == 0) slots_shrink(slots, rnd(4));
            if (rnd(4) == 0) slots_regrow(slots, rnd(4));
            slots_check(slots);
        }
        check_counters(&r);
        const struct slots_stats *stats = slots_stats(slots);
        n_given += r.n_given, n_refused += r.n_refused, n_failed += r.n_failed;
        n_gave_way += streamer_stats(r.weights)->n_gave_way;
        n_hint_hits += stats->n_hint_hits, n_stale += stats->n_stale_reads, n_evictions += stats->n_evictions;
        rig_fini(&r);
    }
    toy_close(&toy);
    printf("seeds 1..%d: %d experts compared, %d evictions, %d reads failed for good, %d times no slot, "
           "%d gave way, %d hints paid, %d stale reads\n",
           SEEDS, (int)n_given, (int)n_evictions, (int)n_failed, (int)n_refused, (int)n_gave_way, (int)n_hint_hits,
           (int)n_stale);
    /* Every kind of thing must have happened, or the test proves less than it says. */
    assert_true(n_given > 25 * SEEDS);
    assert_true(n_evictions > 5 * SEEDS);
    assert_true(n_failed > SEEDS / 40);
    assert_true(n_refused > SEEDS / 40);
    assert_true(n_gave_way > SEEDS / 40);
    assert_true(n_hint_hits > SEEDS / 40);
    assert_true(n_stale > SEEDS / 40);
}

static int n_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static const struct shape tight = {.n_small = 1, .n_large = 1, .depth = 4, .requests_max = 64, .policy = "lru"};

static void ten_thousand_reloads_grow_nothing(void **state)
{
    (void)state;
    struct rig r = {.device = {.seed = 1, .delay_ns_max = 1000}};
    struct err err = {0};
    toy_open(&toy, 2);
    rig_open(&r, tight);
    uint64_t calls = r.alloc.calls, live = r.alloc.live_bytes;
    unsigned n_open = toy.files.n_open;
    int descriptors = n_descriptors();
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t id = i % TOY_EXPERTS;
        struct lease lease;
        assert_true(r.weights->ops->want(r.weights, 1 + i % 2, &id, 1, ORDER_ANY, &err));
        assert_true(r.weights->ops->next(r.weights, &lease, &err));
        if (i % 50 == 0) toy_compare(&toy, 1 + i % 2, id, lease.part);
        r.weights->ops->unpin(r.weights, &lease);
    }
    assert_int_equal(slots_stats(streamer_slots(r.weights))->n_evictions, 9999);
    assert_int_equal(r.alloc.calls, calls);
    assert_int_equal(r.alloc.live_bytes, live);
    assert_int_equal(toy.files.n_open, n_open);
    assert_int_equal(n_descriptors(), descriptors);
    rig_fini(&r);
    toy_close(&toy);
}

static void a_sweep_reads_each_expert_once(void **state)
{
    (void)state;
    static const uint32_t slots[] = {1, 2, 5, 12};
    toy_open(&toy, 3);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        for (int order = ORDER_ANY; order <= ORDER_ASCENDING; order++) {
            struct rig r = {.device = {.seed = i, .delay_ns_max = 50000}};
            struct shape shape = tight;
            struct err err = {0};
            uint32_t ids[TOY_EXPERTS];
            shape.n_small = slots[i];
            rig_open(&r, shape);
            for (uint32_t e = 0; e < TOY_EXPERTS; e++) ids[e] = e;
            assert_true(r.weights->ops->want(r.weights, 1, ids, TOY_EXPERTS, (enum want_order)order, &err));
            for (uint32_t e = 0; e < TOY_EXPERTS; e++) {
                struct lease lease;
                assert_true(r.weights->ops->next(r.weights, &lease, &err));
                r.weights->ops->unpin(r.weights, &lease);
            }
            assert_int_equal(slots_stats(streamer_slots(r.weights))->n_loads, TOY_EXPERTS);
            assert_int_equal(slots_stats(streamer_slots(r.weights))->bytes_wanted, TOY_EXPERTS * toy.weight_bytes[1]);
            rig_fini(&r);
        }
    }
    toy_close(&toy);
}

/* All misses of a want are on their way together: the time of one, not their sum. */
static void misses_overlap(void **state)
{
    (void)state;
    struct rig r = {.device = {.seed = 1, .delay_ns_min = 5000000, .delay_ns_max = 5000000}};
    struct shape shape = {.n_small = 8, .n_large = 1, .depth = 32, .requests_max = 64, .policy = "lru"};
    struct err err = {0};
    uint32_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    toy_open(&toy, 4);
    rig_open(&r, shape);
    assert_true(r.weights->ops->want(r.weights, 1, ids, 8, ORDER_ANY, &err));
    for (int k = 0; k < 8; k++) {
        struct lease lease;
        assert_true(r.weights->ops->next(r.weights, &lease, &err));
        r.weights->ops->unpin(r.weights, &lease);
    }
    assert_int_equal(r.time.now_ns, 5000000);
    rig_fini(&r);
    toy_close(&toy);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    uint64_t k = 1;
    toy_open(&toy, 6);
    for (;; k++) {
        struct rig r = {.alloc = {.fail_at = k}, .device = {.seed = 1}};
        struct err err = {0};
        bool ok = rig_try(&r, tight, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        rig_fini(&r);
        if (ok) break;
    }
    printf("%d allocations failed one by one\n", (int)k - 1);
    assert_true(k > 12);
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_schedule),
        cmocka_unit_test(ten_thousand_reloads_grow_nothing),
        cmocka_unit_test(a_sweep_reads_each_expert_once),
        cmocka_unit_test(misses_overlap),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
