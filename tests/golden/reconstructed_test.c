/* The absorbed form equals the reconstructed one: layer 0 of a tiny model, computed a second time in double with keys
 * and values expanded for every token, as the formula is usually written. */
#include "plat/cpu.h"
#include "support/check.h"
#include "support/reference.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdlib.h>

#define DIR "tests/fixtures/glm52-tiny/plain"

static const struct forward_options options = {.rows_max = 128, .logit_rows_max = 128, .positions_max = 256};

static void multiply(double *y, const struct matrix *w, const double *x)
{
    const float *p = w->payload;
    for (size_t o = 0; o < w->rows; o++) {
        y[o] = 0;
        for (size_t i = 0; i < w->columns; i++) y[o] += (double)p[o * w->columns + i] * x[i];
    }
}

static void rmsnorm(double *y, const double *x, const float *w, size_t n, double eps)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / (double)n + eps) * w[i];
}

static void rotate(double *x, size_t dim, size_t position, double theta)
{
    for (size_t j = 0; j < dim / 2; j++) {
        double angle = (double)position * pow(theta, -2.0 * (double)j / (double)dim);
        double a = x[2 * j], b = x[2 * j + 1];
        x[2 * j] = a * cos(angle) - b * sin(angle);
        x[2 * j + 1] = b * cos(angle) + a * sin(angle);
    }
}

/* One token's queries, keys and values of all heads, in double. */
struct token {
    double x[64], q[4 * 32], k[4 * 32], v[4 * 32];
};

static void expand(const struct config *c, const struct block_weights *b, struct token *t, size_t position)
{
    double h[64], latent[32], raw[64], kv[4 * 64];
    rmsnorm(h, t->x, b->role[ROLE_INPUT_NORM].payload, c->hidden, c->rms_eps);
    multiply(latent, &b->role[ROLE_Q_A], h);
    rmsnorm(latent, latent, b->role[ROLE_Q_A_NORM].payload, c->q_rank, c->latent_eps);
    multiply(t->q, &b->role[ROLE_Q_B], latent);
    multiply(raw, &b->role[ROLE_KV_A], h);
    rmsnorm(raw, raw, b->role[ROLE_KV_A_NORM].payload, c->kv_rank, c->latent_eps);
    rotate(raw + c->kv_rank, c->rope_dim, position, c->rope_theta);
    multiply(kv, &b->role[ROLE_KV_B], raw);
    size_t head = c->nope_dim + c->rope_dim, both = c->nope_dim + c->value_dim;
    for (size_t n = 0; n < c->n_heads; n++) {
        rotate(t->q + n * head + c->nope_dim, c->rope_dim, position, c->rope_theta);
        memcpy(t->k + n * head, kv + n * both, c->nope_dim * sizeof(double));
        memcpy(t->k + n * head + c->nope_dim, raw + c->kv_rank, c->rope_dim * sizeof(double));
        memcpy(t->v + n * c->value_dim, kv + n * both + c->nope_dim, c->value_dim * sizeof(double));
    }
}

static void attend(const struct config *c, const struct token *tokens, size_t row, double *context)
{
    size_t head = c->nope_dim + c->rope_dim;
    for (size_t n = 0; n < c->n_heads; n++) {
        double score[128], sum = 0, best = -INFINITY;
        for (size_t t = 0; t <= row; t++) {
            score[t] = 0;
            for (size_t i = 0; i < head; i++) score[t] += tokens[row].q[n * head + i] * tokens[t].k[n * head + i];
            score[t] /= sqrt((double)head);
            if (score[t] > best) best = score[t];
        }
        for (size_t t = 0; t <= row; t++) sum += score[t] = exp(score[t] - best);
        for (size_t i = 0; i < c->value_dim; i++) {
            context[n * c->value_dim + i] = 0;
            for (size_t t = 0; t <= row; t++)
                context[n * c->value_dim + i] += score[t] / sum * tokens[t].v[n * c->value_dim + i];
        }
    }
}

static void finish_layer(const struct config *c, const struct block_weights *b, const struct token *t,
                         const double *context, float *out)
{
    double update[64], x[64], h[64], gate[96], up[96];
    multiply(update, &b->role[ROLE_O], context);
    for (size_t i = 0; i < c->hidden; i++) x[i] = t->x[i] + update[i];
    rmsnorm(h, x, b->role[ROLE_POST_NORM].payload, c->hidden, c->rms_eps);
    multiply(gate, &b->role[ROLE_GATE], h);
    multiply(up, &b->role[ROLE_UP], h);
    for (size_t i = 0; i < c->dense_inner; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    multiply(update, &b->role[ROLE_DOWN], gate);
    for (size_t i = 0; i < c->hidden; i++) out[i] = (float)(x[i] + update[i]);
}

struct capture {
    float *hidden;
    size_t n;
};

static void keep_layer_zero(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct capture *capture = context;
    if (layer == 0) memcpy(capture->hidden, x, n_rows * capture->n * sizeof *x);
}

static void absorbed_equals_reconstructed(void **state)
{
    (void)state;
    enum { TOKENS = 16 }; /* as many as index_topk: all dense */
    struct tiny_model model;
    struct tiny_run run;
    struct kv kv;
    struct err err = {0};
    uint32_t ids[TOKENS];
    struct token *tokens = calloc(TOKENS, sizeof *tokens);
    tiny_model_open(&model, DIR);
    const struct config *c = &model.config;
    assert_int_equal(c->hidden, 64); /* the sizes that the arrays above are made for */
    assert_int_equal(c->dense_inner, 96);
    assert_int_equal(c->n_heads * (c->nope_dim + c->rope_dim), 4 * 32);
    tiny_run_init(&run, &model, NULL, 1, cpu_mask(), &options);
    kv_init(&kv, forward_kv_pool(run.forward));
    float *got = calloc(TOKENS * c->hidden, sizeof *got), *want = calloc(TOKENS * c->hidden, sizeof *want);
    float *logits = calloc(TOKENS * c->vocab, sizeof *logits), *x = calloc(TOKENS * c->hidden, sizeof *x);
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (i * 37 + 5) % c->vocab;

    struct capture capture = {.hidden = got, .n = c->hidden};
    struct forward_observer observer = {.context = &capture, .hidden = keep_layer_zero};
    forward_observe(run.forward, &observer);
    tiny_run_feed(&run, &kv, ids, TOKENS, TOKENS, logits);

    const struct block_weights *block = &model.weights->spine->blocks[0];
    assert_true(model.weights->ops->embed(model.weights, ids, TOKENS, x, &err));
    for (size_t t = 0; t < TOKENS; t++) {
        double context[4 * 32];
        for (size_t i = 0; i < c->hidden; i++) tokens[t].x[i] = x[t * c->hidden + i];
        expand(c, block, &tokens[t], t);
        attend(c, tokens, t, context);
        finish_layer(c, block, &tokens[t], context, want + t * c->hidden);
    }
    double error = relative_error(got, want, TOKENS * c->hidden);
    print_message("absorbed against reconstructed in double: %.1e\n", error);
    assert_true(error <= 1e-5);

    kv_fini(&kv);
    tiny_run_fini(&run);
    free(x);
    free(logits);
    free(want);
    free(got);
    free(tokens);
    tiny_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(absorbed_equals_reconstructed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
