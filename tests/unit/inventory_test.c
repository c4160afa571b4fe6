#include "fmt/inventory.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/open_model.h"
#include "support/temp_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct temp_folder folder;

static int make_folder(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

/* Writes the model, opens it by headers, and gives the inventory's verdict. The model is used up. */
static bool open_made(struct made_model *made, struct open_model *m, struct alloc *alloc, struct err *err)
{
    *err = (struct err){0};
    remove_tree(folder.path);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    made_write(made, folder.path);
    made_model_fini(made);
    return open_model(m, alloc, file_system_real(), folder.path, false, err);
}

static void set_config(struct made_model *made, const char *from, const char *to)
{
    const char *at = strstr(made->config, from);
    assert_non_null(at);
    char *text = malloc(strlen(made->config) + strlen(to) + 1);
    sprintf(text, "%.*s%s%s", (int)(at - made->config), made->config, to, at + strlen(from));
    free(made->config);
    made->config = text;
}

/* --- one damage at a time --- */

enum damage {
    DROP,   /* the tensor is not there */
    DTYPE,  /* text is its dtype, number the bytes of an element; its data is as long as that makes it */
    BYTES,  /* number more or fewer bytes */
    SHAPE,  /* a last dimension of number */
    FLAT,   /* one dimension */
    RENAME, /* text is its name */
    ADD,    /* a tensor of this name, F32 of 8 elements */
    STAMP,  /* text is a metadata stamp of it in another shard */
    CONFIG, /* tensor is a part of config.json and text what to put there */
    FORMAT, /* payload bytes become number; text: scale bytes */
};

static void apply(struct made_model *made, enum damage damage, const char *tensor, const char *text, int64_t number)
{
    const uint64_t eight = 8;
    struct made_tensor *t = damage == ADD || damage == CONFIG ? NULL : made_find(made, tensor);
    char name[256];
    switch (damage) {
    case DROP: made_drop(made, tensor); return;
    case DTYPE: {
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
        made_resize(t, n * (uint64_t)number);
        t->dtype = text;
        return;
    }
    case BYTES:
        made_resize(t, t->bytes + (uint64_t)number);
        t->rank = 1;
        t->shape[0] = t->bytes / (strcmp(t->dtype, "U8") == 0 ? 1 : 4);
        return;
    case SHAPE:
        t->rank++;
        t->shape[t->rank - 1] = (uint64_t)number;
        return;
    case FLAT:
        t->shape[0] *= t->shape[1];
        t->rank = 1;
        return;
    case RENAME:
        free(t->name);
        t->name = strdup(text);
        return;
    case ADD: made_resize(made_add(made, 0, tensor, text ? text : "F32", 1, &eight, 0), text ? 8 : 32); return;
    case STAMP:
        made->metadata[1] = malloc(512);
        sprintf(made->metadata[1], "{\"colibri.fmt\":\"{\\\"%s\\\":\\\"%s\\\"}\"}", tensor, text);
        return;
    case CONFIG: set_config(made, tensor, text); return;
    case FORMAT:
        made_resize(t, (uint64_t)number);
        t->shape[0] = t->bytes;
        snprintf(name, sizeof name, "%s.qs", tensor);
        t = made_find(made, name);
        made_resize(t, strtoull(text, NULL, 10));
        t->shape[0] = t->bytes / 4;
        for (uint64_t i = 0; i < t->shape[0]; i++) made_set_float(t, i, 0.5f);
        return;
    }
}

#define L1 "model.layers.1."
#define NORM L1 "input_layernorm.weight"
#define Q_A L1 "self_attn.q_a_proj.weight" /* [32, 64] */
#define EXPERT L1 "mlp.experts.2.down_proj.weight"
#define ROUTER L1 "mlp.gate.weight"

static const struct {
    enum damage damage;
    const char *tensor, *text;
    int64_t number;
    const char *says;
} damages[] = {
    {DROP, "lm_head.weight", NULL, 0, "tensor 'lm_head.weight' is missing; 6 shards with"},
    {DROP, "model.norm.weight", NULL, 0, "tensor 'model.norm.weight' is missing"},
    {DROP, "model.embed_tokens.weight", NULL, 0, "tensor 'model.embed_tokens.weight' is missing"},
    {DROP, "model.layers.0.mlp.up_proj.weight", NULL, 0, "'model.layers.0.mlp.up_proj.weight' is missing"},
    {DROP, "model.layers.3.self_attn.kv_b_proj.weight", NULL, 0, "kv_b_proj.weight' is missing"},
    {DROP, EXPERT, NULL, 0, "'" EXPERT "' is missing"},
    {DROP, L1 "mlp.shared_experts.up_proj.weight", NULL, 0, "shared_experts.up_proj.weight' is missing"},
    {DROP, ROUTER, NULL, 0, "'" ROUTER "' is missing"},
    {DROP, L1 "mlp.gate.e_score_correction_bias", NULL, 0, "e_score_correction_bias' is missing"},
    {DROP, Q_A ".qs", NULL, 0, "'" Q_A "' is U8, but its scales '" Q_A ".qs' are missing"},
    {RENAME, Q_A ".qs", Q_A "_scale", 0, "(NVFP4), which weir does not read"},
    {ADD, L1 "extra.weight.qs", NULL, 0, "are scales, but their weight '" L1 "extra.weight' is missing"},
    {ADD, NORM ".qs", NULL, 0, "are scales, but their weight is F32 and not U8"},
    {ADD, L1 "extra.weight_scale_inv", NULL, 0, "are scales, but their weight '" L1 "extra.weight' is missing"},
    {ADD, "model.layers.5.input_layernorm.weight", NULL, 0, "of a layer that config.json does not have (4 layers)"},
    {ADD, "model.layers.99999999999999999999.x", NULL, 0, "of a layer that config.json does not have"},
    {ADD, L1 "mlp.experts.3.up_proj.weight", NULL, 0, "of an expert that config.json does not have (3 experts)"},
    {ADD, L1 "self_attn.q_a_proj.bias", NULL, 0, "attention_bias is false in config.json"},
    {ADD, L1 "self_attn.o_proj.bias", NULL, 0, "attention_bias is false in config.json"},
    {CONFIG, "\"rope_theta\"", "\"attention_bias\": true, \"rope_theta\"", 0, "q_a_proj.bias' is missing"},

    {DTYPE, Q_A ".qs", "F16", 2, "'" Q_A ".qs' is F16, scales must be F32"},
    {DTYPE, Q_A ".qs", "BF16", 2, "'" Q_A ".qs' is BF16, scales must be F32"},
    {DTYPE, Q_A ".qs", "F64", 8, "'" Q_A ".qs' is F64, scales must be F32"},
    {DTYPE, Q_A, "I8", 1, "'" Q_A "' is I8; weights are"},
    {DTYPE, Q_A, "F8_E5M2", 1, "'" Q_A "' is F8_E5M2; weights are"},
    {DTYPE, EXPERT, "I32", 4, "'" EXPERT "' is I32; weights are"},
    {DTYPE, Q_A, "F8_E4M3", 1, "'" Q_A "' has shape [1024], config.json asks for [32, 64]"},
    {DTYPE, NORM, "U8", 1, "'" NORM "' is U8, it must be F32"},
    {DTYPE, NORM, "I8", 1, "'" NORM "' is I8, it must be F32"},
    {DTYPE, NORM, "F8_E4M3", 1, "'" NORM "' is F8_E4M3, it must be F32"},
    {DTYPE, NORM, "F64", 8, "'" NORM "' is F64, it must be F32"},
    {DTYPE, ROUTER, "U8", 1, "'" ROUTER "' is U8, it must be F32"},
    {DTYPE, ROUTER, "F8_E4M3", 1, "'" ROUTER "' is F8_E4M3, it must be F32"},
    {DTYPE, L1 "mlp.gate.e_score_correction_bias", "U8", 1, "is U8, it must be F32"},
    {DTYPE, "model.norm.weight", "I16", 2, "is I16, it must be F32"},

    {BYTES, Q_A, NULL, -1, "'" Q_A "': 1023 bytes fit no format of a [32, 64] matrix"},
    {BYTES, Q_A, NULL, 1, "1025 bytes fit no format"},
    {BYTES, Q_A ".qs", NULL, 4, "132 bytes of scales do not fit int4 weights of shape [32, 64]"},
    {BYTES, Q_A ".qs", NULL, -4, "124 bytes of scales do not fit"},
    {BYTES, EXPERT, NULL, 64, "'" EXPERT "'"},
    {BYTES, "lm_head.weight.qs", NULL, 4, "'lm_head.weight': 164 bytes of scales do not fit int8"},
    {BYTES, NORM, NULL, 4, "has shape [65], config.json asks for [64]"},
    {SHAPE, NORM, NULL, 1, "has shape [64, 1], config.json asks for [64]"},
    {SHAPE, ROUTER, NULL, 1, "has shape [3, 64, 1], config.json asks for [3, 64]"},
    {FLAT, ROUTER, NULL, 0, "has shape [192], config.json asks for [3, 64]"},

    {FORMAT, Q_A, "4", 32 * 98, "stored as e8-iq3-lattice, which weir does not read"},
    {FORMAT, Q_A, "4", 32 * 64, "stored as fp8-e4m3-b128, which weir does not read"},
    {STAMP, Q_A, "int8-row", 0, "'" Q_A "': stamped as int8-row, but its sizes say int4-row"},
    {STAMP, Q_A, "int4-rans256-g0", 0, "stored as int4-rans256-g0, which weir does not read"},
    {STAMP, L1 "self_attn.o_proj.weight", "fp8-e4m3-b128", 0, "stored as fp8-e4m3-b128"},

    {CONFIG, "\"hidden_size\": 64", "\"hidden_size\": 128", 0, "config.json asks for [128]"},
    {CONFIG, "\"n_routed_experts\": 3", "\"n_routed_experts\": 4", 0,
     "has shape [3, 64], config.json asks for [4, 64]"},
    {CONFIG, "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 2", 0, L1 "mlp.gate_proj.weight' is missing"},
    {CONFIG, "\"vocab_size\": 40", "\"vocab_size\": 41", 0, "fit no format of a [41, 64] matrix"},
    {CONFIG, "\"num_attention_heads\": 2", "\"num_attention_heads\": 3", 0, "q_b_proj"},
};

static void damaged_cores_are_refused(void **state)
{
    (void)state;
    unsigned refused = 0;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct made_model made;
        struct open_model m;
        struct alloc alloc = {0};
        struct err err;
        made_model_tiny(&made);
        apply(&made, damages[i].damage, damages[i].tensor, damages[i].text, damages[i].number);
        bool ok = open_made(&made, &m, &alloc, &err);
        refused += !ok;
        if (ok != !damages[i].says) fail_msg("damage %zu of %s: %s", i, damages[i].tensor, ok ? "accepted" : err.text);
        if (!ok && (err.kind != ERR_DATA || !strstr(err.text, damages[i].says) || !strstr(err.text, folder.path)))
            fail_msg("damage %zu of %s: expected \"%s\", got \"%s\"", i, damages[i].tensor, damages[i].says, err.text);
        close_model(&m);
        assert_int_equal(alloc.live, 0);
    }
    printf("%zu damages, %u refused\n", sizeof damages / sizeof *damages, refused);
}

/* --- what may be stored in which way --- */

static void every_supported_format_is_resolved(void **state)
{
    (void)state;
    static const struct {
        enum damage damage;
        const char *tensor, *text;
        int64_t number;
        enum weight_format format;
        uint32_t group;
    } ways[] = {
        {FORMAT, Q_A, "128", 32 * 32, FORMAT_INT4_ROW, 0},      {FORMAT, Q_A, "256", 32 * 32, FORMAT_INT4_GROUPED, 32},
        {FORMAT, Q_A, "512", 32 * 32, FORMAT_INT4_GROUPED, 16}, {FORMAT, Q_A, "128", 32 * 64, FORMAT_INT8_ROW, 0},
        {FORMAT, Q_A, "128", 32 * 16, FORMAT_INT2_ROW, 0},      {FORMAT, Q_A, "128", 32 * 24, FORMAT_INT3_G64, 64},
        {STAMP, Q_A, "int4-row", 0, FORMAT_INT4_ROW, 0},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct made_model made;
        struct open_model m;
        struct alloc alloc = {0};
        struct err err;
        made_model_tiny(&made);
        apply(&made, ways[i].damage, ways[i].tensor, ways[i].text, ways[i].number);
        if (!open_made(&made, &m, &alloc, &err)) fail_msg("way %zu: %s", i, err.text);
        const struct weight_source *source = &m.inventory.layers[1].role[ROLE_Q_A];
        assert_int_equal(source->format, ways[i].format);
        assert_int_equal(source->group, ways[i].group);
        assert_int_equal(source->rows, 32);
        assert_int_equal(source->columns, 64);
        close_model(&m);
    }
}

/* A packed pair of the tiny model becomes one tensor of a checkpoint. */
static void unpack(struct made_model *made, const char *name, const char *dtype, uint64_t rows, uint64_t columns,
                   uint64_t element_bytes)
{
    char scales[256];
    struct made_tensor *t = made_find(made, name);
    made_resize(t, rows * columns * element_bytes);
    t->dtype = dtype;
    t->rank = 2;
    t->shape[0] = rows;
    t->shape[1] = columns;
    snprintf(scales, sizeof scales, "%s.qs", name);
    made_drop(made, scales);
}

static void checkpoint_dtypes_are_accepted_for_every_class(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        uint64_t bytes;
        enum weight_format format;
    } kinds[] = {{"F32", 4, FORMAT_F32}, {"F16", 2, FORMAT_F16}, {"BF16", 2, FORMAT_BF16}};
    for (size_t k = 0; k < 3; k++) {
        struct made_model made;
        struct open_model m;
        struct alloc alloc = {0};
        struct err err;
        made_model_tiny(&made);
        unpack(&made, "model.embed_tokens.weight", kinds[k].dtype, 40, 64, kinds[k].bytes);
        unpack(&made, "lm_head.weight", kinds[k].dtype, 40, 64, kinds[k].bytes);
        unpack(&made, EXPERT, kinds[k].dtype, 64, 32, kinds[k].bytes);
        apply(&made, DTYPE, NORM, kinds[k].dtype, (int64_t)kinds[k].bytes);
        apply(&made, DTYPE, ROUTER, kinds[k].dtype, (int64_t)kinds[k].bytes);
        apply(&made, DTYPE, "model.layers.0.self_attn.indexer.k_norm.bias", kinds[k].dtype, (int64_t)kinds[k].bytes);
        if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s: %s", kinds[k].dtype, err.text);
        assert_int_equal(m.inventory.model[MODEL_EMBED].format, kinds[k].format);
        assert_int_equal(m.inventory.layers[1].experts[2][EXPERT_DOWN].format, kinds[k].format);
        assert_int_equal(m.inventory.layers[1].role[ROLE_INPUT_NORM].format, kinds[k].format);
        assert_int_equal(m.inventory.layers[1].role[ROLE_ROUTER].format, kinds[k].format);
        assert_int_equal(m.inventory.dsa, CAPABILITY_PRESENT);
        close_model(&m);
        assert_int_equal(alloc.live, 0);
    }
}

static void fp8_needs_its_block_scales(void **state)
{
    (void)state;
    static const struct {
        const char *name, *dtype;
        uint64_t rows, columns;
        const char *says;
    } scales[] = {
        {NULL, NULL, 0, 0, "is F8_E4M3, but its scales '" Q_A "_scale_inv' are missing"},
        {Q_A "_scale_inv", "F32", 1, 1, NULL},
        {Q_A "_scale_inv", "F32", 1, 2, "has shape [1, 2], config.json asks for [1, 1]"},
        {Q_A "_scale_inv", "BF16", 1, 1, "is BF16, scales must be F32"},
    };
    for (size_t i = 0; i < 4; i++) {
        struct made_model made;
        struct open_model m;
        struct alloc alloc = {0};
        struct err err;
        const uint64_t shape[2] = {scales[i].rows, scales[i].columns};
        made_model_tiny(&made);
        unpack(&made, Q_A, "F8_E4M3", 32, 64, 1);
        if (scales[i].name)
            made_resize(made_add(&made, 0, scales[i].name, scales[i].dtype, 2, shape, 0),
                        shape[0] * shape[1] * (strcmp(scales[i].dtype, "F32") == 0 ? 4 : 2));
        bool ok = open_made(&made, &m, &alloc, &err);
        if (ok != !scales[i].says || (!ok && !strstr(err.text, scales[i].says)))
            fail_msg("scales %zu: %s", i, ok ? "accepted" : err.text);
        close_model(&m);
    }
}

/* --- capabilities --- */

static void the_whole_tiny_model_has_everything(void **state)
{
    (void)state;
    struct made_model made;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err;
    made_model_tiny(&made);
    size_t n_tensors = made.n_tensors;
    uint64_t bytes = 0;
    for (size_t i = 0; i < made.n_tensors; i++) bytes += made.tensors[i].bytes;
    if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s", err.text);
    assert_int_equal(m.inventory.dsa, CAPABILITY_PRESENT);
    assert_int_equal(m.inventory.mtp, CAPABILITY_PRESENT);
    assert_false(m.inventory.mtp_is_degraded);
    assert_false(m.inventory.mtp_has_indexer);
    assert_string_equal(m.inventory.dsa_reason, "");
    assert_string_equal(m.inventory.mtp_reason, "");
    assert_int_equal(m.inventory.n_full_indexers, 2);
    assert_int_equal(m.inventory.n_routed_experts, 3 * 3 + 3);
    /* 2 + 5 per layer and MTP + dense 3 + 4 times (3 shared + 9 expert) + eh_proj + 2 * 3 of indexers */
    assert_int_equal(m.inventory.n_quantised, 2 + 5 * 5 + 3 + 4 * 12 + 1 + 6);
    assert_int_equal(m.inventory.n_ignored, 0);
    assert_null(m.inventory.ignored_tensor);
    assert_int_equal(m.inventory.bytes, bytes);
    for (size_t i = 0; i < n_tensors; i++) assert_true(m.inventory.is_used[i]);
    close_model(&m);
    assert_int_equal(alloc.live, 0);
}

#define IDX0 "model.layers.0.self_attn.indexer."
#define MTP "model.layers.4."

static const struct {
    enum damage damage;
    const char *tensor, *text;
    int64_t number;
    enum capability dsa, mtp;
    bool is_degraded;
    const char *says; /* part of the reason of whichever is not as it was */
    uint32_t n_ignored;
} partial[] = {
    {DROP, IDX0 "wk.weight", NULL, 0, CAPABILITY_REFUSED, CAPABILITY_PRESENT, false, IDX0 "wk.weight' is missing", 14},
    {DROP, "model.layers.2.self_attn.indexer.k_norm.bias", NULL, 0, CAPABILITY_REFUSED, CAPABILITY_PRESENT, false,
     "model.layers.2.self_attn.indexer.k_norm.bias' is missing", 15},
    {DROP, IDX0 "wq_b.weight", NULL, 0, CAPABILITY_REFUSED, CAPABILITY_PRESENT, false, "wq_b.weight' is missing", 14},
    {BYTES, IDX0 "wk.weight", NULL, 1, CAPABILITY_REFUSED, CAPABILITY_PRESENT, false, "fit no format", 16},
    {DTYPE, IDX0 "k_norm.weight", "U8", 1, CAPABILITY_REFUSED, CAPABILITY_PRESENT, false, "must be F32", 16},
    {CONFIG, "\"index_head_dim\": 8", "\"index_head_dim\": 16", 0, CAPABILITY_REFUSED, CAPABILITY_PRESENT, false,
     "wq_b.weight': ", 16},
    {DROP, MTP "eh_proj.weight", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_REFUSED, false, "eh_proj.weight' is missing",
     0},
    {DROP, MTP "shared_head.norm.weight", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_REFUSED, false, "shared_head.norm",
     0},
    {DROP, MTP "mlp.experts.1.up_proj.weight", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_REFUSED, false, "experts.1.up",
     0},
    {DROP, MTP "mlp.experts.2.gate_proj.weight.qs", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_REFUSED, false, ".qs", 0},
    {DTYPE, MTP "enorm.weight", "I8", 1, CAPABILITY_PRESENT, CAPABILITY_REFUSED, false, "must be F32", 0},
    {FORMAT, MTP "eh_proj.weight", "256", 64 * 64, CAPABILITY_PRESENT, CAPABILITY_PRESENT, true,
     "degraded: eh_proj.weight is int4-row", 0},
    {FORMAT, MTP "self_attn.q_a_proj.weight", "256", 32 * 32, CAPABILITY_PRESENT, CAPABILITY_PRESENT, true,
     "q_a_proj.weight is int4-grouped", 0},
    {FORMAT, MTP "mlp.experts.0.up_proj.weight", "128", 32 * 32, CAPABILITY_PRESENT, CAPABILITY_PRESENT, false, "", 0},
    {CONFIG, "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 0", 0, CAPABILITY_PRESENT,
     CAPABILITY_ABSENT, false, "the tensors of that layer are ignored", 0},
    {CONFIG, "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 3", 0, CAPABILITY_PRESENT,
     CAPABILITY_ABSENT, false, "num_nextn_predict_layers", 0},
    {ADD, "model.layers.1.self_attn.indexer.wk.weight", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_PRESENT, false, "", 1},
    {ADD, "model.layers.1.self_attn.indexer.k_norm.bias", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_PRESENT, false, "",
     1},
    {ADD, MTP "self_attn.indexer.wk.weight", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_PRESENT, false,
     "its own indexer is ignored", 1},
    {ADD, "model.layers.0.self_attn.rotary_emb.inv_freq", NULL, 0, CAPABILITY_PRESENT, CAPABILITY_PRESENT, false, "",
     1},
    {ADD, "something.else", "I8", 0, CAPABILITY_PRESENT, CAPABILITY_PRESENT, false, "", 1},
};

static bool made_has_scales(const struct made_model *made, const char *name)
{
    for (size_t i = 0; i < made->n_tensors; i++)
        if (strncmp(made->tensors[i].name, name, strlen(name)) == 0 &&
            strcmp(made->tensors[i].name + strlen(name), ".qs") == 0)
            return true;
    return false;
}

static void partial_capabilities_are_never_half_enabled(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof partial / sizeof *partial; i++) {
        struct made_model made;
        struct open_model m;
        struct alloc alloc = {0};
        struct err err;
        made_model_tiny(&made);
        apply(&made, partial[i].damage, partial[i].tensor, partial[i].text, partial[i].number);
        /* A matrix goes with its scales: alone they would be refused as strays. */
        if (partial[i].damage == DROP && made_has_scales(&made, partial[i].tensor)) {
            char scales[256];
            snprintf(scales, sizeof scales, "%s.qs", partial[i].tensor);
            made_drop(&made, scales);
        }
        if (!open_made(&made, &m, &alloc, &err)) fail_msg("partial %zu (%s): %s", i, partial[i].tensor, err.text);
        const struct inventory *v = &m.inventory;
        const char *reason = v->dsa != CAPABILITY_PRESENT ? v->dsa_reason : v->mtp_reason;
        if (v->dsa != partial[i].dsa || v->mtp != partial[i].mtp || v->mtp_is_degraded != partial[i].is_degraded ||
            !strstr(reason, partial[i].says))
            fail_msg("partial %zu (%s): dsa %d, mtp %d, '%s'", i, partial[i].tensor, v->dsa, v->mtp, reason);
        assert_int_equal(v->n_full_indexers, v->dsa == CAPABILITY_PRESENT ? 2 : 0);
        assert_int_equal(v->n_routed_experts, v->mtp == CAPABILITY_PRESENT ? 12 : 9);
        if (v->mtp == CAPABILITY_PRESENT) assert_int_equal(v->n_ignored, partial[i].n_ignored);
        for (int r = 0; r < ROLE_COUNT; r++) {
            if (v->dsa != CAPABILITY_PRESENT && r >= ROLE_INDEX_Q && r <= ROLE_INDEX_K_NORM_BIAS)
                for (uint32_t l = 0; l <= 4; l++) assert_null(v->layers[l].role[r].payload);
            if (v->mtp != CAPABILITY_PRESENT) assert_null(v->layers[4].role[r].payload);
        }
        assert_true(!!v->layers[4].experts == (v->mtp == CAPABILITY_PRESENT));
        close_model(&m);
        assert_int_equal(alloc.live, 0);
    }
}

static void absent_capabilities_say_so(void **state)
{
    (void)state;
    struct made_model made;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err;
    made_model_init(&made, made_tiny_config, 0, 3, 0, 0);
    if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s", err.text);
    assert_int_equal(m.inventory.dsa, CAPABILITY_ABSENT);
    assert_int_equal(m.inventory.mtp, CAPABILITY_ABSENT);
    assert_non_null(strstr(m.inventory.dsa_reason, "no indexer tensors for the 2 full layers; attention is dense"));
    assert_non_null(strstr(m.inventory.mtp_reason, "no tensors of the MTP layer 4"));
    assert_int_equal(m.inventory.n_full_indexers, 0);
    assert_int_equal(m.inventory.n_routed_experts, 9);
    close_model(&m);

    /* the index of a checkpoint knows which file would have it */
    made_model_init(&made, made_tiny_config, 0, 3, 0, 0);
    remove_tree(folder.path);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    made_write(&made, folder.path);
    made_model_fini(&made);
    const char *index = "{\"weight_map\": {\"model.layers.4.eh_proj.weight\": \"model-mtp.safetensors\"}}";
    put_file(temp_path(&folder, "model.safetensors.index.json"), index, strlen(index));
    if (!open_model(&m, &alloc, file_system_real(), folder.path, false, &err)) fail_msg("%s", err.text);
    assert_non_null(strstr(m.inventory.mtp_reason, "it belongs into model-mtp.safetensors, which is missing"));
    close_model(&m);
    assert_int_equal(alloc.live, 0);
}

static void a_complete_indexer_of_the_mtp_layer_is_accepted(void **state)
{
    (void)state;
    struct made_model made;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err;
    static const char *const names[] = {"wq_b.weight",   "wq_b.weight.qs",      "wk.weight",
                                        "wk.weight.qs",  "weights_proj.weight", "weights_proj.weight.qs",
                                        "k_norm.weight", "k_norm.bias"};
    made_model_tiny(&made);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[128], to[128];
        snprintf(from, sizeof from, "model.layers.0.self_attn.indexer.%s", names[i]);
        snprintf(to, sizeof to, "model.layers.4.self_attn.indexer.%s", names[i]);
        const struct made_tensor *t = made_find(&made, from);
        uint64_t bytes = t->bytes;
        made_resize(made_add(&made, t->shard, to, t->dtype, t->rank, t->shape, 0), bytes);
    }
    if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s", err.text);
    assert_true(m.inventory.mtp_has_indexer);
    assert_string_equal(m.inventory.mtp_reason, "");
    assert_non_null(m.inventory.layers[4].role[ROLE_INDEX_K_NORM_BIAS].payload);
    assert_int_equal(m.inventory.n_full_indexers, 2);
    assert_int_equal(m.inventory.n_ignored, 0);
    close_model(&m);
    assert_int_equal(alloc.live, 0);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct made_model made;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err = {0};
    made_model_tiny(&made);
    if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s", err.text);
    for (uint64_t k = 1;; k++) {
        struct alloc faulty = {.fail_at = k};
        struct inventory inventory;
        bool ok = inventory_build(&inventory, &faulty, &m.config, &m.catalogue, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (ok) inventory_fini(&inventory);
        assert_int_equal(faulty.live, 0);
        if (!ok) continue;
        assert_true(k > 1);
        break;
    }
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_cores_are_refused),
        cmocka_unit_test(every_supported_format_is_resolved),
        cmocka_unit_test(checkpoint_dtypes_are_accepted_for_every_class),
        cmocka_unit_test(fp8_needs_its_block_scales),
        cmocka_unit_test(the_whole_tiny_model_has_everything),
        cmocka_unit_test(partial_capabilities_are_never_half_enabled),
        cmocka_unit_test(absent_capabilities_say_so),
        cmocka_unit_test(a_complete_indexer_of_the_mtp_layer_is_accepted),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
