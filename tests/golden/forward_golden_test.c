/* The forward pass against recorded outputs of the official implementation, on every tiny reference model: logits and
 * hidden states within 1e-4 (relative L2), router choices, selected positions and greedy text identical, below and
 * beyond index_topk. */
#include "support/check.h"
#include "support/reference.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <stdlib.h>

#define FIXTURES "tests/fixtures/glm52-tiny/"
#define TOLERANCE 1e-4

static const char *const fixtures[] = {"plain", "indexshare", "freq-oddsize", "bias", "groups", "mtp", "fp8"};
static const char *const prompts[] = {"short", "edge", "long"};

/* Everything one pass tells, checked against the reference while it runs. */
struct watch {
    const struct reference *reference;
    const char *prompt;
    const struct config *config;
    struct json_object *selected; /* [layer][query] positions, or NULL */
    size_t n_hidden, n_routed, n_selected, n_scores;
    double worst_hidden, worst_weight, worst_score;
    pthread_mutex_t scores_lock; /* n_scores and worst_score: every thread of the team reports scores */
};

static void watch_hidden(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct watch *w = context;
    char key[32];
    size_t rows, columns;
    snprintf(key, sizeof key, "hidden.%u", layer);
    const float *want = reference_tensor(w->reference, w->prompt, key, &rows, &columns);
    if (!want) return;
    assert_int_equal(rows, n_rows);
    double error = relative_error(x, want, rows * columns);
    if (error > w->worst_hidden) w->worst_hidden = error;
    w->n_hidden++;
}

static void watch_routed(void *context, uint32_t layer, size_t row, const uint32_t *experts, const float *weights,
                         size_t n)
{
    struct watch *w = context;
    char key[32];
    size_t rows, columns;
    snprintf(key, sizeof key, "router_idx.%u", layer);
    const int32_t *ids = reference_tensor(w->reference, w->prompt, key, &rows, &columns);
    if (!ids) return;
    assert_int_equal(columns, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(experts[i], ids[row * n + i]);
    snprintf(key, sizeof key, "router_weight.%u", layer);
    const float *want = reference_tensor(w->reference, w->prompt, key, &rows, &columns);
    double error = relative_error(weights, want + row * n, n);
    if (error > w->worst_weight) w->worst_weight = error;
    w->n_routed++;
}

static void same_positions(struct json_object *want, const uint32_t *positions, size_t n, size_t visible)
{
    size_t n_want = json_object_array_length(want);
    if (n == 0) n = visible; /* everything that the row can see */
    assert_int_equal(n, n_want);
    for (size_t i = 0; i < n; i++) {
        uint32_t position = n == visible ? (uint32_t)i : positions[i];
        assert_int_equal(position, json_object_get_int64(json_object_array_get_idx(want, i)));
    }
}

static void watch_selected(void *context, uint32_t layer, size_t row, const uint32_t *positions, size_t n)
{
    struct watch *w = context;
    char key[32];
    struct json_object *queries;
    if (!w->selected) return;
    snprintf(key, sizeof key, "%u", layer);
    assert_true(json_object_object_get_ex(w->selected, key, &queries));
    same_positions(json_object_array_get_idx(queries, row), positions, n, row + 1);
    w->n_selected++;
}

static void watch_scores(void *context, uint32_t layer, size_t row, const float *scores, size_t n)
{
    struct watch *w = context;
    char key[32];
    size_t rows, columns;
    snprintf(key, sizeof key, "index_score.%u", layer);
    const float *want = reference_tensor(w->reference, w->prompt, key, &rows, &columns);
    if (!want) return;
    double error = relative_error(scores, want + row * columns, n);
    pthread_mutex_lock(&w->scores_lock);
    if (error > w->worst_score) w->worst_score = error;
    w->n_scores++;
    pthread_mutex_unlock(&w->scores_lock);
}

static struct forward_observer observer_of(struct watch *watch)
{
    return (struct forward_observer){.context = watch,
                                     .hidden = watch_hidden,
                                     .routed = watch_routed,
                                     .selected = watch_selected,
                                     .index_scores = watch_scores};
}

static const struct forward_options options = {.rows_max = 128, .logit_rows_max = 128, .positions_max = 256};

static void check_prompt(struct tiny_run *run, struct kv *kv, const struct reference *reference, const char *fixture,
                         const char *prompt)
{
    size_t n, rows, columns;
    uint32_t *ids = reference_ids(reference, prompt, "ids", &n);
    float *logits = calloc(n * run->model->config.vocab, sizeof *logits);
    struct watch watch = {.reference = reference,
                          .prompt = prompt,
                          .config = &run->model->config,
                          .scores_lock = PTHREAD_MUTEX_INITIALIZER};
    json_object_object_get_ex(reference_prompt(reference, prompt), "selected", &watch.selected);
    struct forward_observer observer = observer_of(&watch);
    forward_observe(run->forward, &observer);
    tiny_run_feed(run, kv, ids, n, n, logits);
    forward_observe(run->forward, NULL);

    const float *want = reference_tensor(reference, prompt, "logits", &rows, &columns);
    assert_int_equal(rows, n);
    double error = relative_error(logits, want, rows * columns);
    print_message("%-12s %-5s logits %.1e  hidden %.1e (%zu)  router %.1e (%zu)  index %.1e (%zu)  selections %zu\n",
                  fixture, prompt, error, watch.worst_hidden, watch.n_hidden, watch.worst_weight, watch.n_routed,
                  watch.worst_score, watch.n_scores, watch.n_selected);
    assert_true(error <= TOLERANCE);
    assert_true(watch.worst_hidden <= TOLERANCE);
    assert_true(watch.worst_weight <= TOLERANCE);
    assert_true(watch.worst_score <= TOLERANCE);
    assert_true(watch.n_selected > 0);
    if (strcmp(prompt, "edge") != 0) { /* edge holds logits only */
        assert_int_equal(watch.n_hidden, run->model->config.n_layers);
        assert_true(watch.n_routed > 0);
    }
    if (strcmp(prompt, "long") == 0) assert_true(watch.n_scores > 0);
    free(logits);
    free(ids);
}

struct step_watch {
    struct json_object *layers; /* [layer] positions of this step */
    uint32_t position;
    size_t n;
};

static void watch_step(void *context, uint32_t layer, size_t row, const uint32_t *positions, size_t n)
{
    struct step_watch *w = context;
    char key[32];
    struct json_object *want;
    (void)row;
    snprintf(key, sizeof key, "%u", layer);
    assert_true(json_object_object_get_ex(w->layers, key, &want));
    same_positions(want, positions, n, (size_t)w->position + 1);
    w->n++;
}

static void check_continuation(struct tiny_run *run, struct kv *kv, const struct reference *reference,
                               const char *prompt, const float *last_logits)
{
    uint32_t vocab = run->model->config.vocab;
    size_t n, rows, columns;
    uint32_t *want = reference_ids(reference, prompt, "continuation", &n);
    const float *want_logits = reference_tensor(reference, prompt, "continuation_logits", &rows, &columns);
    float *logits = calloc(vocab, sizeof *logits);
    struct json_object *decode_selected;
    assert_true(json_object_object_get_ex(reference_prompt(reference, prompt), "decode_selected", &decode_selected));

    memcpy(logits, last_logits, vocab * sizeof *logits);
    for (size_t i = 0; i < n; i++) {
        assert_true(relative_error(logits, want_logits + i * vocab, vocab) <= TOLERANCE);
        uint32_t token = forward_argmax(logits, vocab);
        assert_int_equal(token, want[i]);
        struct step_watch watch = {.layers = json_object_array_get_idx(decode_selected, i), .position = kv->n_rows};
        struct forward_observer observer = {.context = &watch, .selected = watch_step};
        forward_observe(run->forward, &observer);
        tiny_run_feed(run, kv, &token, 1, 1, logits);
        forward_observe(run->forward, NULL);
        assert_true(watch.n > 0);
    }
    free(logits);
    free(want);
}

static void check_fixture(const char *fixture, uint32_t cpu)
{
    char dir[128];
    struct tiny_model model;
    struct tiny_run run;
    struct reference reference;
    snprintf(dir, sizeof dir, FIXTURES "%s", fixture);
    tiny_model_open(&model, dir);
    reference_open(&reference, dir);
    tiny_run_init(&run, &model, NULL, 2, cpu, &options);
    for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++) {
        struct kv kv;
        kv_init(&kv, forward_kv_pool(run.forward));
        check_prompt(&run, &kv, &reference, fixture, prompts[p]);
        check_continuation(&run, &kv, &reference, prompts[p], forward_logits(run.forward, kv.n_rows - 1));
        kv_fini(&kv);
    }
    tiny_run_fini(&run);
    reference_close(&reference);
    tiny_model_close(&model);
}

static void equals_the_official_implementation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) check_fixture(fixtures[i], UINT32_MAX);
}

static void reference_kernels_alone_do_too(void **state)
{
    (void)state;
    check_fixture("indexshare", 0);
    check_fixture("freq-oddsize", 0);
}

/* The MTP layer over the whole prompt and a chain of drafts. */
static void check_mtp(struct tiny_run *run, const struct reference *reference, const char *prompt, const char *variant)
{
    const struct config *c = &run->model->config;
    size_t n, rows, columns;
    char key[64];
    struct err err = {0};
    struct kv kv;
    uint32_t *ids = reference_ids(reference, prompt, "ids", &n);
    float *logits = calloc(n * c->vocab, sizeof *logits), *x = calloc(n * c->hidden, sizeof *x);
    struct forward_mtp_row *mtp = calloc(n, sizeof *mtp);

    kv_init(&kv, forward_kv_pool(run->forward));
    tiny_run_feed(run, &kv, ids, n, n, logits);
    uint32_t next = forward_argmax(logits + (n - 1) * c->vocab, c->vocab);
    for (size_t r = 0; r < n; r++)
        mtp[r] = (struct forward_mtp_row){.kv = &kv,
                                          .token = r + 1 < n ? ids[r + 1] : next,
                                          .position = (uint32_t)r,
                                          .hidden = forward_final(run->forward, r),
                                          .wants_logits = true};
    if (!forward_mtp(run->forward, mtp, n, &err)) fail_msg("%s", err.text);
    for (size_t r = 0; r < n; r++) {
        memcpy(logits + r * c->vocab, forward_logits(run->forward, r), c->vocab * sizeof *logits);
        memcpy(x + r * c->hidden, forward_stream(run->forward, r), c->hidden * sizeof *x);
    }
    snprintf(key, sizeof key, "mtp.%s.row_x", variant);
    double x_error = relative_error(x, reference_tensor(reference, prompt, key, &rows, &columns), n * c->hidden);
    assert_int_equal(rows, n);
    snprintf(key, sizeof key, "mtp.%s.row_logits", variant);
    double error = relative_error(logits, reference_tensor(reference, prompt, key, &rows, &columns), n * c->vocab);

    snprintf(key, sizeof key, "mtp.%s.draft_logits", variant);
    const float *draft_logits = reference_tensor(reference, prompt, key, &rows, &columns);
    struct json_object *of_variant, *drafts, *all;
    json_object_object_get_ex(reference_prompt(reference, prompt), "mtp", &all);
    json_object_object_get_ex(all, variant, &of_variant);
    json_object_object_get_ex(of_variant, "drafts", &drafts);
    assert_int_equal(rows, json_object_array_length(drafts));
    double draft_error = 0;
    size_t row = n - 1;
    for (size_t g = 0; g < rows; g++) {
        const float *got = forward_logits(run->forward, row);
        double e = relative_error(got, draft_logits + g * c->vocab, c->vocab);
        if (e > draft_error) draft_error = e;
        uint32_t draft = forward_argmax(got, c->vocab);
        assert_int_equal(draft, json_object_get_int64(json_object_array_get_idx(drafts, g)));
        if (g + 1 == rows) break;
        assert_int_equal(c->mtp_chain, MTP_CHAIN_BLOCK_OUTPUT);
        struct forward_mtp_row chained = {.kv = &kv,
                                          .token = draft,
                                          .position = (uint32_t)(n + g),
                                          .hidden = forward_stream(run->forward, row),
                                          .wants_logits = true};
        if (!forward_mtp(run->forward, &chained, 1, &err)) fail_msg("%s", err.text);
        row = 0;
    }
    print_message("mtp %-5s %-5s rows %.1e  logits %.1e  chained drafts %.1e\n", prompt, variant, x_error, error,
                  draft_error);
    assert_true(x_error <= TOLERANCE);
    assert_true(error <= TOLERANCE);
    assert_true(draft_error <= TOLERANCE);
    kv_fini(&kv);
    free(mtp);
    free(x);
    free(logits);
    free(ids);
}

static void the_mtp_layer_drafts_what_its_reference_drafts(void **state)
{
    (void)state;
    static const char *const with_mtp[] = {"mtp", "fp8"};
    for (size_t i = 0; i < 2; i++) {
        char dir[128];
        struct tiny_model model;
        struct reference reference;
        snprintf(dir, sizeof dir, FIXTURES "%s", with_mtp[i]);
        tiny_model_open(&model, dir);
        reference_open(&reference, dir);
        for (int is_dense = 0; is_dense < 2; is_dense++) {
            struct tiny_run run;
            struct forward_options with = options;
            with.mtp_is_dense = is_dense;
            tiny_run_init(&run, &model, NULL, 2, UINT32_MAX, &with);
            for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++)
                check_mtp(&run, &reference, prompts[p], is_dense ? "dense" : "dsa");
            tiny_run_fini(&run);
        }
        reference_close(&reference);
        tiny_model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_official_implementation),
        cmocka_unit_test(reference_kernels_alone_do_too),
        cmocka_unit_test(the_mtp_layer_drafts_what_its_reference_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
