/* Extents and slots, one contract at a time; tests/sim runs them all at once. */
#include "resid/guard.h"
#include "resid/slots.h"
#include "support/check.h"
#include "resid/shard_files.h"
#include "support/toy_experts.h"

#include <errno.h>
#include <math.h>

static struct toy toy;

struct bench {
    struct alloc alloc;
    struct sim_clock time;
    struct aio_sim device;
    struct slot_classes classes;
    struct reader *reader;
    struct policy *policy;
    struct slots *slots;
    uint32_t *files;
};

static bool bench_try(struct bench *b, uint32_t n_small, uint32_t n_large, struct err *err)
{
    struct aio *aio;
    struct policy_shape shape = {TOY_LAYERS + 1, TOY_EXPERTS, n_small + n_large};
    struct reader_settings settings = {.depth = 4, .requests_max = 256, .files_max = 8};
    if (!slot_classes_find(&b->classes, &b->alloc, &toy.inventory, true, err)) return false;
    if (!aio_sim_new(&aio, &b->alloc, 4, &b->device, &b->time, err)) return false;
    if (!reader_new(&b->reader, &b->alloc, aio, clock_simulated(&b->time), &settings, err)) return false;
    if (!policy_new(&b->policy, &b->alloc, "lru", &shape, err)) return false;
    b->files = shard_files_add(&b->alloc, b->reader, &toy.catalogue, READER_BUFFERED, err);
    if (!b->files) return false;
    struct slots_settings with = {.files = b->files,
                                  .inventory = &toy.inventory,
                                  .classes = &b->classes,
                                  .n_slots = {n_small, n_large},
                                  .reader = b->reader,
                                  .policy = b->policy,
                                  .piece_bytes = EXTENT_PAGE};
    return slots_new(&b->slots, &b->alloc, &with, err);
}

static void bench_fini(struct bench *b)
{
    slots_free(b->slots);
    policy_free(b->policy);
    reader_free(b->reader);
    alloc_put(&b->alloc, b->files);
    assert_int_equal(b->alloc.live, 0);
    assert_int_equal(b->alloc.live_bytes, 0);
}

static void bench_open(struct bench *b, uint64_t seed, uint32_t n_small, uint32_t n_large)
{
    struct err err = {0};
    toy_open(&toy, seed);
    *b = (struct bench){.device = {.seed = seed, .delay_ns_min = 1000, .delay_ns_max = 90000}};
    if (!bench_try(b, n_small, n_large, &err)) fail_msg("%s", err.text);
}

static void bench_close(struct bench *b)
{
    bench_fini(b);
    toy_close(&toy);
}

static void load(struct bench *b, uint32_t layer, uint32_t expert, uint32_t *slot)
{
    struct err why = {0};
    uint32_t key = slots_key(b->slots, layer, expert), landed;
    enum slots_answer answer = slots_want(b->slots, key, READ_DEMAND, slot);
    assert_int_not_equal(answer, SLOTS_NO_ROOM);
    while (answer == SLOTS_COMING) {
        enum slots_event event = slots_poll(b->slots, true, &landed, &why);
        if (event == SLOTS_FAILED) fail_msg("%s", why.text);
        if (event == SLOTS_LANDED && landed == key) break;
        assert_int_not_equal(event, SLOTS_QUIET);
    }
}

static void extents_coalesce_what_is_adjacent(void **state)
{
    (void)state;
    struct err err = {0};
    toy_open(&toy, 5);
    uint32_t n_by_runs[EXTENT_RUNS_MAX + 1] = {0};
    for (uint32_t layer = 1; layer <= TOY_LAYERS; layer++) {
        for (uint32_t expert = 0; expert < TOY_EXPERTS; expert++) {
            struct extents x;
            assert_true(extents_find(&x, toy.experts[layer][expert], &err));
            n_by_runs[x.n_runs]++;
            assert_int_equal(x.weight_bytes, toy.weight_bytes[layer]);
            uint64_t at = 0;
            for (uint32_t i = 0; i < x.n_runs; i++) {
                assert_int_equal(x.runs[i].at, at);
                assert_int_equal(x.runs[i].offset % EXTENT_PAGE, 0);
                assert_int_equal(x.runs[i].bytes % EXTENT_PAGE, 0);
                assert_true(x.runs[i].bytes_needed <= x.runs[i].bytes);
                assert_true(x.runs[i].bytes_needed + EXTENT_PAGE > x.runs[i].bytes);
                at += x.runs[i].bytes;
            }
            assert_int_equal(x.slot_bytes, at);
            for (int p = 0; p < EXPERT_PARTS; p++) assert_int_equal(x.scales_at[p] % 4, 0);
        }
    }
    printf("experts with 1 .. 6 runs:");
    for (int i = 1; i <= EXTENT_RUNS_MAX; i++) printf(" %u", n_by_runs[i]);
    printf("\n");
    assert_true(n_by_runs[1] > 10); /* the toy's scales follow its payloads */
    assert_true(n_by_runs[2] > 3);  /* straddling experts */

    struct tensor crooked = *toy.experts[1][0][EXPERT_UP].scales;
    struct weight_source parts[EXPERT_PARTS];
    memcpy(parts, toy.experts[1][0], sizeof parts);
    crooked.offset += 2;
    parts[EXPERT_UP].scales = &crooked;
    struct extents x;
    assert_false(extents_find(&x, parts, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "up_proj"));
    toy_close(&toy);
}

static void classes_keep_small_slots_small(void **state)
{
    (void)state;
    struct err err = {0};
    struct slot_classes classes;
    uint32_t n[SLOT_CLASSES_MAX];
    toy_open(&toy, 5);
    assert_true(slot_classes_find(&classes, &toy.alloc, &toy.inventory, false, &err));
    uint32_t n_main = 0;
    for (uint32_t c = 0; c < classes.n; c++) n_main += classes.of[c].n_experts;
    assert_int_equal(n_main, 2 * TOY_EXPERTS);
    assert_true(slot_classes_find(&classes, &toy.alloc, &toy.inventory, true, &err));
    assert_int_equal(classes.n, 2);
    assert_int_equal(classes.of[1].n_experts, TOY_EXPERTS);
    for (uint64_t bytes = 0; bytes < 6000000; bytes += 14999) {
        uint64_t used = slot_classes_share(&classes, bytes, n), sum = 0, most = 0;
        for (uint32_t c = 0; c < classes.n; c++) {
            sum += n[c] * classes.of[c].slot_bytes;
            most += classes.of[c].n_experts * classes.of[c].slot_bytes;
            assert_true(n[c] <= classes.of[c].n_experts);
            if (used) assert_true(n[c] >= 1);
        }
        assert_int_equal(sum, used);
        assert_true(used <= bytes);
        if (bytes >= most) assert_int_equal(used, most); /* everything fits: everything gets a slot */
    }
    toy_close(&toy);
}

static void hits_share_and_leases_hold(void **state)
{
    (void)state;
    struct bench b;
    uint32_t slot[4], again, key;
    struct matrix part[EXPERT_PARTS];
    bench_open(&b, 2, 2, 1);
    load(&b, 1, 0, &slot[0]);
    load(&b, 1, 1, &slot[1]);
    load(&b, TOY_LAYERS, 4, &slot[2]); /* a large one, in its own class */
    slots_view(b.slots, slot[2], part);
    toy_compare(&toy, TOY_LAYERS, 4, part);
    slots_view(b.slots, slot[0], part);
    toy_compare(&toy, 1, 0, part);

    assert_int_equal(slots_want(b.slots, slots_key(b.slots, 1, 0), READ_DEMAND, &again), SLOTS_HIT);
    assert_int_equal(again, slot[0]);
    slots_unpin(b.slots, again);
    /* Both small slots are leased: no room, and nothing is taken away. */
    assert_int_equal(slots_want(b.slots, slots_key(b.slots, 2, 2), READ_DEMAND, &slot[3]), SLOTS_NO_ROOM);
    assert_true(slots_has(b.slots, slots_key(b.slots, 1, 0)));
    slots_unpin(b.slots, slot[0]);
    load(&b, 2, 2, &slot[3]);
    assert_int_equal(slot[3], slot[0]);
    assert_false(slots_has(b.slots, slots_key(b.slots, 1, 0)));
    assert_true(slots_has(b.slots, slots_key(b.slots, 1, 1)));

    /* Two wants for one expert on its way share one read, and both hold a lease. */
    slots_unpin(b.slots, slot[1]);
    uint32_t first, second;
    uint64_t loads = slots_stats(b.slots)->n_loads;
    assert_int_equal(slots_want(b.slots, slots_key(b.slots, 2, 8), READ_DEMAND, &first), SLOTS_COMING);
    assert_int_equal(slots_want(b.slots, slots_key(b.slots, 2, 8), READ_DEMAND, &second), SLOTS_COMING);
    assert_int_equal(first, second);
    assert_int_equal(slots_stats(b.slots)->n_loads, loads + 1);
    assert_int_equal(slots_poll(b.slots, true, &key, NULL), SLOTS_LANDED);
    assert_int_equal(key, slots_key(b.slots, 2, 8));
    slots_unpin(b.slots, first);
    assert_int_equal(slots_stats(b.slots)->n_leased, 3);
    slots_unpin(b.slots, second);
    slots_unpin(b.slots, slot[2]);
    slots_unpin(b.slots, slot[3]);
    assert_int_equal(slots_stats(b.slots)->n_leased, 0);
    assert_true(slots_check(b.slots));
    assert_int_equal(slots_poll(b.slots, true, &key, NULL), SLOTS_QUIET);
    bench_close(&b);
}

static void bad_scales_are_refused_by_name(void **state)
{
    (void)state;
    static const float bad[] = {0.0f, -1.0f, NAN, INFINITY, -INFINITY};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bench b;
        struct err why = {0};
        uint32_t slot, key;
        bench_open(&b, 3, 2, 1);
        const struct tensor *scales = toy.experts[1][2][EXPERT_DOWN].scales;
        memcpy(toy.data[scales->shard] + scales->offset + 4 * 17, &bad[i], 4);
        assert_int_equal(slots_want(b.slots, slots_key(b.slots, 1, 2), READ_DEMAND, &slot), SLOTS_COMING);
        assert_int_equal(slots_poll(b.slots, true, &key, &why), SLOTS_FAILED);
        assert_int_equal(why.kind, ERR_DATA);
        assert_non_null(strstr(why.text, "model.layers.1.mlp.experts.2.down_proj.weight.qs"));
        assert_non_null(strstr(why.text, "scale 17 "));
        assert_int_equal(slots_stats(b.slots)->n_leased, 0);
        assert_true(slots_check(b.slots));
        load(&b, 1, 3, &slot); /* the engine serves on */
        slots_unpin(b.slots, slot);
        bench_close(&b);
    }
}

static int broken_sector(void *context, const struct aio_read *read)
{
    const struct tensor *t = context;
    bool hits = read->file == &toy.shards[t->shard].file && read->offset < t->offset + t->bytes &&
                read->offset + read->bytes > t->offset;
    return hits ? EIO : 0;
}

static void a_broken_sector_fails_one_expert_and_names_it(void **state)
{
    (void)state;
    struct bench b;
    struct err why = {0};
    uint32_t slot, key;
    enum slots_event event;
    bench_open(&b, 4, 2, 1);
    b.device.fault = broken_sector;
    b.device.fault_context = (void *)(uintptr_t)toy.experts[2][1][EXPERT_UP].payload;
    assert_int_equal(slots_want(b.slots, slots_key(b.slots, 2, 1), READ_DEMAND, &slot), SLOTS_COMING);
    assert_int_equal(slots_poll(b.slots, true, &key, &why), SLOTS_FAILED);
    assert_int_equal(key, slots_key(b.slots, 2, 1));
    assert_int_equal(why.kind, ERR_IO);
    assert_non_null(strstr(why.text, "model.layers.2.mlp.experts.1.up_proj.weight"));
    assert_non_null(strstr(why.text, "toy/a.safetensors"));
    while ((event = slots_poll(b.slots, true, &key, &why)) != SLOTS_QUIET) assert_int_equal(event, SLOTS_FREED);
    load(&b, 2, 8, &slot);
    slots_unpin(b.slots, slot);
    bench_close(&b);
}

static void a_cut_file_is_told_and_never_filled_with_zeros(void **state)
{
    (void)state;
    struct bench b;
    struct err why = {0};
    uint32_t slot, key;
    bench_open(&b, 4, 2, 2);
    const struct tensor *last = toy.experts[TOY_LAYERS][11][EXPERT_UP].scales;
    toy.files.files[last->shard].bytes = last->offset + last->bytes - 1;
    assert_int_equal(slots_want(b.slots, slots_key(b.slots, TOY_LAYERS, 11), READ_DEMAND, &slot), SLOTS_COMING);
    assert_int_equal(slots_poll(b.slots, true, &key, &why), SLOTS_FAILED);
    assert_int_equal(why.kind, ERR_DATA);
    assert_non_null(strstr(why.text, last->name));
    bench_close(&b);
}

static void hints_are_cheap_and_give_way(void **state)
{
    (void)state;
    struct bench b;
    uint32_t slot, key;
    bench_open(&b, 6, 1, 1);
    slots_hint(b.slots, slots_key(b.slots, 1, 0), READ_HINT);
    assert_int_equal(slots_stats(b.slots)->n_loading, 1);
    slots_hint(b.slots, slots_key(b.slots, 1, 1), READ_HINT); /* no room: ignored */
    assert_int_equal(slots_stats(b.slots)->n_loading, 1);
    /* Demand for another takes the slot as soon as the hint is off. */
    assert_int_equal(slots_want(b.slots, slots_key(b.slots, 1, 2), READ_DEMAND, &slot), SLOTS_NO_ROOM);
    assert_int_equal(slots_stats(b.slots)->n_draining, 1);
    assert_int_equal(slots_poll(b.slots, true, &key, NULL), SLOTS_FREED);
    load(&b, 1, 2, &slot);
    slots_unpin(b.slots, slot);
    slots_hint(b.slots, slots_key(b.slots, 1, 3), READ_HINT); /* never asked for: not worth more than 1.2 */
    assert_true(slots_has(b.slots, slots_key(b.slots, 1, 2)));
    assert_int_equal(slots_stats(b.slots)->n_loading, 0);

    /* A hinted load that is wanted is joined, not read again. */
    slots_hint(b.slots, slots_key(b.slots, TOY_LAYERS, 0), READ_HINT);
    load(&b, TOY_LAYERS, 0, &slot);
    slots_unpin(b.slots, slot);
    assert_int_equal(slots_stats(b.slots)->n_hint_hits, 1);
    assert_int_equal(slots_stats(b.slots)->n_joined, 1);
    bench_close(&b);
}

static void shrinking_gives_memory_back(void **state)
{
    (void)state;
    struct bench b;
    uint32_t slot[3];
    struct matrix part[EXPERT_PARTS];
    bench_open(&b, 7, 4, 1);
    load(&b, 1, 0, &slot[0]);
    load(&b, 1, 1, &slot[1]);
    load(&b, 1, 2, &slot[2]);
    slots_unpin(b.slots, slot[1]);
    slots_unpin(b.slots, slot[2]);
    assert_int_equal(slots_shrink(b.slots, 2), 2); /* the empty one, and 1.1, which is the oldest without a lease */
    assert_true(slots_check(b.slots));
    assert_false(slots_has(b.slots, slots_key(b.slots, 1, 1)));
    assert_int_equal(slots_shrink(b.slots, 10), 1); /* the leased one stays */
    slots_view(b.slots, slot[0], part);
    toy_compare(&toy, 1, 0, part);
    slots_unpin(b.slots, slot[0]);
    assert_int_equal(slots_regrow(b.slots, 10), 3);
    load(&b, 1, 1, &slot[1]);
    slots_view(b.slots, slot[1], part);
    toy_compare(&toy, 1, 1, part);
    slots_unpin(b.slots, slot[1]);
    bench_close(&b);
}

static void the_guard_shrinks_at_once_and_regrows_slowly(void **state)
{
    (void)state;
    struct bench b;
    struct guard guard = {.budget_bytes = 1000000, .slot_bytes = 100000, .quiet_ns = 60};
    bench_open(&b, 8, 8, 1);
    assert_int_equal(guard_step(&guard, b.slots, 1000000, 0), 0);
    assert_int_equal(guard_step(&guard, b.slots, 1100001, 10), -2); /* over by a slot and a byte */
    assert_int_equal(guard_step(&guard, b.slots, 700000, 69), 0);   /* not quiet for long enough */
    assert_int_equal(guard_step(&guard, b.slots, 900000, 70), 0);   /* no room for two */
    assert_int_equal(guard_step(&guard, b.slots, 700000, 80), 1);
    assert_int_equal(guard_step(&guard, b.slots, 700000, 81), 0);
    assert_int_equal(guard_step(&guard, b.slots, 700000, 140), 1);
    assert_int_equal(guard_step(&guard, b.slots, 700000, 500), 0); /* all are back */
    guard.budget_bytes = 0; /* a budget that cannot be met leaves one slot of each class */
    assert_int_equal(guard_step(&guard, b.slots, UINT64_MAX, 600), -7);
    assert_int_equal(slots_stats(b.slots)->n_retired, 7);
    assert_int_equal(guard.n_shrinks, 2);
    assert_int_equal(guard.n_regrowths, 2);
    assert_true(slots_check(b.slots));
    bench_close(&b);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    toy_open(&toy, 1);
    uint64_t k = 1;
    for (;; k++) {
        struct bench b = {.alloc = {.fail_at = k}, .device = {.seed = 1}};
        struct err err = {0};
        bool ok = bench_try(&b, 3, 1, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        bench_fini(&b);
        if (ok) break;
    }
    printf("%d allocations failed one by one\n", (int)k - 1);
    assert_true(k > 10);
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_coalesce_what_is_adjacent),
        cmocka_unit_test(classes_keep_small_slots_small),
        cmocka_unit_test(hits_share_and_leases_hold),
        cmocka_unit_test(bad_scales_are_refused_by_name),
        cmocka_unit_test(a_broken_sector_fails_one_expert_and_names_it),
        cmocka_unit_test(a_cut_file_is_told_and_never_filled_with_zeros),
        cmocka_unit_test(hints_are_cheap_and_give_way),
        cmocka_unit_test(shrinking_gives_memory_back),
        cmocka_unit_test(the_guard_shrinks_at_once_and_regrows_slowly),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
