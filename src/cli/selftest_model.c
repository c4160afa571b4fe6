#include "base/buf.h"
#include "base/philox.h"
#include "cli/selftest.h"
#include "fmt/inventory.h"
#include "plat/file_write.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define HEADER_BYTES_MAX (UINT64_C(1) << 20)
enum { PATH_BYTES_MAX = 4096, NAME_BYTES_MAX = 128, LENGTH_WORD = 8, SEED = 52 };

/* Everything that GLM-5.2 has, small: dense and sparse layers, full and shared indexers, an MTP layer, more positions
 * in a test than an indexer selects. */
static const char config_text[] =
    "{\"architectures\":[\"GlmMoeDsaForCausalLM\"],\"model_type\":\"glm_moe_dsa\",\"vocab_size\":512,"
    "\"hidden_size\":128,\"intermediate_size\":192,\"moe_intermediate_size\":64,\"num_hidden_layers\":6,"
    "\"first_k_dense_replace\":1,\"num_attention_heads\":4,\"n_routed_experts\":16,\"num_experts_per_tok\":4,"
    "\"n_shared_experts\":1,\"routed_scaling_factor\":2.5,\"q_lora_rank\":64,\"kv_lora_rank\":64,"
    "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32,\"index_n_heads\":2,\"index_head_dim\":32,"
    "\"index_topk\":32,\"rms_norm_eps\":1e-5,"
    "\"indexer_types\":[\"full\",\"full\",\"shared\",\"shared\",\"full\",\"shared\"],"
    "\"attention_bias\":false,\"hidden_act\":\"silu\",\"num_nextn_predict_layers\":1,\"norm_topk_prob\":true,"
    "\"tie_word_embeddings\":false,\"rope_parameters\":{\"rope_theta\":10000.0,\"rope_type\":\"default\"},"
    "\"eos_token_id\":493}\n";

struct maker {
    struct alloc *alloc;
    struct config config;
    struct buf header;
    uint64_t data_bytes; /* described so far, then written so far */
    uint64_t data_at;    /* in the file */
    struct file_writer writer;
    bool is_writing; /* second round over the same tensors */
};

static bool describe(struct maker *m, const char *name, uint64_t rows, uint64_t columns, struct err *err)
{
    uint64_t begin = m->data_bytes;
    m->data_bytes += rows * (columns ? columns : 1) * sizeof(float);
    if (!buf_printf(&m->header, err, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64, begin ? ',' : '{', name, rows))
        return false;
    if (columns && !buf_printf(&m->header, err, ",%" PRIu64, columns)) return false;
    return buf_printf(&m->header, err, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, m->data_bytes);
}

/* Only tokens that can be read have a row in the head that is not zero, and so only they are ever the likeliest: what a
 * server tells of an answer is then exact. */
static bool is_silent(const char *name, uint64_t row)
{
    return strcmp(name, "lm_head.weight") == 0 && !selftest_token_is_readable((uint32_t)row);
}

/* Matrices keep the size of what passes through them; vectors are near one, or near zero where they are added. */
static bool write_values(struct maker *m, const char *name, uint64_t rows, uint64_t columns, struct err *err)
{
    uint64_t n = rows * (columns ? columns : 1), first = m->data_bytes / sizeof(float);
    double spread = columns ? sqrt(3.0 / (double)columns) : 0.1, centre = columns || strstr(name, "bias") ? 0 : 1;
    float *values = alloc_get_array(m->alloc, n, sizeof *values, err);
    if (!values) return false;
    for (uint64_t i = 0; i < n; i++) values[i] = (float)(centre + spread * (2 * philox_unit(SEED, first + i) - 1));
    for (uint64_t i = 0; i < n; i++)
        if (columns && is_silent(name, i / columns)) values[i] = 0;
    bool ok = file_write(&m->writer, values, n * sizeof *values, m->data_at + m->data_bytes, err);
    m->data_bytes += n * sizeof *values;
    alloc_put(m->alloc, values);
    return ok;
}

static bool visit(struct maker *m, const char *name, uint64_t rows, uint64_t columns, struct err *err)
{
    return m->is_writing ? write_values(m, name, rows, columns, err) : describe(m, name, rows, columns, err);
}

static bool is_there(const struct config *c, uint32_t layer, enum role_presence presence)
{
    switch (presence) {
    case PRESENT_ALWAYS: return true;
    case PRESENT_FULL: return c->is_full[layer] && layer < c->n_layers; /* GLM-5.2 drops that of the MTP layer */
    case PRESENT_DENSE: return !c->is_sparse[layer];
    case PRESENT_SPARSE: return c->is_sparse[layer];
    case PRESENT_MTP: return layer == c->n_layers;
    case PRESENT_BIAS: break;
    }
    return false;
}

static bool visit_role(struct maker *m, uint32_t layer, const char *role, uint64_t rows, uint64_t columns,
                       enum role_presence presence, struct err *err)
{
    char name[NAME_BYTES_MAX];
    if (!is_there(&m->config, layer, presence)) return true;
    snprintf(name, sizeof name, "model.layers.%" PRIu32 ".%s", layer, role);
    return visit(m, name, rows, columns, err);
}

static bool visit_layer(struct maker *m, uint32_t layer, struct err *err)
{
    static const char *const parts[EXPERT_PARTS] = {"gate_proj", "up_proj", "down_proj"};
    const struct config *c = &m->config;
#define X(role, name, rows, columns, presence) \
    if (!visit_role(m, layer, name, rows, columns, presence, err)) return false;
    ROLE_LIST(X)
#undef X
    for (uint32_t i = 0; c->is_sparse[layer] && i < c->n_experts * EXPERT_PARTS; i++) {
        char name[NAME_BYTES_MAX];
        bool is_down = i % EXPERT_PARTS == EXPERT_DOWN;
        snprintf(name, sizeof name, "mlp.experts.%" PRIu32 ".%s.weight", i / EXPERT_PARTS, parts[i % EXPERT_PARTS]);
        if (!visit_role(m, layer, name, is_down ? c->hidden : c->expert_inner, is_down ? c->expert_inner : c->hidden,
                        PRESENT_SPARSE, err))
            return false;
    }
    return true;
}

static bool visit_all(struct maker *m, struct err *err)
{
    const struct config *c = &m->config;
    m->data_bytes = 0;
    if (!visit(m, "model.embed_tokens.weight", c->vocab, c->hidden, err)) return false;
    if (!visit(m, "model.norm.weight", c->hidden, 0, err)) return false;
    if (!visit(m, "lm_head.weight", c->vocab, c->hidden, err)) return false;
    for (uint32_t layer = 0; layer <= c->n_layers; layer++)
        if (!visit_layer(m, layer, err)) return false;
    return true;
}

static bool write_shard(struct maker *m, const char *path, struct err *err)
{
    unsigned char length[LENGTH_WORD];
    if (!visit_all(m, err) || !buf_add_char(&m->header, '}', err)) return false;
    while (m->header.bytes % LENGTH_WORD)
        if (!buf_add_char(&m->header, ' ', err)) return false;
    for (int i = 0; i < LENGTH_WORD; i++) length[i] = (unsigned char)(m->header.bytes >> 8 * i);
    m->data_at = LENGTH_WORD + m->header.bytes;
    m->is_writing = true;
    return file_create(&m->writer, m->alloc, write_system_real(), path, err) &&
           file_write(&m->writer, length, LENGTH_WORD, 0, err) &&
           file_write(&m->writer, m->header.data, m->header.bytes, LENGTH_WORD, err) && visit_all(m, err) &&
           file_commit(&m->writer, err);
}

bool selftest_model_write(struct alloc *alloc, const char *folder, struct err *err)
{
    struct maker m = {.alloc = alloc};
    char path[PATH_BYTES_MAX];
    buf_init(&m.header, alloc, HEADER_BYTES_MAX);
    snprintf(path, sizeof path, "%s/config.json", folder);
    bool ok = config_parse(&m.config, path, config_text, strlen(config_text), err) &&
              file_write_all(alloc, write_system_real(), path, config_text, strlen(config_text), err) &&
              selftest_vocabulary_write(alloc, folder, err);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ok = ok && write_shard(&m, path, err);
    file_abandon(&m.writer);
    buf_fini(&m.header);
    return ok;
}
