#include "support/made_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

const char made_tiny_config[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 40, \"hidden_size\": 64, \"num_hidden_layers\": 4,"
    " \"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"first_k_dense_replace\": 1, \"n_routed_experts\": 3,"
    " \"num_experts_per_tok\": 2, \"n_shared_experts\": 1, \"routed_scaling_factor\": 2.5, \"num_attention_heads\": 2,"
    " \"q_lora_rank\": 32, \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 4, \"v_head_dim\": 16,"
    " \"index_topk\": 4, \"index_n_heads\": 2, \"index_head_dim\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,"
    " \"eos_token_id\": 39, \"num_nextn_predict_layers\": 1,"
    " \"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]}";

static void *must(void *memory)
{
    if (!memory) fail_msg("out of memory");
    return memory;
}

struct made_tensor *made_add(struct made_model *model, uint32_t shard, const char *name, const char *dtype,
                             uint32_t rank, const uint64_t *shape, uint64_t bytes)
{
    if (model->n_tensors == model->room) {
        model->room = model->room ? model->room * 2 : 1024;
        model->tensors = must(realloc(model->tensors, model->room * sizeof *model->tensors));
    }
    struct made_tensor *t = &model->tensors[model->n_tensors++];
    *t = (struct made_tensor){.name = must(strdup(name)), .dtype = dtype, .rank = rank, .bytes = bytes, .shard = shard};
    memcpy(t->shape, shape, rank * sizeof *shape);
    return t;
}

/* Any bytes are good numbers; scales and norms are positive floats. */
static void fill(struct made_tensor *t, uint64_t seed)
{
    t->data = must(malloc(t->bytes + 1));
    for (uint64_t i = 0; i < t->bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        t->data[i] = (unsigned char)(seed >> 56);
    }
    if (strcmp(t->dtype, "F32") != 0) return;
    for (uint64_t i = 0; i < t->bytes / 4; i++) made_set_float(t, i, 0.001f * (float)(1 + t->data[4 * i]));
}

/* What the generator carries along. */
struct maker {
    struct made_model *model;
    bool holes;
    uint32_t shard;
};

static void vector(struct maker *m, const char *name, uint64_t n)
{
    struct made_tensor *t = made_add(m->model, m->shard, name, "F32", 1, &n, 4 * n);
    if (!m->holes) fill(t, m->model->n_tensors);
}

static void floats(struct maker *m, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    struct made_tensor *t = made_add(m->model, m->shard, name, "F32", 2, shape, 4 * rows * columns);
    if (!m->holes) fill(t, m->model->n_tensors);
}

static void quantised(struct maker *m, const char *name, uint64_t rows, uint64_t columns, int bits)
{
    char scales[256];
    uint64_t bytes = rows * (bits == 4 ? (columns + 1) / 2 : columns);
    struct made_tensor *t = made_add(m->model, m->shard, name, "U8", 1, &bytes, bytes);
    if (!m->holes) fill(t, m->model->n_tensors);
    snprintf(scales, sizeof scales, "%s.qs", name);
    vector(m, scales, rows);
}

static const char *in_layer(uint32_t layer, const char *name)
{
    static char text[256];
    snprintf(text, sizeof text, "model.layers.%" PRIu32 ".%s", layer, name);
    return text;
}

static void attention(struct maker *m, const struct config *c, uint32_t l, int bits)
{
    uint32_t qk = c->nope_dim + c->rope_dim;
    vector(m, in_layer(l, "input_layernorm.weight"), c->hidden);
    vector(m, in_layer(l, "post_attention_layernorm.weight"), c->hidden);
    quantised(m, in_layer(l, "self_attn.q_a_proj.weight"), c->q_rank, c->hidden, bits);
    vector(m, in_layer(l, "self_attn.q_a_layernorm.weight"), c->q_rank);
    quantised(m, in_layer(l, "self_attn.q_b_proj.weight"), c->n_heads * qk, c->q_rank, bits);
    quantised(m, in_layer(l, "self_attn.kv_a_proj_with_mqa.weight"), c->kv_rank + c->rope_dim, c->hidden, bits);
    vector(m, in_layer(l, "self_attn.kv_a_layernorm.weight"), c->kv_rank);
    quantised(m, in_layer(l, "self_attn.kv_b_proj.weight"), c->n_heads * (c->nope_dim + c->value_dim), c->kv_rank,
              bits);
    quantised(m, in_layer(l, "self_attn.o_proj.weight"), c->hidden, c->n_heads * c->value_dim, bits);
}

static void three(struct maker *m, uint32_t l, const char *stem, uint64_t inner, uint64_t hidden, int bits)
{
    char name[128];
    snprintf(name, sizeof name, "%s.gate_proj.weight", stem);
    quantised(m, in_layer(l, name), inner, hidden, bits);
    snprintf(name, sizeof name, "%s.up_proj.weight", stem);
    quantised(m, in_layer(l, name), inner, hidden, bits);
    snprintf(name, sizeof name, "%s.down_proj.weight", stem);
    quantised(m, in_layer(l, name), hidden, inner, bits);
}

static void mlp(struct maker *m, const struct config *c, uint32_t l, int bits)
{
    if (!c->is_sparse[l]) {
        three(m, l, "mlp", c->dense_inner, c->hidden, bits);
        return;
    }
    floats(m, in_layer(l, "mlp.gate.weight"), c->n_experts, c->hidden);
    vector(m, in_layer(l, "mlp.gate.e_score_correction_bias"), c->n_experts);
    three(m, l, "mlp.shared_experts", c->expert_inner, c->hidden, bits);
    for (uint32_t e = 0; e < c->n_experts; e++) {
        char stem[64];
        snprintf(stem, sizeof stem, "mlp.experts.%" PRIu32, e);
        three(m, l, stem, c->expert_inner, c->hidden, bits);
    }
}

static void indexer(struct maker *m, const struct config *c, uint32_t l)
{
    quantised(m, in_layer(l, "self_attn.indexer.wq_b.weight"), c->index_n_heads * c->index_head_dim, c->q_rank, 8);
    quantised(m, in_layer(l, "self_attn.indexer.wk.weight"), c->index_head_dim, c->hidden, 8);
    quantised(m, in_layer(l, "self_attn.indexer.weights_proj.weight"), c->index_n_heads, c->hidden, 8);
    vector(m, in_layer(l, "self_attn.indexer.k_norm.weight"), c->index_head_dim);
    vector(m, in_layer(l, "self_attn.indexer.k_norm.bias"), c->index_head_dim);
}

/* --- which shard --- */

static int by_name(const void *a, const void *b)
{
    const struct made_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Cuts the tensors from `first` on, in the order of their names, into n shards of about equally many. */
static void split(struct made_model *model, size_t first, const char *prefix, uint32_t n)
{
    size_t n_tensors = model->n_tensors - first;
    qsort(model->tensors + first, n_tensors, sizeof *model->tensors, by_name);
    for (size_t i = 0; i < n_tensors; i++)
        model->tensors[first + i].shard = model->n_shards + (uint32_t)(i * n / n_tensors);
    for (uint32_t k = 0; k < n; k++)
        snprintf(model->shards[model->n_shards++], sizeof model->shards[0], "%s%05" PRIu32 ".safetensors", prefix, k);
}

void made_model_init(struct made_model *model, const char *config_text, unsigned parts, uint32_t n_main, uint32_t n_mtp,
                     uint32_t n_indexer)
{
    struct config c;
    struct err err = {0};
    *model = (struct made_model){0};
    model->config = must(strdup(config_text));
    if (!config_parse(&c, "made config", config_text, strlen(config_text), &err)) fail_msg("%s", err.text);
    assert_true(n_main + n_mtp + n_indexer <= MADE_SHARDS_MAX);

    struct maker m = {.model = model, .holes = parts & MADE_HOLES};
    quantised(&m, "model.embed_tokens.weight", c.vocab, c.hidden, 8);
    quantised(&m, "lm_head.weight", c.vocab, c.hidden, 8);
    vector(&m, "model.norm.weight", c.hidden);
    for (uint32_t l = 0; l < c.n_layers; l++) {
        attention(&m, &c, l, 4);
        mlp(&m, &c, l, 4);
    }
    split(model, 0, "out-", n_main);
    if (parts & MADE_MTP) {
        size_t first = model->n_tensors;
        attention(&m, &c, c.n_layers, 8);
        mlp(&m, &c, c.n_layers, 8);
        quantised(&m, in_layer(c.n_layers, "eh_proj.weight"), c.hidden, 2 * c.hidden, 8);
        vector(&m, in_layer(c.n_layers, "enorm.weight"), c.hidden);
        vector(&m, in_layer(c.n_layers, "hnorm.weight"), c.hidden);
        vector(&m, in_layer(c.n_layers, "shared_head.norm.weight"), c.hidden);
        split(model, first, "out-mtp-", n_mtp);
    }
    if (parts & MADE_INDEXERS) {
        size_t first = model->n_tensors;
        for (uint32_t l = 0; l < c.n_layers; l++)
            if (c.is_full[l]) indexer(&m, &c, l);
        split(model, first, "out-idx-", n_indexer);
    }
}

void made_model_tiny(struct made_model *model)
{
    made_model_init(model, made_tiny_config, MADE_MTP | MADE_INDEXERS, 4, 1, 1);
}

void made_model_fini(struct made_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        free(model->tensors[i].name);
        free(model->tensors[i].data);
    }
    for (uint32_t s = 0; s < MADE_SHARDS_MAX; s++) free(model->metadata[s]);
    free(model->tensors);
    free(model->config);
    *model = (struct made_model){0};
}

/* --- changes --- */

struct made_tensor *made_find(struct made_model *model, const char *name)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (strcmp(model->tensors[i].name, name) == 0) return &model->tensors[i];
    fail_msg("the made model has no tensor '%s'", name);
    return NULL;
}

void made_drop(struct made_model *model, const char *name)
{
    struct made_tensor *t = made_find(model, name);
    free(t->name);
    free(t->data);
    *t = model->tensors[--model->n_tensors];
}

void made_resize(struct made_tensor *tensor, uint64_t bytes)
{
    tensor->data = must(realloc(tensor->data, bytes + 1));
    for (uint64_t i = tensor->bytes; i < bytes; i++) tensor->data[i] = 1;
    tensor->bytes = bytes;
}

void made_set_float(struct made_tensor *tensor, uint64_t index, float value)
{
    assert_true(4 * index + 4 <= tensor->bytes);
    memcpy(tensor->data + 4 * index, &value, 4);
}

/* --- writing --- */

/* The writer of these containers puts F32 before U8, and names in ascending order. */
static int by_dtype_and_name(const void *a, const void *b)
{
    const struct made_tensor *x = *(const struct made_tensor *const *)a, *y = *(const struct made_tensor *const *)b;
    bool x_first = strcmp(x->dtype, "F32") == 0, y_first = strcmp(y->dtype, "F32") == 0;
    if (x_first != y_first) return x_first ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void write_header(FILE *file, const char *header)
{
    size_t n = strlen(header), padded = (n + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    if (fwrite(length, 1, 8, file) != 8 || fprintf(file, "%s%*s", header, (int)(padded - n), "") < 0)
        fail_msg("cannot write a header");
}

static void write_shard(const struct made_model *model, uint32_t shard, const char *dir)
{
    char path[512], *header = NULL;
    size_t header_bytes, n = 0;
    const struct made_tensor **order = must(calloc(model->n_tensors + 1, sizeof *order));
    FILE *text = must(open_memstream(&header, &header_bytes));
    for (size_t i = 0; i < model->n_tensors; i++)
        if (model->tensors[i].shard == shard) order[n++] = &model->tensors[i];
    qsort(order, n, sizeof *order, by_dtype_and_name);

    uint64_t end = 0;
    fprintf(text, "{");
    if (model->metadata[shard]) fprintf(text, "\"__metadata__\":%s%s", model->metadata[shard], n > 0 ? "," : "");
    for (size_t i = 0; i < n; i++) {
        fprintf(text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", order[i]->name, order[i]->dtype);
        for (uint32_t d = 0; d < order[i]->rank; d++) fprintf(text, "%s%" PRIu64, d ? "," : "", order[i]->shape[d]);
        fprintf(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", end, end + order[i]->bytes);
        end += order[i]->bytes;
    }
    fprintf(text, "}");
    fclose(text);

    snprintf(path, sizeof path, "%s/%s", dir, model->shards[shard]);
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("%s: cannot write", path);
    write_header(file, header);
    uint64_t at = (uint64_t)ftello(file);
    for (size_t i = 0; i < n; at += order[i++]->bytes)
        if (order[i]->data && fwrite(order[i]->data, 1, order[i]->bytes, file) != order[i]->bytes)
            fail_msg("%s: cannot write", path);
    fflush(file);
    if (ftruncate(fileno(file), (off_t)at) != 0 || fclose(file) != 0) fail_msg("%s: cannot write", path);
    free(header);
    free(order);
}

void made_write(const struct made_model *model, const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *file = fopen(path, "wb");
    if (!file || fputs(model->config, file) < 0 || fclose(file) != 0) fail_msg("%s: cannot write", path);
    for (uint32_t s = 0; s < model->n_shards; s++) write_shard(model, s, dir);
}

void made_put_shard(const char *path, const char *header, uint64_t data_bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("%s: cannot write", path);
    write_header(file, header);
    for (uint64_t i = 0; i < data_bytes; i++) putc(1, file);
    if (fclose(file) != 0) fail_msg("%s: cannot write", path);
}
