/* Wrong on purpose: each well-known mistake in this architecture, made in a copy of the weights, of the config or of
 * the kernel table, must be visible to the comparison that the golden test makes. If one of these passed, the golden
 * test would be blind to it. */
#include "plat/cpu.h"
#include "support/check.h"
#include "support/reference.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdlib.h>

#define FIXTURES "tests/fixtures/glm52-tiny/"
#define TOLERANCE 1e-4

static const struct forward_options options = {.rows_max = 128, .logit_rows_max = 128, .positions_max = 256};

/* What a run differs in from the reference. */
struct verdict {
    double logits, index_scores;
    bool same_selections;
};

struct watch {
    const struct reference *reference;
    struct json_object *selected;
    struct verdict *verdict;
};

static void watch_selected(void *context, uint32_t layer, size_t row, const uint32_t *positions, size_t n)
{
    struct watch *w = context;
    struct json_object *queries, *want;
    char key[32];
    snprintf(key, sizeof key, "%u", layer);
    if (n == 0) return;
    if (!json_object_object_get_ex(w->selected, key, &queries)) return;
    want = json_object_array_get_idx(queries, row);
    for (size_t i = 0; i < n; i++)
        if (positions[i] != json_object_get_int64(json_object_array_get_idx(want, i)))
            w->verdict->same_selections = false;
}

static void watch_scores(void *context, uint32_t layer, size_t row, const float *scores, size_t n)
{
    struct watch *w = context;
    size_t rows, columns;
    char key[32];
    snprintf(key, sizeof key, "index_score.%u", layer);
    const float *want = reference_tensor(w->reference, "long", key, &rows, &columns);
    if (!want) return;
    double error = relative_error(scores, want + row * columns, n);
    if (error > w->verdict->index_scores) w->verdict->index_scores = error;
}

static struct verdict judge(struct tiny_model *model, const struct reference *reference, const struct config *config,
                            const struct kern *kern)
{
    struct verdict verdict = {.same_selections = true};
    struct watch watch = {.reference = reference, .verdict = &verdict};
    struct forward_observer observer = {.context = &watch, .selected = watch_selected, .index_scores = watch_scores};
    struct tiny_run run;
    struct kv kv;
    size_t n, rows, columns;
    uint32_t *ids = reference_ids(reference, "long", "ids", &n);
    float *logits = calloc(n * model->config.vocab, sizeof *logits);
    json_object_object_get_ex(reference_prompt(reference, "long"), "selected", &watch.selected);

    tiny_run_with_kernels(&run, model, config, 1, kern, &options); /* one thread: the observer needs no lock */
    forward_observe(run.forward, &observer);
    kv_init(&kv, forward_kv_pool(run.forward));
    tiny_run_feed(&run, &kv, ids, n, n, logits);
    const float *want = reference_tensor(reference, "long", "logits", &rows, &columns);
    verdict.logits = relative_error(logits, want, rows * columns);
    kv_fini(&kv);
    tiny_run_fini(&run);
    free(logits);
    free(ids);
    return verdict;
}

static bool is_accepted(struct verdict v)
{
    return v.logits <= TOLERANCE && v.index_scores <= TOLERANCE && v.same_selections;
}

struct subject {
    struct tiny_model model;
    struct reference reference;
    struct kern kern;
    struct spine spine; /* a copy whose parts a test may replace */
    struct block_weights *blocks;
    const struct spine *true_spine;
    void *owned[64];
    size_t n_owned;
};

static void subject_open(struct subject *s, const char *fixture)
{
    char dir[128];
    *s = (struct subject){0};
    snprintf(dir, sizeof dir, FIXTURES "%s", fixture);
    tiny_model_open(&s->model, dir);
    reference_open(&s->reference, dir);
    kern_select(&s->kern, cpu_mask());
    s->true_spine = s->model.weights->spine;
    size_t n_blocks = s->model.config.n_layers + 1;
    s->blocks = calloc(n_blocks, sizeof *s->blocks);
    memcpy(s->blocks, s->true_spine->blocks, n_blocks * sizeof *s->blocks);
    s->spine = *s->true_spine;
    s->spine.blocks = s->blocks;
    s->model.weights->spine = &s->spine;
    assert_true(is_accepted(judge(&s->model, &s->reference, NULL, &s->kern))); /* unchanged, it passes */
}

static void subject_close(struct subject *s)
{
    s->model.weights->spine = s->true_spine;
    for (size_t i = 0; i < s->n_owned; i++) free(s->owned[i]);
    free(s->blocks);
    reference_close(&s->reference);
    tiny_model_close(&s->model);
}

/* A changeable copy of an f32 weight of a layer. */
static float *own_copy(struct subject *s, uint32_t layer, enum role role)
{
    struct matrix *m = &s->blocks[layer].role[role];
    assert_int_equal(m->format, FORMAT_F32);
    size_t bytes = (size_t)m->rows * m->columns * sizeof(float);
    float *copy = malloc(bytes);
    memcpy(copy, m->payload, bytes);
    m->payload = s->owned[s->n_owned++] = copy;
    return copy;
}

static void expect_seen(struct subject *s, const char *mistake, const struct config *config)
{
    struct verdict v = judge(&s->model, &s->reference, config, &s->kern);
    print_message("%-34s logits %.1e  index scores %.1e  selections %s\n", mistake, v.logits, v.index_scores,
                  v.same_selections ? "same" : "differ");
    if (is_accepted(v)) fail_msg("nothing saw this mistake: %s", mistake);
}

/* Half-split pairing (j, n/2 + j) is interleaved pairing (2j, 2j + 1) over lanes in another order: lane 2j is fed from
 * lane j and lane 2j + 1 from lane n/2 + j. So it can be had by moving the rows of what makes those lanes. */
static void split_pairs(float *weights, size_t n_heads, size_t head_dim, size_t rope_dim, size_t columns)
{
    float *old = malloc(head_dim * columns * sizeof *old);
    for (size_t h = 0; h < n_heads; h++) {
        float *head = weights + h * head_dim * columns;
        memcpy(old, head, head_dim * columns * sizeof *old);
        for (size_t j = 0; j < rope_dim / 2; j++) {
            memcpy(head + 2 * j * columns, old + j * columns, columns * sizeof *old);
            memcpy(head + (2 * j + 1) * columns, old + (rope_dim / 2 + j) * columns, columns * sizeof *old);
        }
    }
    free(old);
}

static void half_split_rope_in_the_indexer(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, "indexshare");
    const struct config *c = &s.model.config;
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        if (!c->is_full[layer]) continue;
        split_pairs(own_copy(&s, layer, ROLE_INDEX_Q), c->index_n_heads, c->index_head_dim, c->rope_dim, c->q_rank);
        split_pairs(own_copy(&s, layer, ROLE_INDEX_K), 1, c->index_head_dim, c->rope_dim, c->hidden);
        split_pairs(own_copy(&s, layer, ROLE_INDEX_K_NORM), 1, c->index_head_dim, c->rope_dim, 1);
        split_pairs(own_copy(&s, layer, ROLE_INDEX_K_NORM_BIAS), 1, c->index_head_dim, c->rope_dim, 1);
    }
    expect_seen(&s, "half-split rope in the indexer", NULL);
    subject_close(&s);
}

/* With offset 2 the same formula gives full layers 0, 1, 5 instead of 0, 1, 2, 6. Layer 5 gets layer 6's indexer here,
 * since the file has none for it. */
static void schedule_offset_two(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, "freq-oddsize");
    struct config wrong = s.model.config;
    for (uint32_t layer = 0; layer < wrong.n_layers; layer++) wrong.is_full[layer] = layer < 2 || layer == 5;
    for (int role = ROLE_INDEX_Q; role <= ROLE_INDEX_K_NORM_BIAS; role++)
        s.blocks[5].role[role] = s.blocks[6].role[role];
    expect_seen(&s, "schedule offset 2", &wrong);
    subject_close(&s);
}

static void schedule_offset_two_in_the_file_is_refused(void **state)
{
    (void)state;
    struct subject s;
    struct inventory inventory;
    struct err err = {0};
    subject_open(&s, "freq-oddsize");
    struct config wrong = s.model.config;
    for (uint32_t layer = 0; layer < wrong.n_layers; layer++) wrong.is_full[layer] = layer < 2 || layer == 5;
    bool ok = inventory_build(&inventory, &s.model.alloc, &wrong, &s.model.catalogue, &err);
    assert_true(!ok || inventory.dsa == CAPABILITY_REFUSED); /* layer 5 has no indexer: never half-enabled */
    if (ok) inventory_fini(&inventory);
    subject_close(&s);
}

static void latent_norms_with_the_other_eps(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, "bias"); /* rms_norm_eps 1e-3 */
    struct config wrong = s.model.config;
    wrong.latent_eps = wrong.rms_eps;
    expect_seen(&s, "latent norms with rms_norm_eps", &wrong);
    subject_close(&s);
}

static void scores_without_relu(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                                size_t n_heads, size_t dim, float dot_scale)
{
    for (size_t t = 0; t < n_keys; t++) {
        y[t] = 0;
        for (size_t g = 0; g < n_heads; g++) {
            float dot = 0;
            for (size_t i = 0; i < dim; i++) dot += q[g * dim + i] * keys[t][i];
            y[t] += w[g] * dot * dot_scale;
        }
    }
}

static void scores_with_unscaled_weights(float *y, const float *q, const float *w, const float *const *keys,
                                         size_t n_keys, size_t n_heads, size_t dim, float dot_scale)
{
    struct kern kern;
    kern_select(&kern, 0);
    kern.index_scores(y, q, w, keys, n_keys, n_heads, dim, dot_scale);
    for (size_t t = 0; t < n_keys; t++) y[t] *= sqrtf((float)n_heads);
}

static void index_scores_without_relu(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, "plain");
    s.kern.index_scores = scores_without_relu;
    expect_seen(&s, "index scores without relu", NULL);
    subject_close(&s);
}

static void index_head_weights_unscaled(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, "plain");
    s.kern.index_scores = scores_with_unscaled_weights;
    expect_seen(&s, "index head weights unscaled", NULL);
    subject_close(&s);
}

static double mtp_error(struct subject *s)
{
    const struct config *c = &s->model.config;
    struct tiny_run run;
    struct kv kv;
    struct err err = {0};
    size_t n, rows, columns;
    uint32_t *ids = reference_ids(&s->reference, "short", "ids", &n);
    float *logits = calloc(n * c->vocab, sizeof *logits);
    struct forward_mtp_row mtp[16];
    tiny_run_with_kernels(&run, &s->model, NULL, 1, &s->kern, &options);
    kv_init(&kv, forward_kv_pool(run.forward));
    tiny_run_feed(&run, &kv, ids, n, n, logits);
    uint32_t next = forward_argmax(logits + (n - 1) * c->vocab, c->vocab);
    for (size_t r = 0; r < n; r++)
        mtp[r] = (struct forward_mtp_row){.kv = &kv,
                                          .token = r + 1 < n ? ids[r + 1] : next,
                                          .position = (uint32_t)r,
                                          .hidden = forward_final(run.forward, r),
                                          .wants_logits = true};
    if (!forward_mtp(run.forward, mtp, n, &err)) fail_msg("%s", err.text);
    for (size_t r = 0; r < n; r++)
        memcpy(logits + r * c->vocab, forward_logits(run.forward, r), c->vocab * sizeof *logits);
    const float *want = reference_tensor(&s->reference, "short", "mtp.dsa.row_logits", &rows, &columns);
    double error = relative_error(logits, want, rows * columns);
    kv_fini(&kv);
    tiny_run_fini(&run);
    free(logits);
    free(ids);
    return error;
}

static void mtp_input_halves_swapped(void **state)
{
    (void)state;
    struct subject s;
    subject_open(&s, "mtp");
    size_t hidden = s.model.config.hidden;
    assert_true(mtp_error(&s) <= TOLERANCE);
    float *w = own_copy(&s, s.model.config.n_layers, ROLE_EH_PROJ);
    for (size_t o = 0; o < hidden; o++)
        for (size_t i = 0; i < hidden; i++) {
            float half = w[o * 2 * hidden + i];
            w[o * 2 * hidden + i] = w[o * 2 * hidden + hidden + i];
            w[o * 2 * hidden + hidden + i] = half;
        }
    double error = mtp_error(&s);
    print_message("%-34s logits %.1e\n", "halves of eh_proj swapped", error);
    assert_true(error > TOLERANCE);
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_split_rope_in_the_indexer),
        cmocka_unit_test(schedule_offset_two),
        cmocka_unit_test(schedule_offset_two_in_the_file_is_refused),
        cmocka_unit_test(latent_norms_with_the_other_eps),
        cmocka_unit_test(index_scores_without_relu),
        cmocka_unit_test(index_head_weights_unscaled),
        cmocka_unit_test(mtp_input_halves_swapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
