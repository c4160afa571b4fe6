/* Placement never changes the answer: the demo model's logits are bit for bit the same with all weights in memory and
 * streamed through any number of slots, policy, device, order of passes and number of threads. */
#include "resid/streamed.h"
#include "support/check.h"
#include "support/tiny_model.h"

#include <stdlib.h>

enum { TOKENS = 40 };

static const char model_dir[] = "models/demo";
static struct tiny_model model;
static uint32_t tokens[TOKENS];
static float *truth, *logits; /* [TOKENS][vocab] */

static void run(float *out, unsigned n_threads, size_t chunk)
{
    struct tiny_run pass;
    struct forward_options options = {.rows_max = 64, .logit_rows_max = 64, .positions_max = 64};
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
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = (i * 2654435761u >> 7) % model.config.vocab;
    truth = calloc((size_t)TOKENS * model.config.vocab, sizeof *truth);
    logits = calloc((size_t)TOKENS * model.config.vocab, sizeof *logits);
    run(truth, 1, 1);
    return truth && logits ? 0 : -1;
}

static int close_model_and_truth(void **state)
{
    (void)state;
    free(truth);
    free(logits);
    model.weights = resident_weights(model.resident);
    tiny_model_close(&model);
    return 0;
}

static void same_for_any_placement(void **state)
{
    (void)state;
    static const uint32_t slots[] = {2, 9, 40, 1000};
    for (size_t i = 0; i < 8; i++) {
        struct streamed *streamed;
        struct plan plan;
        struct err err = {0};
        struct streamed_settings settings = streamed_settings_default();
        struct plan_request request = {.budget_bytes = UINT64_C(1) << 30,
                                       .context_tokens = 64,
                                       .n_sequences = 1,
                                       .n_threads = 1,
                                       .spine = settings.spine,
                                       .prompt_cache_bytes = 0,
                                       .tokenizer_bytes = 0,
                                       .requests_max = STREAMED_REQUESTS_MAX,
                                       .embedding_rows_kept = STREAMED_EMBEDDING_ROWS,
                                       .slots_max = slots[i % 4]};
        if (!plan_make(&plan, &model.alloc, &model.inventory, &request, &err)) fail_msg("%s", err.text);
        settings.plan = &plan;
        settings.policy = policy_kind_at(i % policy_count()).name;
        settings.direct = i % 3 == 0 ? DIRECT_AUTO : i % 3 == 1 ? DIRECT_ON : DIRECT_OFF;
        if (!streamed_open(&streamed, &model.alloc, &model.inventory, &settings, &err)) fail_msg("%s", err.text);
        model.weights = streamed_weights(streamed);
        for (int pass = 0; pass < 2; pass++) { /* with nothing in memory, and with what is left */
            size_t chunk = pass == 0 ? 1 + 13 * (i % 4) : 40;
            memset(logits, 0, (size_t)TOKENS * model.config.vocab * sizeof *logits);
            run(logits, 1 + i % 3, chunk);
            assert_memory_equal(logits, truth, (size_t)TOKENS * model.config.vocab * sizeof *logits);
        }
        const struct slots_stats *stats = slots_stats(streamed_slots(streamed));
        printf("%u slots, %s, %s, %s: %d hits, %d misses, %d evictions\n", stats->n_slots, settings.policy,
               reader_device(streamed_reader(streamed)), streamed_is_direct(streamed) ? "direct" : "buffered",
               (int)stats->n_hits, (int)stats->n_misses, (int)stats->n_evictions);
        assert_int_equal(stats->n_leased, 0);
        assert_true(stats->n_misses > 0);
        if (plan.n_slots_total < 20) assert_true(stats->n_evictions > 100); /* or it would not have streamed */
        streamed_close(streamed);
    }
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
        cmocka_unit_test(a_missing_policy_or_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_model_and_truth, close_model_and_truth);
}
