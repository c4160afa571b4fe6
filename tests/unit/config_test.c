#include "fmt/config.h"
#include "support/check.h"

#include <stdlib.h>
#include <unistd.h>

/* GLM-5.2's own values, one pair per key, so that a case can change, drop or add one. */
static const char *const glm52[][2] = {
    {"architectures", "[\"GlmMoeDsaForCausalLM\"]"},
    {"model_type", "\"glm_moe_dsa\""},
    {"hidden_size", "6144"},
    {"num_hidden_layers", "78"},
    {"first_k_dense_replace", "3"},
    {"moe_layer_freq", "1"},
    {"intermediate_size", "12288"},
    {"moe_intermediate_size", "2048"},
    {"n_routed_experts", "256"},
    {"num_experts_per_tok", "8"},
    {"n_shared_experts", "1"},
    {"scoring_func", "\"sigmoid\""},
    {"topk_method", "\"noaux_tc\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2.5"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"num_attention_heads", "64"},
    {"num_key_value_heads", "64"},
    {"q_lora_rank", "2048"},
    {"kv_lora_rank", "512"},
    {"qk_nope_head_dim", "192"},
    {"qk_rope_head_dim", "64"},
    {"qk_head_dim", "256"},
    {"v_head_dim", "256"},
    {"head_dim", "192"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"rope_parameters", "{\"rope_theta\": 8000000, \"rope_type\": \"default\"}"},
    {"rope_interleave", "true"},
    {"indexer_rope_interleave", "true"},
    {"max_position_embeddings", "1048576"},
    {"rms_norm_eps", "1e-05"},
    {"hidden_act", "\"silu\""},
    {"vocab_size", "154880"},
    {"tie_word_embeddings", "false"},
    {"eos_token_id", "[154820, 154827, 154829]"},
    {"bos_token_id", "null"},
    {"index_topk", "2048"},
    {"index_n_heads", "32"},
    {"index_head_dim", "128"},
    {"index_topk_freq", "4"},
    {"index_skip_topk_offset", "3"},
    {"index_topk_pattern", "null"},
    {"index_share_for_mtp_iteration", "true"},
    {"num_nextn_predict_layers", "1"},
    {"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}"},
};

enum { GLM52_KEYS = sizeof glm52 / sizeof *glm52, CHANGES_MAX = 8 };

struct change {
    const char *key, *value; /* value NULL: the key is dropped */
};

/* The text of glm52 with some changes; a key it does not have is added. */
static size_t write_config(char *out, size_t room, const struct change *changes, size_t n)
{
    size_t used = (size_t)snprintf(out, room, "{");
    const char *comma = "";
    for (size_t k = 0; k < GLM52_KEYS + n; k++) {
        const char *key = k < GLM52_KEYS ? glm52[k][0] : changes[k - GLM52_KEYS].key;
        const char *value = k < GLM52_KEYS ? glm52[k][1] : changes[k - GLM52_KEYS].value;
        for (size_t c = 0; k < GLM52_KEYS && c < n; c++)
            if (strcmp(changes[c].key, key) == 0) value = NULL; /* comes at the end */
        if (!value) continue;
        used += (size_t)snprintf(out + used, room - used, "%s\"%s\": %s", comma, key, value);
        comma = ", ";
    }
    used += (size_t)snprintf(out + used, room - used, "}");
    assert_true(used < room);
    return used;
}

static bool parse_with(struct config *config, const struct change *changes, size_t n, struct err *err)
{
    static char text[1 << 16];
    *err = (struct err){0};
    return config_parse(config, "config.json", text, write_config(text, sizeof text, changes, n), err);
}

static void glm52_is_read_as_the_specification_says(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    if (!parse_with(&c, NULL, 0, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.hidden, 6144);
    assert_int_equal(c.n_layers, 78);
    assert_int_equal(c.n_experts, 256);
    assert_int_equal(c.nope_dim + c.rope_dim, 256);
    assert_int_equal(c.value_dim, 256);
    assert_true(c.rope_theta == 8e6f);
    assert_true(c.rms_eps == 1e-5f);
    assert_true(c.latent_eps == 1e-5f);
    assert_true(c.router_scale == 2.5f);
    assert_true(c.normalise_router);
    assert_true(c.declares_mtp);
    assert_true(c.index_share_for_mtp);
    assert_int_equal(c.mtp_chain, MTP_CHAIN_NORMED);
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos[0], 154820);
    assert_int_equal(c.eos[2], 154829);

    /* The positions are what matters: offset 2 would give another 21. */
    uint32_t n_full = 0;
    for (uint32_t i = 0; i < 78; i++) {
        bool full = i < 3 || (i >= 6 && (i - 6) % 4 == 0);
        assert_int_equal(c.is_full[i], full);
        assert_int_equal(c.is_sparse[i], i >= 3);
        n_full += c.is_full[i];
    }
    assert_int_equal(n_full, 21);
    assert_true(c.is_full[78]);
    assert_true(c.is_sparse[78]);
}

static void refusals_name_the_key(void **state)
{
    (void)state;
    static const struct {
        struct change change;
        const char *says;
    } cases[] = {
        {{"model_type", "\"deepseek_v32\""}, "model_type is \"deepseek_v32\""},
        {{"architectures", "[\"GlmForCausalLM\"]"}, "architectures is"},
        {{"hidden_size", NULL}, "hidden_size is missing"},
        {{"hidden_size", "null"}, "hidden_size is missing"},
        {{"hidden_size", "0"}, "hidden_size is 0"},
        {{"hidden_size", "-1"}, "hidden_size is -1"},
        {{"hidden_size", "1048577"}, "hidden_size is 1048577"},
        {{"hidden_size", "99999999999999999999999"}, "hidden_size is"},
        {{"hidden_size", "6144.0"}, "hidden_size must be a whole number"},
        {{"hidden_size", "\"6144\""}, "hidden_size must be a whole number"},
        {{"num_hidden_layers", "129"}, "num_hidden_layers is 129"},
        {{"vocab_size", NULL}, "vocab_size is missing"},
        {{"intermediate_size", NULL}, "intermediate_size is missing"},
        {{"moe_intermediate_size", NULL}, "moe_intermediate_size is missing"},
        {{"n_routed_experts", NULL}, "n_routed_experts is missing"},
        {{"n_routed_experts", "4097"}, "n_routed_experts is 4097"},
        {{"num_experts", "255"}, "num_experts is 255"},
        {{"num_experts_per_tok", "65"}, "num_experts_per_tok is 65"},
        {{"n_shared_experts", "0"}, "n_shared_experts is 0"},
        {{"scoring_func", "\"softmax\""}, "scoring_func is \"softmax\""},
        {{"topk_method", "\"greedy\""}, "topk_method is \"greedy\""},
        {{"routed_scaling_factor", NULL}, "routed_scaling_factor is missing"},
        {{"routed_scaling_factor", "0"}, "routed_scaling_factor is 0"},
        {{"norm_topk_prob", "1"}, "norm_topk_prob must be true or false"},
        {{"n_group", "3"}, "n_group is 3"},
        {{"n_group", "256"}, "n_group is 256"},
        {{"topk_group", "2"}, "topk_group is 2"},
        {{"qk_head_dim", "192"}, "qk_head_dim is 192"},
        {{"qk_rope_head_dim", "63"}, "qk_head_dim is 256"},
        {{"index_head_dim", "32"}, "more than the index_head_dim of 32"},
        {{"index_head_dim", "257"}, "index_head_dim is 257"},
        {{"index_topk", NULL}, "index_topk is missing"},
        {{"mlp_bias", "true"}, "mlp_bias is true"},
        {{"tie_word_embeddings", "true"}, "tie_word_embeddings is true"},
        {{"hidden_act", "\"gelu\""}, "hidden_act is \"gelu\""},
        {{"rms_norm_eps", NULL}, "rms_norm_eps is missing"},
        {{"rms_norm_eps", "0"}, "rms_norm_eps is 0"},
        {{"rms_norm_eps", "1e999"}, "rms_norm_eps is"},
        {{"latent_norm_eps", "-1"}, "latent_norm_eps is -1"},
        {{"rope_parameters", NULL}, "rope_theta is missing"},
        {{"rope_parameters", "{\"rope_type\": \"default\"}"}, "rope_theta is missing"},
        {{"rope_parameters", "{\"rope_theta\": 8e6, \"rope_type\": \"yarn\"}"}, "rope_type is \"yarn\""},
        {{"rope_scaling", "{\"type\": \"linear\", \"factor\": 2}"}, "type is \"linear\""},
        {{"rope_theta", "10000"}, "rope_theta is 10000, but"},
        {{"rope_interleave", "false"}, "rope_interleave is false"},
        {{"indexer_rope_interleave", "false"}, "indexer_rope_interleave is false"},
        {{"first_k_dense_replace", "79"}, "first_k_dense_replace is 79"},
        {{"first_k_dense_replace", NULL}, "neither first_k_dense_replace nor mlp_layer_types"},
        {{"moe_layer_freq", "2"}, "moe_layer_freq is 2"},
        {{"mlp_layer_types", "[\"dense\"]"}, "mlp_layer_types must be a list of 78 words"},
        {{"indexer_types", "[\"full\"]"}, "indexer_types must be a list of 78 words"},
        {{"indexer_types", "\"full\""}, "indexer_types must be a list of 78 words"},
        {{"index_topk_pattern", "\"FFS\""}, "index_topk_pattern must be 78 letters"},
        {{"index_topk_freq", "0"}, "index_topk_freq is 0"},
        {{"index_skip_topk_offset", "-1"}, "index_skip_topk_offset is -1"},
        {{"eos_token_id", "154880"}, "eos_token_id is 154880"},
        {{"eos_token_id", "[1, \"2\"]"}, "eos_token_id must be a whole number"},
        {{"eos_token_id", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"}, "more than 16 ids"},
        {{"mtp_chain", "\"raw\""}, "mtp_chain is \"raw\""},
        {{"mtp_chain", "7"}, "mtp_chain is 7"},
        {{"hidden_size", "6144, \"hidden_size\": 6144"}, "key 'hidden_size' is given twice"},
        {{"extra", "{\"a\": 1, \"a\": 2}"}, "key 'a' is given twice"},
        {{"extra", "NaN"}, "byte"},
        {{"extra", "Infinity"}, "byte"},
        {{"extra", "'x'"}, "byte"},
        {{"extra", "1 /* why */"}, "byte"},
        {{"extra", "01"}, "leading zero"},
        {{"extra", "[1,]"}, "byte"},
        {{"extra", "\"\\ud800\""}, "surrogate"},
        {{"extra", "\"\\u0000\""}, "NUL"},
        {{"extra", "\"\xff\""}, "not UTF-8"},
        {{"extra", "\"\xc0\xaf\""}, "not UTF-8"},
        {{"extra", "\"\xed\xa0\x80\""}, "not UTF-8"},
        {{"extra", "\"a\tb\""}, "control character"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        struct err err;
        bool ok = parse_with(&c, &cases[i].change, 1, &err);
        if (ok || err.kind != ERR_DATA || !strstr(err.text, cases[i].says))
            fail_msg("%s = %s: expected a refusal with \"%s\", got %s \"%s\"", cases[i].change.key,
                     cases[i].change.value ? cases[i].change.value : "(none)", cases[i].says,
                     ok ? "success" : "refusal", err.text);
        assert_non_null(strstr(err.text, "config.json"));
    }
}

static void odd_rotation_widths_are_refused(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    const struct change changes[] = {{"qk_rope_head_dim", "63"}, {"qk_head_dim", "255"}};
    assert_false(parse_with(&c, changes, 2, &err));
    assert_non_null(strstr(err.text, "must be even"));
}

static void defaults_and_aliases(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    const struct change changes[] = {{"n_routed_experts", NULL}, {"num_local_experts", "256"},
                                     {"norm_topk_prob", NULL},   {"n_group", NULL},
                                     {"topk_group", NULL},       {"rope_theta", "8e6"},
                                     {"eos_token_id", "7"},      {"mtp_chain", "\"block_output\""}};
    if (!parse_with(&c, changes, CHANGES_MAX, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.n_experts, 256);
    assert_true(c.normalise_router);
    assert_int_equal(c.n_expert_groups, 1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 7);
    assert_int_equal(c.mtp_chain, MTP_CHAIN_BLOCK_OUTPUT);

    const struct change more[] = {{"rope_parameters", NULL},   {"rope_theta", "10000.0"},
                                  {"latent_norm_eps", "1e-6"}, {"rope_interleave", NULL},
                                  {"attention_bias", "true"},  {"num_nextn_predict_layers", "2"}};
    if (!parse_with(&c, more, 6, &err)) fail_msg("%s", err.text);
    assert_true(c.rope_theta == 1e4f);
    assert_true(c.latent_eps == 1e-6f);
    assert_true(c.attention_bias);
    assert_false(c.declares_mtp);
}

static void schedules_agree_or_are_refused(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    const struct change small = {"num_hidden_layers", "4"};
    const struct {
        const char *types, *pattern, *freq, *offset;
        const char *want; /* letters, or NULL and then `says` */
        const char *says;
    } cases[] = {
        {NULL, NULL, NULL, NULL, "FFFF", NULL},
        {NULL, NULL, "2", NULL, "FFSF", NULL},
        {NULL, NULL, "2", "3", "FFFS", NULL},
        {NULL, NULL, "4", "0", NULL, "makes layer 0 shared"},
        {NULL, "\"FSSF\"", NULL, NULL, "FSSF", NULL},
        {NULL, "[\"F\",\"S\",\"shared\",\"full\"]", NULL, NULL, "FSSF", NULL},
        {NULL, "\"fssf\"", NULL, NULL, NULL, "4 letters F or S"},
        {NULL, "\"SFFF\"", NULL, NULL, NULL, "layer 0 shared"},
        {"[\"full\",\"shared\",\"full\",\"shared\"]", NULL, NULL, NULL, "FSFS", NULL},
        {"[\"full\",\"shared\",\"full\",\"both\"]", NULL, NULL, NULL, NULL, "indexer_types[3] is \"both\""},
        {"[\"full\",\"shared\",\"full\",null]", NULL, NULL, NULL, NULL, "indexer_types[3] is null"},
        {"[\"full\",\"shared\",\"full\",\"shared\"]", "\"FSFS\"", NULL, NULL, "FSFS", NULL},
        {"[\"full\",\"shared\",\"full\",\"shared\"]", "\"FSFF\"", NULL, NULL, NULL, "disagree about layer 3"},
        {"[\"full\",\"shared\",\"full\",\"shared\"]", NULL, "2", "1", "FSFS", NULL},
        {"[\"full\",\"shared\",\"full\",\"shared\"]", NULL, "2", "2", NULL, "disagree about layer 1"},
        {"[\"full\",\"shared\",\"full\",\"shared\"]", NULL, "4", NULL, "FSFS", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct change changes[] = {small,
                                         {"indexer_types", cases[i].types},
                                         {"index_topk_pattern", cases[i].pattern},
                                         {"index_topk_freq", cases[i].freq},
                                         {"index_skip_topk_offset", cases[i].offset}};
        bool ok = parse_with(&c, changes, 5, &err);
        if (ok != (cases[i].want != NULL)) fail_msg("schedule %zu: %s", i, ok ? "accepted" : err.text);
        if (ok)
            for (uint32_t l = 0; l < 4; l++)
                if (c.is_full[l] != (cases[i].want[l] == 'F')) fail_msg("schedule %zu, layer %u", i, l);
        if (!ok && !strstr(err.text, cases[i].says)) fail_msg("schedule %zu: %s", i, err.text);
    }
}

static void mlp_kinds_agree_or_are_refused(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    const struct change types = {"mlp_layer_types", "[\"dense\",\"sparse\",\"sparse\",\"sparse\"]"};
    const struct change same[] = {{"num_hidden_layers", "4"}, types, {"first_k_dense_replace", "1"}};
    if (!parse_with(&c, same, 3, &err)) fail_msg("%s", err.text);
    assert_false(c.is_sparse[0]);
    assert_true(c.is_sparse[1]);
    const struct change alone[] = {{"num_hidden_layers", "4"}, types, {"first_k_dense_replace", NULL}};
    if (!parse_with(&c, alone, 3, &err)) fail_msg("%s", err.text);
    assert_true(c.is_sparse[3]);
    const struct change other[] = {{"num_hidden_layers", "4"}, types, {"first_k_dense_replace", "2"}};
    assert_false(parse_with(&c, other, 3, &err));
    assert_non_null(strstr(err.text, "mlp_layer_types[1] disagrees with first_k_dense_replace 2"));
}

/* Cut anywhere, the text is refused and nothing is read behind its end. */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    static char text[1 << 16];
    size_t bytes = write_config(text, sizeof text, NULL, 0);
    for (size_t n = 0; n < bytes; n++) {
        struct config c;
        struct err err = {0};
        char *exact = malloc(n + 1);
        memcpy(exact, text, n);
        assert_false(config_parse(&c, "config.json", exact, n, &err));
        assert_int_equal(err.kind, ERR_DATA);
        free(exact);
    }
}

static void deep_nesting_and_nul_are_refused(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    char deep[512] = {0};
    for (int arrays = 0; arrays < 2; arrays++) {
        size_t used = 0;
        for (int i = 0; i < 80; i++) used += (size_t)sprintf(deep + used, arrays ? "[" : "{\"a\":");
        const struct change change = {"extra", deep};
        assert_false(parse_with(&c, &change, 1, &err));
        assert_non_null(strstr(err.text, "nested too deep"));
    }
    err = (struct err){0};
    assert_false(config_parse(&c, "config.json", "{}\0{}", 5, &err));
    assert_non_null(strstr(err.text, "NUL"));
    assert_false(config_parse(&c, "config.json", "{} {}", 5, &err));
    assert_non_null(strstr(err.text, "something follows"));
}

static void fixtures_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_layers;
        const char *full;
        bool mtp;
    } fixtures[] = {
        {"plain", 4, "FFFF", false},
        {"indexshare", 10, "FFFSSSFSSS", false},
        {"freq-oddsize", 8, "FFFSSSFS", false},
        {"bias", 4, NULL, false},
        {"groups", 4, NULL, false},
        {"mtp", 6, "FFFSSS", true},
        {"fp8", 4, "FFSS", true},
    };
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        char dir[256];
        struct config c;
        struct err err = {0};
        struct alloc alloc = {0};
        snprintf(dir, sizeof dir, "tests/fixtures/glm52-tiny/%s", fixtures[i].name);
        if (!config_read(&c, &alloc, file_system_real(), dir, &err)) fail_msg("%s", err.text);
        assert_int_equal(alloc.live, 0);
        assert_true(c.latent_eps == 1e-6f);
        assert_int_equal(c.declares_mtp, fixtures[i].mtp);
        if (!fixtures[i].full) continue;
        assert_int_equal(c.n_layers, fixtures[i].n_layers);
        for (uint32_t l = 0; l < c.n_layers; l++) assert_int_equal(c.is_full[l], fixtures[i].full[l] == 'F');
    }
}

static void put(const char *dir, const char *name, const char *text, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void generation_config_adds_stops(void **state)
{
    (void)state;
    static char text[1 << 16];
    char dir[] = "/tmp/config_test.XXXXXX", path[512];
    struct config c;
    struct err err = {0};
    struct alloc alloc = {0};
    assert_non_null(mkdtemp(dir));
    put(dir, "config.json", text, write_config(text, sizeof text, NULL, 0));
    if (!config_read(&c, &alloc, file_system_real(), dir, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.n_eos, 3);

    const char *more = "{\"eos_token_id\": [154829, 5], \"temperature\": 1.0}";
    put(dir, "generation_config.json", more, strlen(more));
    if (!config_read(&c, &alloc, file_system_real(), dir, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.n_eos, 4);
    assert_int_equal(c.eos[0], 5);

    put(dir, "generation_config.json", "{", 1);
    assert_false(config_read(&c, &alloc, file_system_real(), dir, &err));
    assert_non_null(strstr(err.text, "generation_config.json"));

    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    unlink(path);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_false(config_read(&c, &alloc, file_system_real(), dir, &err));
    assert_non_null(strstr(err.text, "generation_config.json: cannot open"));
    unlink(path);

    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    assert_false(config_read(&c, &alloc, file_system_real(), dir, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_int_equal(alloc.live, 0);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glm52_is_read_as_the_specification_says),
        cmocka_unit_test(refusals_name_the_key),
        cmocka_unit_test(odd_rotation_widths_are_refused),
        cmocka_unit_test(defaults_and_aliases),
        cmocka_unit_test(schedules_agree_or_are_refused),
        cmocka_unit_test(mlp_kinds_agree_or_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(deep_nesting_and_nul_are_refused),
        cmocka_unit_test(fixtures_are_read),
        cmocka_unit_test(generation_config_adds_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
