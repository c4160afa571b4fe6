/* Traces come back as they were written, damage is cut off and told; and replays count right, the optimum exactly. */
#include "resid/replay.h"
#include "resid/trace.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <stdlib.h>

static uint64_t random_state;
static uint32_t rnd(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

enum { K = 3, ROWS = 5 };

static const struct trace_shape small = {.n_layers = 4, .n_experts = 16, .n_per_row = K, .identity = {1, 2, 3}};
static const struct trace_shape wide = {.n_layers = 4, .n_experts = 300, .n_per_row = K, .identity = {1, 2, 3}};

/* Step number i of the test's trace. */
static struct trace_step step_of(const struct trace_shape *shape, uint32_t i, uint16_t experts[ROWS * K])
{
    random_state = i + 1;
    struct trace_step step = {.pass = i / 3,
                              .n_rows = 1 + rnd(ROWS),
                              .layer = 1 + i % 3,
                              .phase = (enum trace_phase)rnd(TRACE_PHASES),
                              .experts = experts};
    for (uint32_t r = 0; r < step.n_rows; r++) {
        uint32_t first = rnd(shape->n_experts / 4);
        for (uint32_t k = 0; k < K; k++) experts[r * K + k] = (uint16_t)(first + k * (1 + r));
    }
    return step;
}

static void write_steps(struct alloc *alloc, const char *path, const struct trace_shape *shape, uint32_t from,
                        uint32_t to)
{
    struct trace_writer *writer;
    struct err err = {0};
    if (!trace_create(&writer, alloc, file_system_real(), write_system_real(), path, shape, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = from; i < to; i++) {
        uint16_t experts[ROWS * K];
        struct trace_step step = step_of(shape, i, experts);
        assert_true(trace_add(writer, &step, &err));
    }
    assert_true(trace_flush(writer, &err));
    trace_close(writer);
}

/* How many steps come back, all compared; *dropped tells what was left out. */
static uint32_t read_steps(struct alloc *alloc, const char *path, const struct trace_shape *shape, uint64_t *dropped)
{
    struct trace_reader *reader;
    struct err err = {0};
    uint32_t n = 0;
    if (!trace_open(&reader, alloc, file_system_real(), path, &err)) fail_msg("%s", err.text);
    assert_memory_equal(trace_shape(reader)->identity, shape->identity, 32);
    for (;;) {
        struct trace_step got;
        bool is_end;
        assert_true(trace_next(reader, &got, &is_end, &err));
        if (is_end) break;
        uint16_t experts[ROWS * K];
        struct trace_step want = step_of(shape, n++, experts);
        assert_int_equal(got.pass, want.pass);
        assert_int_equal(got.layer, want.layer);
        assert_int_equal(got.phase, want.phase);
        assert_int_equal(got.n_rows, want.n_rows);
        assert_memory_equal(got.experts, want.experts, want.n_rows * K * sizeof *experts);
    }
    *dropped = trace_dropped_bytes(reader);
    trace_end(reader);
    return n;
}

static void steps_come_back(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct alloc alloc = {0};
    uint64_t dropped;
    temp_folder_make(&folder);
    const struct trace_shape *shapes[] = {&small, &wide};
    for (int i = 0; i < 2; i++) {
        const char *path = temp_path(&folder, i ? "wide" : "small");
        write_steps(&alloc, path, shapes[i], 0, 0);
        assert_int_equal(read_steps(&alloc, path, shapes[i], &dropped), 0);
        write_steps(&alloc, path, shapes[i], 0, 4000); /* more than one buffer */
        write_steps(&alloc, path, shapes[i], 4000, 4100);
        assert_int_equal(read_steps(&alloc, path, shapes[i], &dropped), 4100);
        assert_int_equal(dropped, 0);
    }
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
}

static void the_checksum_is_crc_32c(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct alloc alloc = {0};
    size_t bytes;
    temp_folder_make(&folder);
    const char *path = temp_path(&folder, "t");
    write_steps(&alloc, path, &small, 0, 1);
    unsigned char *data = take_file(path, &bytes);
    uint32_t crc = 0xffffffff; /* bit by bit, from its polynomial */
    for (int i = 0; i < 60; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    assert_int_equal(data[60] | data[61] << 8 | data[62] << 16 | (uint32_t)data[63] << 24, crc);
    free(data);
    temp_folder_remove(&folder);
}

static void any_cut_and_any_flipped_byte_is_seen(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct alloc alloc = {0};
    uint64_t dropped;
    size_t bytes;
    temp_folder_make(&folder);
    const char *path = temp_path(&folder, "t");
    write_steps(&alloc, path, &small, 0, 12);
    unsigned char *data = take_file(path, &bytes);
    for (size_t cut = 64; cut < bytes; cut++) {
        put_file(path, data, cut);
        uint32_t n = read_steps(&alloc, path, &small, &dropped);
        assert_true(n < 12);
        write_steps(&alloc, path, &small, n, 12); /* goes on where it broke off */
        assert_int_equal(read_steps(&alloc, path, &small, &dropped), 12);
        assert_int_equal(dropped, 0);
    }
    for (size_t at = 64; at < bytes; at++) {
        data[at] ^= 0x10;
        put_file(path, data, bytes);
        assert_true(read_steps(&alloc, path, &small, &dropped) < 12);
        assert_true(dropped > 0);
        data[at] ^= 0x10;
    }
    for (size_t at = 0; at < 64; at++) {
        struct trace_reader *reader;
        struct trace_writer *writer;
        struct err err = {0};
        data[at] ^= 1;
        put_file(path, data, bytes);
        assert_false(trace_open(&reader, &alloc, file_system_real(), path, &err));
        assert_int_equal(err.kind, ERR_DATA);
        assert_false(trace_create(&writer, &alloc, file_system_real(), write_system_real(), path, &small, &err));
        assert_int_equal(err.kind, ERR_DATA);
        size_t still;
        unsigned char *now = take_file(path, &still); /* left as it was */
        assert_int_equal(still, bytes);
        assert_memory_equal(now, data, bytes);
        free(now);
        data[at] ^= 1;
    }
    for (size_t cut = 1; cut < 64; cut++) { /* not even a header: not ours to overwrite */
        struct trace_writer *writer;
        struct err err = {0};
        put_file(path, data, cut);
        assert_false(trace_create(&writer, &alloc, file_system_real(), write_system_real(), path, &small, &err));
    }
    struct trace_writer *writer;
    struct err err = {0};
    put_file(path, data, bytes);
    assert_false(trace_create(&writer, &alloc, file_system_real(), write_system_real(), path, &wide, &err));
    assert_non_null(strstr(err.text, "another model"));
    free(data);
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
}

/* Adds steps from..39, made durable in tens. False with an error when the disk does not take them. */
static bool add_in_tens(struct alloc *alloc, struct write_system ws, const char *path, uint32_t from)
{
    struct trace_writer *writer;
    struct err err = {0};
    bool ok = trace_create(&writer, alloc, file_system_real(), ws, path, &small, &err);
    if (!ok) {
        assert_int_equal(err.kind, ERR_IO);
        return false;
    }
    for (uint32_t i = from; i < 40 && ok; i++) {
        uint16_t experts[ROWS * K];
        struct trace_step step = step_of(&small, i, experts);
        ok = trace_add(writer, &step, &err) && (i % 10 != 9 || trace_flush(writer, &err));
    }
    if (!ok) {
        assert_int_equal(err.kind, ERR_IO);
        assert_non_null(strstr(err.text, path));
    }
    trace_close(writer);
    return ok;
}

static void a_full_disk_costs_the_tail_only(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct alloc alloc = {0};
    temp_folder_make(&folder);
    const char *path = temp_path(&folder, "t");
    unsigned n_failed = 0;
    for (uint64_t k = 3;; k++) { /* the first two are the open and the header */
        struct faulty_write faulty = {.fail_at = k, .tears = true, .interrupts = k % 2, .error = 28 /* ENOSPC */};
        uint64_t dropped;
        remove_tree(path);
        bool ok = add_in_tens(&alloc, faulty_write_system(&faulty), path, 0);
        uint32_t n = read_steps(&alloc, path, &small, &dropped);
        if (ok) {
            assert_int_equal(n, 40);
            break;
        }
        n_failed++;
        assert_true(n < 40 || k > 9);
        assert_true(add_in_tens(&alloc, write_system_real(), path, n));
        assert_int_equal(read_steps(&alloc, path, &small, &dropped), 40);
        assert_int_equal(dropped, 0);
    }
    assert_true(n_failed >= 8);
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
}

/* The least number of misses over all choices of what stays after each want. Sets are bits. */
static unsigned exhaustive(const uint32_t *wants, unsigned n_wants, unsigned n_slots)
{
    enum { SETS = 256, NEVER = 1000 };
    unsigned least[SETS], then[SETS], best = NEVER;
    for (uint32_t in = 0; in < SETS; in++) least[in] = in == 0 ? 0 : NEVER;
    for (unsigned i = 0; i < n_wants; i++) {
        for (uint32_t in = 0; in < SETS; in++) then[in] = NEVER;
        for (uint32_t in = 0; in < SETS; in++) {
            if (least[in] == NEVER) continue;
            unsigned cost = least[in] + (unsigned)__builtin_popcount(wants[i] & ~in);
            for (uint32_t stay = 0; stay < SETS; stay++)
                if (!(stay & ~(in | wants[i])) && (unsigned)__builtin_popcount(stay) <= n_slots && cost < then[stay])
                    then[stay] = cost;
        }
        memcpy(least, then, sizeof least);
    }
    for (uint32_t in = 0; in < SETS; in++) best = least[in] < best ? least[in] : best;
    return best;
}

static void the_optimum_is_exact(void **state)
{
    (void)state;
    enum { TRIES = 400 };
    for (uint32_t try = 1; try <= TRIES; try++) {
        struct alloc alloc = {0};
        struct wants wants;
        struct err err = {0};
        uint32_t sets[12], n_wants = 3 + try % 10, n_slots = 1 + try % 5;
        random_state = try * 31;
        wants_init(&wants, &alloc, 1, 8);
        for (uint32_t i = 0; i < n_wants; i++) {
            uint16_t ids[3] = {(uint16_t)rnd(8), (uint16_t)rnd(8), (uint16_t)rnd(8)};
            uint32_t n = 1 + rnd(3);
            sets[i] = 0;
            for (uint32_t k = 0; k < n; k++) sets[i] |= 1u << ids[k];
            assert_true(wants_add(&wants, 0, ids, n, &err));
        }
        struct replay_result best = {0};
        assert_true(replay_optimum(&best, &alloc, &wants, n_slots, &err));
        unsigned least = exhaustive(sets, n_wants, n_slots);
        if (least != best.n_misses)
            fail_msg("try %u: %u misses are possible, %u found", try, least, (unsigned)best.n_misses);
        wants_fini(&wants);
        assert_int_equal(alloc.live, 0);
    }
    printf("%d routings, each against every choice of what stays\n", TRIES);
}

static void make_wants(struct wants *wants, struct alloc *alloc, uint32_t n_passes)
{
    struct err err = {0};
    wants_init(wants, alloc, 4, 64);
    random_state = 99;
    for (uint32_t pass = 0; pass < n_passes; pass++)
        for (uint32_t layer = 1; layer < 4; layer++) {
            uint16_t ids[8];
            for (int k = 0; k < 8; k++) {
                uint32_t a = rnd(64), b = rnd(64), c = rnd(64);
                ids[k] = (uint16_t)((a < b ? a : b) < c ? (a < b ? a : b) : c);
            }
            assert_true(wants_add(wants, layer, ids, 8, &err));
        }
}

static void no_policy_beats_the_optimum(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct wants wants;
    struct err err = {0};
    uint64_t hits[4], misses[4];
    make_wants(&wants, &alloc, 400);
    for (uint32_t n_slots = 1; n_slots <= 256; n_slots *= 4) {
        struct replay_result best = {.layer_hits = hits, .layer_misses = misses};
        assert_true(replay_optimum(&best, &alloc, &wants, n_slots, &err));
        assert_int_equal(best.n_hits + best.n_misses, wants.n_keys);
        assert_int_equal(misses[0], 0);
        assert_int_equal(misses[1] + misses[2] + misses[3], best.n_misses);
        printf("%u slots: optimum %.1f %%,", n_slots, 100.0 * (double)best.n_hits / (double)wants.n_keys);
        for (size_t i = 0; i < policy_count(); i++) {
            const char *name = policy_kind_at(i).name;
            struct replay_result result = {.layer_hits = hits, .layer_misses = misses};
            assert_true(replay_policy(&result, &alloc, &wants, name, n_slots, &err));
            assert_int_equal(result.n_hits + result.n_misses, wants.n_keys);
            assert_int_equal(hits[1] + hits[2] + hits[3], result.n_hits);
            assert_true(result.n_misses >= best.n_misses);
            if (n_slots >= 4 * 64) assert_int_equal(result.n_misses, best.n_misses); /* everything fits */
            printf(" %s %.1f", name, 100.0 * (double)result.n_hits / (double)wants.n_keys);
        }
        printf("\n");
    }
    struct replay_result result = {0};
    assert_false(replay_policy(&result, &alloc, &wants, "random", 4, &err));
    assert_int_equal(err.kind, ERR_USER);
    wants_fini(&wants);
    assert_int_equal(alloc.live, 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct alloc quiet = {0};
    temp_folder_make(&folder);
    const char *path = temp_path(&folder, "t");
    write_steps(&quiet, path, &small, 0, 40);
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct trace_reader *reader = NULL;
        struct trace_writer *writer = NULL;
        struct wants wants = {0};
        struct replay_result result = {0};
        bool ok = trace_open(&reader, &alloc, file_system_real(), path, &err) &&
                  wants_read(&wants, &alloc, reader, &err) && replay_policy(&result, &alloc, &wants, "lru", 4, &err) &&
                  replay_optimum(&result, &alloc, &wants, 4, &err) &&
                  trace_create(&writer, &alloc, file_system_real(), write_system_real(), path, &small, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        trace_close(writer);
        wants_fini(&wants);
        trace_end(reader);
        assert_int_equal(alloc.live, 0);
        if (ok) {
            assert_true(k > 12);
            break;
        }
    }
    uint64_t dropped;
    assert_int_equal(read_steps(&quiet, path, &small, &dropped), 40);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_back),
        cmocka_unit_test(the_checksum_is_crc_32c),
        cmocka_unit_test(any_cut_and_any_flipped_byte_is_seen),
        cmocka_unit_test(a_full_disk_costs_the_tail_only),
        cmocka_unit_test(the_optimum_is_exact),
        cmocka_unit_test(no_policy_beats_the_optimum),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
