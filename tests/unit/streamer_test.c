/* Streamed weights are the resident ones, bit for bit, for any number of slots and any device; and damage is told. */
#include "fmt/dequantise.h"
#include "resid/resident.h"
#include "resid/shard_files.h"
#include "resid/spine.h"
#include "resid/streamer.h"
#include "support/check.h"

#include <errno.h>
#include <stdlib.h>

/* The real files, with four bytes at one place of one file read as something else. */
struct patched {
    struct file_system real;
    uint64_t at;
    unsigned char bytes[4];
    unsigned eio_left; /* reads that fail first */
    bool is_on;
};

static int patched_open(void *context, const char *path, int flags)
{
    struct patched *p = context;
    return p->real.ops->open(p->real.context, path, flags);
}

static int patched_stat(void *context, int descriptor, struct stat *out)
{
    struct patched *p = context;
    return p->real.ops->stat(p->real.context, descriptor, out);
}

static ssize_t patched_pread(void *context, int descriptor, void *buffer, size_t bytes, off_t offset)
{
    struct patched *p = context;
    if (p->eio_left > 0) return p->eio_left--, errno = EIO, -1;
    ssize_t got = p->real.ops->pread(p->real.context, descriptor, buffer, bytes, offset);
    for (int i = 0; p->is_on && i < 4; i++) {
        int64_t place = (int64_t)p->at + i - offset;
        if (place >= 0 && place < got) ((unsigned char *)buffer)[place] = p->bytes[i];
    }
    return got;
}

static int patched_close(void *context, int descriptor)
{
    struct patched *p = context;
    return p->real.ops->close(p->real.context, descriptor);
}

struct rig {
    struct alloc alloc;
    struct patched patched;
    struct sim_clock pauses;
    struct aio_sim *device; /* NULL: a real one */
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct slot_classes classes;
    struct reader *reader;
    struct policy *policy;
    uint32_t *files;
    struct spine_store *spine;
    struct weights *weights;
};

static void rig_files(struct rig *r, const char *name)
{
    static const struct file_ops ops = {patched_open, patched_stat, patched_pread, patched_close};
    char dir[200];
    struct err err = {0};
    snprintf(dir, sizeof dir, "tests/fixtures/glm52-tiny/%s", name);
    r->patched.real = file_system_real();
    struct file_system fs = {.ops = &ops, .context = &r->patched};
    if (!config_read(&r->config, &r->alloc, fs, dir, &err) ||
        !catalogue_open(&r->catalogue, &r->alloc, fs, dir, &err) ||
        !inventory_build(&r->inventory, &r->alloc, &r->config, &r->catalogue, &err))
        fail_msg("%s: %s", name, err.text);
}

static bool rig_stream(struct rig *r, bool threads, uint64_t slot_bytes, struct err *err)
{
    struct aio *aio;
    struct reader_settings settings = {.depth = 8, .requests_max = 128, .files_max = 64};
    struct spine_choice all = {.with_dsa = true, .with_mtp = true};
    bool ok = r->device ? aio_sim_new(&aio, &r->alloc, 8, r->device, &r->pauses, err)
              : threads ? aio_pool_new(&aio, &r->alloc, 8, 2, err)
                        : aio_uring_new(&aio, &r->alloc, 8, err);
    if (!ok) return false;
    if (!reader_new(&r->reader, &r->alloc, aio, clock_real(), &settings, err)) return false;
    enum reader_direct direct = threads ? READER_BUFFERED : READER_DIRECT_IF_POSSIBLE;
    r->files = shard_files_add(&r->alloc, r->reader, &r->catalogue, direct, err);
    if (!r->files) return false;
    if (!spine_load(&r->spine, &r->alloc, &r->inventory, all, r->reader, r->files, 64 * 1024, err)) return false;
    if (!slot_classes_find(&r->classes, &r->alloc, &r->inventory, true, err)) return false;
    struct streamer_settings with = {
        .spine = spine_of(r->spine), .clock = clock_simulated(&r->pauses), .embedding_rows_kept = 7};
    assert_true(slot_classes_share(&r->classes, slot_bytes, with.slots.n_slots) > 0);
    struct policy_shape shape = {r->config.n_layers + 1, r->config.n_experts, 0};
    for (uint32_t c = 0; c < r->classes.n; c++) shape.n_slots += with.slots.n_slots[c];
    if (!policy_new(&r->policy, &r->alloc, POLICY_DEFAULT, &shape, err)) return false;
    with.slots.inventory = &r->inventory;
    with.slots.classes = &r->classes;
    with.slots.reader = r->reader;
    with.slots.policy = r->policy;
    with.slots.files = r->files;
    with.slots.lends_memory = true;
    with.slots.piece_bytes = 8192;
    return streamer_new(&r->weights, &r->alloc, &with, err);
}

static void rig_stop(struct rig *r)
{
    streamer_free(r->weights);
    spine_free(r->spine);
    policy_free(r->policy);
    reader_free(r->reader);
    alloc_put(&r->alloc, r->files);
    r->weights = NULL, r->spine = NULL, r->policy = NULL, r->reader = NULL, r->files = NULL;
}

static void rig_close(struct rig *r)
{
    rig_stop(r);
    inventory_fini(&r->inventory);
    catalogue_close(&r->catalogue);
    assert_int_equal(r->alloc.live, 0);
}

static void same_matrix(const struct matrix *a, const struct matrix *b)
{
    assert_int_equal(a->payload == NULL, b->payload == NULL);
    if (!a->payload) return;
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->columns, b->columns);
    float *x = calloc(a->columns, sizeof *x), *y = calloc(a->columns, sizeof *y);
    for (uint32_t row = 0; row < a->rows; row++) {
        dequantise_row(x, a, row);
        dequantise_row(y, b, row);
        assert_memory_equal(x, y, a->columns * sizeof *x);
    }
    free(x);
    free(y);
}

static void same_spine(const struct spine *a, const struct spine *b, uint32_t n_layers)
{
    same_matrix(&a->final_norm, &b->final_norm);
    same_matrix(&a->head, &b->head);
    for (uint32_t layer = 0; layer <= n_layers; layer++)
        for (int role = 0; role < ROLE_COUNT; role++)
            same_matrix(&a->blocks[layer].role[role], &b->blocks[layer].role[role]);
    assert_int_equal(a->has_dsa, b->has_dsa);
    assert_int_equal(a->has_mtp, b->has_mtp);
}

/* All experts of all layers from both, in the same order. */
static void same_experts(const struct rig *r, struct weights *a, struct weights *b)
{
    uint32_t ids[64], n = r->config.n_experts;
    struct err err = {0};
    assert_true(n <= 64);
    for (uint32_t e = 0; e < n; e++) ids[e] = e;
    for (uint32_t layer = 0; layer <= r->config.n_layers; layer++) {
        if (!r->inventory.layers[layer].experts) continue;
        assert_true(a->ops->want(a, layer, ids, n, ORDER_ASCENDING, &err));
        assert_true(b->ops->want(b, layer, ids, n, ORDER_ASCENDING, &err));
        for (uint32_t k = 0; k < n; k++) {
            struct lease x, y;
            if (!a->ops->next(a, &x, &err) || !b->ops->next(b, &y, &err)) fail_msg("%s", err.text);
            assert_int_equal(x.expert, y.expert);
            for (int p = 0; p < EXPERT_PARTS; p++) same_matrix(&x.part[p], &y.part[p]);
            a->ops->unpin(a, &x);
            b->ops->unpin(b, &y);
        }
    }
}

static void same_embedding(const struct rig *r, struct weights *a, struct weights *b)
{
    enum { N = 40 };
    uint32_t tokens[N];
    struct err err = {0};
    for (uint32_t i = 0; i < N; i++) tokens[i] = i * i * 31 % r->config.vocab;
    float *x = calloc((size_t)N * r->config.hidden, sizeof *x), *y = calloc((size_t)N * r->config.hidden, sizeof *y);
    for (int round = 0; round < 2; round++) {
        assert_true(a->ops->embed(a, tokens, N, x, &err));
        assert_true(b->ops->embed(b, tokens, N, y, &err));
        assert_memory_equal(x, y, (size_t)N * r->config.hidden * sizeof *x);
    }
    free(x);
    free(y);
}

static void streamed_is_resident(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "freq-oddsize", "bias", "groups"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct rig r = {0};
        struct err err = {0};
        struct resident *resident;
        rig_files(&r, names[i]);
        assert_true(resident_open(&resident, &r.alloc, file_system_real(), &r.inventory, &err));
        for (int kind = 0; kind < 4; kind++) {
            if (!rig_stream(&r, kind & 1, kind & 2 ? 100000 : 1 << 20, &err)) {
                if (kind & 1 || !strstr(err.text, "io_uring")) fail_msg("%s", err.text);
                printf("  skipped: %s\n", err.text);
                rig_stop(&r);
                continue;
            }
            same_spine(r.weights->spine, resident_weights(resident)->spine, r.config.n_layers);
            same_experts(&r, r.weights, resident_weights(resident));
            same_experts(&r, r.weights, resident_weights(resident));
            same_embedding(&r, r.weights, resident_weights(resident));
            const struct slots_stats *stats = slots_stats(streamer_slots(r.weights));
            printf("%s, %s, %d slots: %d hits, %d misses\n", names[i], reader_device(r.reader), (int)stats->n_slots,
                   (int)stats->n_hits, (int)stats->n_misses);
            assert_int_equal(stats->n_leased, 0);
            assert_true(streamer_stats(r.weights)->n_rows_read >= 10);
            rig_stop(&r);
        }
        resident_close(resident);
        rig_close(&r);
    }
}

static void a_checkpoint_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"indexshare", "fp8"};
    for (int i = 0; i < 2; i++) {
        struct rig r = {0};
        struct err err = {0};
        rig_files(&r, names[i]);
        assert_false(rig_stream(&r, true, 1 << 20, &err));
        assert_int_equal(err.kind, ERR_DATA);
        printf("  %s\n", err.text);
        assert_non_null(strstr(err.text, "weir convert"));
        rig_close(&r);
    }
}

static void damage_in_the_spine_is_told(void **state)
{
    (void)state;
    struct rig r = {0};
    struct err err = {0};
    static const float nan = __builtin_nanf("");
    rig_files(&r, "plain");
    const struct tensor *t = r.inventory.layers[1].role[ROLE_POST_NORM].payload;
    r.patched.at = t->offset + 12;
    memcpy(r.patched.bytes, &nan, 4);
    r.patched.is_on = true;
    assert_false(rig_stream(&r, true, 1 << 20, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, t->name));
    assert_non_null(strstr(err.text, "value 3 "));
    rig_stop(&r);
    r.patched.is_on = false;
    assert_true(rig_stream(&r, true, 1 << 20, &err));
    rig_close(&r);
}

static void embedding_rows_are_read_patiently(void **state)
{
    (void)state;
    struct rig r = {0};
    struct err err = {0};
    static const float inf = __builtin_inff();
    uint32_t token = 5;
    rig_files(&r, "plain");
    if (!rig_stream(&r, true, 1 << 20, &err)) fail_msg("%s", err.text);
    float *row = calloc(r.config.hidden, sizeof *row);
    r.patched.eio_left = 3;
    assert_true(r.weights->ops->embed(r.weights, &token, 1, row, &err));
    assert_int_equal(r.pauses.slept_ns, 210000000);
    token = 6;
    r.patched.eio_left = 4;
    assert_false(r.weights->ops->embed(r.weights, &token, 1, row, &err));
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "embed_tokens"));
    assert_true(r.weights->ops->embed(r.weights, &token, 1, row, &err)); /* the next try is a new one */
    token = 7;
    r.patched.at = r.inventory.model[MODEL_EMBED].payload->offset + 7 * r.config.hidden * 4;
    memcpy(r.patched.bytes, &inf, 4);
    r.patched.is_on = true;
    assert_false(r.weights->ops->embed(r.weights, &token, 1, row, &err));
    assert_int_equal(err.kind, ERR_DATA);
    free(row);
    rig_close(&r);
}

/* Every read takes its time from whoever looks after it, as those do that touch memory for the first time. */
static int take_time(void *context, const struct aio_read *read)
{
    struct sim_clock *clock = context;
    (void)read;
    clock->now_ns += INT64_C(30000000);
    return 0;
}

static void a_look_after_slow_reads_is_short(void **state)
{
    (void)state;
    enum { IDS = 64, READS_A_LOOK = 24, LOOKS_MAX = 1000 }; /* of one expert: six pieces, and what lands beside them */
    struct rig r = {0};
    struct err err = {0};
    struct aio_sim device = {.seed = 3};
    uint32_t ids[IDS], layer = 0, n_looks = 0;
    rig_files(&r, "plain");
    r.device = &device;
    if (!rig_stream(&r, true, 64 << 20, &err)) fail_msg("%s", err.text);
    device.fault = take_time; /* from here on: the spine is loaded */
    device.fault_context = &r.pauses;
    while (!r.inventory.layers[layer].experts) layer++;
    for (uint32_t e = 0; e < r.config.n_experts; e++) ids[e] = e;
    const struct slots_stats *stats = slots_stats(streamer_slots(r.weights));
    uint64_t before = device.n_attempts, most = 0;
    assert_true(r.weights->ops->lacks(r.weights, layer));
    assert_int_equal(stats->n_resident, 0);
    r.weights->ops->hint(r.weights, layer, ids, r.config.n_experts, r.config.n_experts);
    for (; stats->n_resident < r.config.n_experts && n_looks < LOOKS_MAX; n_looks++) {
        uint64_t at = device.n_attempts;
        r.weights->ops->tend(r.weights);
        if (device.n_attempts - at > most) most = device.n_attempts - at;
    }
    printf("%d experts in %d looks, of %d reads at most\n", (int)stats->n_resident, (int)n_looks, (int)most);
    assert_int_equal(stats->n_resident, r.config.n_experts);
    assert_false(r.weights->ops->lacks(r.weights, layer));
    assert_true(r.weights->ops->lacks(r.weights, layer + 1));
    assert_true(n_looks > 1);
    assert_true(most <= READS_A_LOOK);
    assert_true(device.n_attempts - before > READS_A_LOOK); /* or one look could have been all of it */
    rig_close(&r);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct rig r = {0};
    rig_files(&r, "plain");
    uint64_t calls = r.alloc.calls, k = 1;
    for (;; k++) {
        struct err err = {0};
        r.alloc.fail_at = r.alloc.calls + k;
        bool ok = rig_stream(&r, true, 1 << 20, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        r.alloc.fail_at = 0;
        rig_stop(&r);
        if (ok) break;
    }
    printf("%d allocations failed one by one\n", (int)k - 1);
    assert_true(k > 20);
    assert_true(r.alloc.calls > calls);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streamed_is_resident),
        cmocka_unit_test(a_checkpoint_is_refused_by_name),
        cmocka_unit_test(damage_in_the_spine_is_told),
        cmocka_unit_test(embedding_rows_are_read_patiently),
        cmocka_unit_test(a_look_after_slow_reads_is_short),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
