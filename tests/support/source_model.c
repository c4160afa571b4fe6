#include "support/source_model.h"

#include "support/temp_folder.h"
#include <stdlib.h>

const char source_model_config[] =
    "{\"architectures\":[\"GlmMoeDsaForCausalLM\"],\"model_type\":\"glm_moe_dsa\",\"vocab_size\":37,"
    "\"hidden_size\":40,\"intermediate_size\":51,\"moe_intermediate_size\":23,\"num_hidden_layers\":3,"
    "\"first_k_dense_replace\":1,\"num_attention_heads\":3,\"n_routed_experts\":2,\"num_experts_per_tok\":1,"
    "\"n_shared_experts\":1,\"routed_scaling_factor\":1.5,\"q_lora_rank\":20,\"kv_lora_rank\":18,"
    "\"qk_nope_head_dim\":5,\"qk_rope_head_dim\":4,\"v_head_dim\":7,\"index_n_heads\":2,\"index_head_dim\":6,"
    "\"index_topk\":4,\"rms_norm_eps\":1e-5,\"indexer_types\":[\"full\",\"shared\",\"full\"],"
    "\"attention_bias\":false,\"hidden_act\":\"silu\",\"num_nextn_predict_layers\":1,\"norm_topk_prob\":true,"
    "\"tie_word_embeddings\":false,\"rope_parameters\":{\"rope_theta\":10000.0,\"rope_type\":\"default\"},"
    "\"eos_token_id\":1}\n";

struct maker {
    struct plain_set *set;
    uint64_t state;
    unsigned n_matrices;
};

static uint32_t next_random(struct maker *m)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m->state >> 33);
}

static float random_weight(struct maker *m)
{
    return (float)((int32_t)(next_random(m) % 2001) - 1000) * 1e-4f;
}

static void add_f32(struct maker *m, const char *name, uint64_t rows, uint64_t columns)
{
    uint64_t n = rows * (columns ? columns : 1);
    unsigned char *data = plain_add(m->set, name, "F32", rows, columns, NULL, 4 * n);
    for (uint64_t i = 0; i < n; i++) {
        float value = random_weight(m);
        memcpy(data + 4 * i, &value, 4);
    }
}

/* 16-bit codes whose exponents are of a sensible size. */
static void add_16(struct maker *m, const char *name, const char *dtype, uint64_t rows, uint64_t columns)
{
    uint64_t n = rows * (columns ? columns : 1);
    bool is_half = !strcmp(dtype, "F16");
    unsigned char *data = plain_add(m->set, name, dtype, rows, columns, NULL, 2 * n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t r = next_random(m);
        uint32_t code = is_half ? r % 0x3000 : 0x3c00 + r % 0x200;
        code |= r >> 20 & 1 ? 0x8000u : 0;
        data[2 * i] = (unsigned char)code;
        data[2 * i + 1] = (unsigned char)(code >> 8);
    }
}

static void add_fp8(struct maker *m, const char *name, uint64_t rows, uint64_t columns)
{
    unsigned char *data = plain_add(m->set, name, "F8_E4M3", rows, columns, NULL, rows * columns);
    for (uint64_t i = 0; i < rows * columns; i++) {
        uint32_t code = next_random(m) & 0xff;
        data[i] = (unsigned char)((code & 0x7f) == 0x7f ? code - 1 : code); /* 0x7f and 0xff are NaN */
    }
    char scale[200];
    snprintf(scale, sizeof scale, "%s_scale_inv", name);
    add_f32(m, scale, (rows + 127) / 128, (columns + 127) / 128);
}

static void add_matrix(struct maker *m, const char *name, uint64_t rows, uint64_t columns)
{
    switch (m->n_matrices++ % 4) {
    case 0: add_16(m, name, "BF16", rows, columns); break;
    case 1: add_fp8(m, name, rows, columns); break;
    case 2: add_16(m, name, "F16", rows, columns); break;
    default: add_f32(m, name, rows, columns); break;
    }
}

struct shape {
    const char *name;
    unsigned rows, columns;
};

static void add_shapes(struct maker *m, unsigned layer, const struct shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[160];
        snprintf(name, sizeof name, "model.layers.%u.%s", layer, shapes[i].name);
        if (shapes[i].columns)
            add_matrix(m, name, shapes[i].rows, shapes[i].columns);
        else
            add_16(m, name, "BF16", shapes[i].rows, 0);
    }
}

#define ADD(m, layer, shapes) add_shapes(m, layer, shapes, sizeof(shapes) / sizeof *(shapes))

static void add_layer(struct maker *m, unsigned layer)
{
    static const struct shape common[] = {
        {"input_layernorm.weight", 40, 0},          {"post_attention_layernorm.weight", 40, 0},
        {"self_attn.q_a_proj.weight", 20, 40},      {"self_attn.q_a_layernorm.weight", 20, 0},
        {"self_attn.q_b_proj.weight", 27, 20},      {"self_attn.kv_a_proj_with_mqa.weight", 22, 40},
        {"self_attn.kv_a_layernorm.weight", 18, 0}, {"self_attn.kv_b_proj.weight", 36, 18},
        {"self_attn.o_proj.weight", 40, 21},
    };
    static const struct shape indexer[] = {
        {"self_attn.indexer.wq_b.weight", 12, 20},        {"self_attn.indexer.wk.weight", 6, 40},
        {"self_attn.indexer.weights_proj.weight", 2, 40}, {"self_attn.indexer.k_norm.weight", 6, 0},
        {"self_attn.indexer.k_norm.bias", 6, 0},
    };
    static const struct shape dense[] = {
        {"mlp.gate_proj.weight", 51, 40}, {"mlp.up_proj.weight", 51, 40}, {"mlp.down_proj.weight", 40, 51}};
    static const struct shape sparse[] = {
        {"mlp.experts.0.gate_proj.weight", 23, 40},      {"mlp.experts.0.up_proj.weight", 23, 40},
        {"mlp.experts.0.down_proj.weight", 40, 23},      {"mlp.experts.1.gate_proj.weight", 23, 40},
        {"mlp.experts.1.up_proj.weight", 23, 40},        {"mlp.experts.1.down_proj.weight", 40, 23},
        {"mlp.shared_experts.gate_proj.weight", 23, 40}, {"mlp.shared_experts.up_proj.weight", 23, 40},
        {"mlp.shared_experts.down_proj.weight", 40, 23},
    };
    static const struct shape mtp[] = {{"eh_proj.weight", 40, 80},
                                       {"enorm.weight", 40, 0},
                                       {"hnorm.weight", 40, 0},
                                       {"shared_head.norm.weight", 40, 0}};
    ADD(m, layer, common);
    if (layer != 1) ADD(m, layer, indexer);
    if (layer == 0)
        ADD(m, layer, dense);
    else {
        char name[160];
        ADD(m, layer, sparse);
        snprintf(name, sizeof name, "model.layers.%u.mlp.gate.weight", layer);
        add_16(m, name, "BF16", 2, 40);
        snprintf(name, sizeof name, "model.layers.%u.mlp.gate.e_score_correction_bias", layer);
        add_f32(m, name, 2, 0);
    }
    if (layer == SOURCE_MODEL_LAYERS) ADD(m, layer, mtp);
}

void source_model_make(struct plain_set *set, uint64_t seed)
{
    struct maker m = {.set = set, .state = seed};
    add_16(&m, "model.embed_tokens.weight", "BF16", 37, 40);
    add_16(&m, "model.norm.weight", "BF16", 40, 0);
    add_f32(&m, "lm_head.weight", 37, 40);
    for (unsigned layer = 0; layer <= SOURCE_MODEL_LAYERS; layer++) add_layer(&m, layer);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_file(path, text, strlen(text));
}

void source_model_save(const struct plain_set *set, const char *folder)
{
    struct plain_set half = {set->tensors, set->n / 2}, rest = {set->tensors + set->n / 2, set->n - set->n / 2};
    char path[512];
    put_text(folder, "config.json", source_model_config);
    put_text(folder, "tokenizer.json", "{\"not\": \"a real tokenizer\"}\n");
    put_text(folder, "chat_template.jinja", "{{ messages }}");
    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", folder);
    plain_write(&half, path);
    snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", folder);
    plain_write(&rest, path);
}
