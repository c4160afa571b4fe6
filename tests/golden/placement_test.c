/* Placement never changes the answer: the demo model's logits are bit for bit the same with all weights in memory and
 * streamed through any number of slots, policy, device, order of passes and number of threads. */
#include "resid/streamed.h"
#include "support/check.h"
#include "support/temp_folder.h"
#include "support/tiny_model.h"

#include <stdlib.h>

enum { TOKENS = 40 };

static const char model_dir[] = "models/demo";
static struct tiny_model model;
static uint32_t tokens[TOKENS];
static float *truth[2], *logits;  /* [TOKENS][vocab]; the first by numerics */
static struct temp_folder mirror; /* copies of the model's shards */

static void make_mirror(void)
{
    temp_folder_make(&mirror);
    for (uint32_t i = 0; i < model.catalogue.n_shards; i++) {
        const char *path = model.catalogue.shards[i].file.path;
        size_t bytes;
        unsigned char *data = take_file(path, &bytes);
        put_file(temp_path(&mirror, strrchr(path, '/') + 1), data, bytes);
        free(data);
    }
}

static void run(float *out, enum numerics numerics, unsigned n_threads, size_t chunk, bool foresees)
{
    struct tiny_run pass;
    struct forward_options options = {
        .rows_max = 64, .logit_rows_max = 64, .positions_max = 64, .numerics = numerics, .foresees = foresees};
    struct kv kv;
    tiny_run_init(&pass, &model, NULL, n_threads, UINT32_MAX, &options);
    kv_init(&kv, forward_kv_pool(pass.forward));
    tiny_run_feed(&pass, &kv, tokens, TOKENS, chunk, out);
    kv_fini(&kv);
    tiny_run_fini(&pass);
}

static int open_model_and_truth(void **state)
{
    (void)state;
    tiny_model_open(&model, model_dir);
    make_mirror();
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = (i * 2654435761u >> 7) % model.config.vocab;
    size_t n = (size_t)TOKENS * model.config.vocab;
    logits = calloc(n, sizeof *logits);
    for (int numerics = NUMERICS_EXACT; numerics <= NUMERICS_INT8; numerics++) {
        truth[numerics] = calloc(n, sizeof *truth[numerics]);
        if (!truth[numerics] || !logits) return -1;
        run(truth[numerics], (enum numerics)numerics, 1, 1, false);
    }
    return memcmp(truth[0], truth[1], n * sizeof *logits) != 0 ? 0 : -1; /* or the numerics were not used */
}

static int close_model_and_truth(void **state)
{
    (void)state;
    temp_folder_remove(&mirror);
    free(truth[0]);
    free(truth[1]);
    free(logits);
    model.weights = resident_weights(model.resident);
    tiny_model_close(&model);
    return 0;
}

static bool make_pool(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    (void)context;
    return aio_pool_new(aio, alloc, depth, 3, err);
}

/* What varies from one placement to the next. */
struct placement {
    double share; /* of the experts */
    bool pool, prefetch, is_mirrored;
    unsigned number;
};

static void check_placement(const struct placement *at)
{
    struct streamed *streamed;
    struct plan plan;
    struct err err = {0};
    struct streamed_settings settings = streamed_settings_default();
    const struct plan_request request = {.budget_bytes = UINT64_C(1) << 30,
                                         .context_tokens = 64,
                                         .n_sequences = 1,
                                         .n_threads = 1,
                                         .spine = settings.spine,
                                         .requests_max = STREAMED_REQUESTS_MAX,
                                         .embedding_rows_kept = STREAMED_EMBEDDING_ROWS,
                                         .slots_max = (uint32_t)(at->share * model.inventory.n_routed_experts) + 1};
    if (!plan_make(&plan, &model.alloc, &model.inventory, &request, &err)) fail_msg("%s", err.text);
    settings.plan = &plan;
    settings.policy = policy_kind_at(at->number % policy_count()).name;
    settings.direct = at->number % 3 == 0 ? DIRECT_AUTO : at->number % 3 == 1 ? DIRECT_ON : DIRECT_OFF;
    if (at->pool) settings.device.make = make_pool;
    const char *const mirrors[] = {mirror.path};
    settings.mirrors = mirrors;
    settings.n_mirrors = at->is_mirrored;
    if (!streamed_open(&streamed, &model.alloc, &model.inventory, &settings, &err)) fail_msg("%s", err.text);
    model.weights = streamed_weights(streamed);
    for (int pass = 0; pass < 2; pass++) { /* with nothing in memory, and with what is left */
        size_t chunk = pass == 0 ? 1 + 13 * (at->number % 4) : 40;
        memset(logits, 0, (size_t)TOKENS * model.config.vocab * sizeof *logits);
        enum numerics numerics = (at->number + (unsigned)pass) % 2 ? NUMERICS_INT8 : NUMERICS_EXACT;
        run(logits, numerics, 1 + at->number % 3, chunk, at->prefetch);
        assert_memory_equal(logits, truth[numerics], (size_t)TOKENS * model.config.vocab * sizeof *logits);
    }
    const struct slots_stats *stats = slots_stats(streamed_slots(streamed));
    printf("%3.0f %% in %u slots, %s, %s, %s%s%s: %d hits, %d misses, %d hints, %d evictions\n", 100 * at->share,
           stats->n_slots, settings.policy, reader_device(streamed_reader(streamed)),
           streamed_is_direct(streamed) ? "direct" : "buffered", at->prefetch ? ", prefetch" : "",
           at->is_mirrored ? ", mirrored" : "", (int)stats->n_hits, (int)stats->n_misses, (int)stats->n_hints,
           (int)stats->n_evictions);
    assert_int_equal(stats->n_leased, 0);
    assert_true(stats->n_misses > 0);
    if (at->share < 0.3) assert_true(stats->n_evictions > 100); /* or it would not have streamed */
    streamed_close(streamed);
}

static void same_for_any_placement(void **state)
{
    (void)state;
    static const double shares[] = {0.02, 0.05, 0.10, 0.50, 1};
    for (unsigned i = 0; i < 40; i++)
        check_placement(&(struct placement){shares[i / 8], i & 1, (i & 2) != 0, (i & 4) != 0, i});
}

static struct {
    uint32_t lacking; /* the only layer that lacks an expert, or so it is told */
    unsigned n_hints;
} watched;

static bool tell_lacks(const struct weights *weights, uint32_t layer)
{
    (void)weights;
    return layer == watched.lacking;
}

static void count_hint(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n_sure, size_t n)
{
    (void)weights, (void)ids;
    assert_int_equal(layer, watched.lacking);
    assert_true(n_sure <= n && n <= model.config.n_experts);
    watched.n_hints++;
}

/* What it takes to give a hint is only worth while where a hint can bring something. */
static void hints_are_for_layers_that_lack_experts(void **state)
{
    (void)state;
    model.weights = resident_weights(model.resident);
    const struct weights_ops *ops = model.weights->ops;
    struct weights_ops watching = *ops;
    uint32_t sparse = 0;
    watching.lacks = tell_lacks;
    watching.hint = count_hint;
    while (!model.config.is_sparse[sparse]) sparse++;
    model.weights->ops = &watching;
    for (int i = 0; i < 2; i++) {
        watched.lacking = i == 0 ? sparse + 1 : UINT32_MAX;
        watched.n_hints = 0;
        run(logits, NUMERICS_EXACT, 1, 8, true);
        printf("%s: %u hints\n", i == 0 ? "one layer lacks an expert" : "none does", watched.n_hints);
        assert_int_equal(watched.n_hints, i == 0 ? TOKENS / 8 : 0);
        assert_memory_equal(logits, truth[NUMERICS_EXACT], (size_t)TOKENS * model.config.vocab * sizeof *logits);
    }
    model.weights->ops = ops;
}

static void a_missing_policy_or_allocation_leaves_nothing(void **state)
{
    (void)state;
    struct plan plan = {0};
    struct err err = {0};
    struct alloc alloc = {0};
    struct streamed_settings settings = streamed_settings_default();
    struct plan_request request = {
        .budget_bytes = UINT64_C(1) << 30, .context_tokens = 64, .n_sequences = 1, .n_threads = 1, .slots_max = 9};
    assert_true(plan_make(&plan, &alloc, &model.inventory, &request, &err));
    settings.plan = &plan;
    settings.spine.with_mtp = false;
    settings.policy = "oracle";
    struct streamed *streamed;
    assert_false(streamed_open(&streamed, &alloc, &model.inventory, &settings, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_int_equal(alloc.live, 0);
    settings.policy = POLICY_DEFAULT;
    for (uint64_t k = 1;; k++) {
        struct alloc failing = {.fail_at = k};
        bool ok = streamed_open(&streamed, &failing, &model.inventory, &settings, &err);
        if (ok) streamed_close(streamed);
        assert_int_equal(failing.live, 0);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (ok && failing.calls < k) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_for_any_placement),
        cmocka_unit_test(hints_are_for_layers_that_lack_experts),
        cmocka_unit_test(a_missing_policy_or_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_model_and_truth, close_model_and_truth);
}
