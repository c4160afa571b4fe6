#include "fmt/config.h"

#include "fmt/json_scan.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_BYTES_MAX = 512,
    WIDTH_MAX = 1 << 24, /* of any matrix */
    EXPERTS_MAX = 4096,
};

/* One file while it is read. The first refusal wins and everything after it is a no-op, so that the reading code can be
 * a list of facts instead of a list of branches. */
struct reader {
    const char *name;
    struct json_object *root;
    struct err *err;
    bool ok;
};

static void refuse(struct reader *reader, const char *format, ...) PRINTF_LIKE(2, 3);
static void refuse(struct reader *reader, const char *format, ...)
{
    char text[512];
    va_list args;
    if (!reader->ok) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_set(reader->err, ERR_DATA, "%s: %s", reader->name, text);
    reader->ok = false;
}

/* --- the document --- */

/* Checks the grammar of an object and refuses a key that comes twice: a tree would silently keep the last one. */
static bool check_object(struct json_scan *scan, uint32_t depth, struct err *err)
{
    char key[KEY_BYTES_MAX];
    bool first = true, more;
    struct json_object *seen = json_object_new_object();
    if (!seen) return err_set(err, ERR_NOMEM, "%s: out of memory", scan->name);
    if (depth == JSON_DEPTH_MAX) {
        json_scan_fail(scan, err, "nested too deep (limit 64)");
        goto fail;
    }
    if (!json_scan_mark(scan, '{', err)) goto fail;
    for (;;) {
        if (!json_scan_next(scan, '}', &first, &more, err)) goto fail;
        if (!more) break;
        if (!json_scan_key(scan, key, sizeof key, err)) goto fail;
        if (json_object_object_get_ex(seen, key, NULL)) {
            err_set(err, ERR_DATA, "%s: byte %zu: key '%.100s' is given twice", scan->name, scan->origin + scan->at,
                    key);
            goto fail;
        }
        if (json_object_object_add(seen, key, NULL) != 0) {
            err_set(err, ERR_NOMEM, "%s: out of memory", scan->name);
            goto fail;
        }
        bool is_object = json_scan_peek(scan) == '{';
        if (is_object && !check_object(scan, depth + 1, err)) goto fail;
        if (!is_object && !json_scan_skip(scan, err)) goto fail;
    }
    json_object_put(seen);
    return true;
fail:
    json_object_put(seen);
    return false;
}

static bool reader_init(struct reader *reader, const char *name, const char *json, size_t bytes, struct err *err)
{
    struct json_scan scan;
    *reader = (struct reader){.name = name, .err = err, .ok = true};
    if (bytes > CONFIG_BYTES_MAX)
        return err_set(err, ERR_DATA, "%s: %zu bytes, more than the limit of %d", name, bytes, CONFIG_BYTES_MAX);
    if (!json_scan_init(&scan, name, json, bytes, 0, err)) return false;
    if (!check_object(&scan, 0, err)) return false;
    if (!json_scan_end(&scan, err)) return false;

    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
    if (!tokener) return err_set(err, ERR_NOMEM, "%s: out of memory", name);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    reader->root = json_tokener_parse_ex(tokener, json, (int)bytes);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    if (error != json_tokener_success) return err_set(err, ERR_DATA, "%s: %s", name, json_tokener_error_desc(error));
    return true;
}

static void reader_fini(struct reader *reader)
{
    json_object_put(reader->root);
    reader->root = NULL;
}

/* NULL when the key is absent or null, which mean the same in these files. */
static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

/* --- values --- */

static bool as_whole(struct reader *reader, const char *key, struct json_object *value, uint32_t least, uint32_t most,
                     uint32_t *out)
{
    if (!json_object_is_type(value, json_type_int)) {
        refuse(reader, "%s must be a whole number, not %.60s", key, json_object_to_json_string(value));
        return false;
    }
    int64_t number = json_object_get_int64(value);
    if (number < (int64_t)least || number > (int64_t)most) {
        refuse(reader, "%s is %" PRId64 ", supported are %" PRIu32 " to %" PRIu32, key, number, least, most);
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

static bool whole_if_given(struct reader *reader, const char *key, uint32_t least, uint32_t most, uint32_t *out)
{
    struct json_object *value = member(reader->root, key);
    return value && as_whole(reader, key, value, least, most, out);
}

static void whole(struct reader *reader, const char *key, uint32_t least, uint32_t most, uint32_t *out)
{
    if (!member(reader->root, key))
        refuse(reader, "%s is missing", key);
    else
        whole_if_given(reader, key, least, most, out);
}

static bool positive(struct reader *reader, const char *key, struct json_object *value, float *out)
{
    if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int)) {
        refuse(reader, "%s must be a number, not %.60s", key, json_object_to_json_string(value));
        return false;
    }
    *out = (float)json_object_get_double(value);
    if (isfinite(*out) && *out > 0) return true;
    refuse(reader, "%s is %.60s, it must be above 0 and finite", key, json_object_to_json_string(value));
    return false;
}

static void flag(struct reader *reader, const char *key, bool without, bool *out)
{
    struct json_object *value = member(reader->root, key);
    *out = without;
    if (!value) return;
    if (!json_object_is_type(value, json_type_boolean))
        refuse(reader, "%s must be true or false, not %.60s", key, json_object_to_json_string(value));
    else
        *out = json_object_get_boolean(value);
}

/* For switches of the architecture that have one supported setting. */
static void flag_must_be(struct reader *reader, const char *key, bool must, const char *why)
{
    bool value;
    flag(reader, key, must, &value);
    if (value != must) refuse(reader, "%s is %s, which is not supported: %s", key, value ? "true" : "false", why);
}

static void word_must_be(struct reader *reader, struct json_object *object, const char *key, const char *must)
{
    struct json_object *value = member(object, key);
    if (!value) return;
    if (!json_object_is_type(value, json_type_string) || strcmp(json_object_get_string(value), must) != 0)
        refuse(reader, "%s is %.60s, supported is only \"%s\"", key, json_object_to_json_string(value), must);
}

/* --- which model --- */

static void read_kind(struct reader *reader)
{
    struct json_object *type = member(reader->root, "model_type"), *list = member(reader->root, "architectures");
    if (!type && !list) refuse(reader, "neither model_type nor architectures says which model this is");
    word_must_be(reader, reader->root, "model_type", "glm_moe_dsa");
    if (!list) return;
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != 1 ||
        !json_object_is_type(json_object_array_get_idx(list, 0), json_type_string) ||
        strcmp(json_object_get_string(json_object_array_get_idx(list, 0)), "GlmMoeDsaForCausalLM") != 0)
        refuse(reader, "architectures is %.100s, supported is only [\"GlmMoeDsaForCausalLM\"]",
               json_object_to_json_string(list));
}

/* --- sizes --- */

static void read_sizes(struct reader *reader, struct config *config)
{
    static const struct {
        const char *key;
        size_t at;
        uint32_t most;
    } sizes[] = {
        {"vocab_size", offsetof(struct config, vocab), 1 << 24},
        {"hidden_size", offsetof(struct config, hidden), 1 << 20},
        {"num_hidden_layers", offsetof(struct config, n_layers), CONFIG_LAYERS_MAX},
        {"intermediate_size", offsetof(struct config, dense_inner), WIDTH_MAX},
        {"moe_intermediate_size", offsetof(struct config, expert_inner), WIDTH_MAX},
        {"num_experts_per_tok", offsetof(struct config, n_experts_per_token), 64},
        {"n_shared_experts", offsetof(struct config, n_shared_experts), 64},
        {"num_attention_heads", offsetof(struct config, n_heads), 1024},
        {"q_lora_rank", offsetof(struct config, q_rank), 1 << 20},
        {"kv_lora_rank", offsetof(struct config, kv_rank), 1 << 20},
        {"qk_nope_head_dim", offsetof(struct config, nope_dim), 1 << 16},
        {"qk_rope_head_dim", offsetof(struct config, rope_dim), 1 << 16},
        {"v_head_dim", offsetof(struct config, value_dim), 1 << 16},
        {"index_topk", offsetof(struct config, index_topk), 1 << 20},
        {"index_n_heads", offsetof(struct config, index_n_heads), 1024},
        {"index_head_dim", offsetof(struct config, index_head_dim), 256},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        whole(reader, sizes[i].key, 1, sizes[i].most, (uint32_t *)((char *)config + sizes[i].at));
}

static void read_experts(struct reader *reader, struct config *config)
{
    static const char *const aliases[] = {"n_routed_experts", "num_experts", "num_local_experts"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        uint32_t n;
        if (!whole_if_given(reader, aliases[i], 1, EXPERTS_MAX, &n)) continue;
        if (found && n != config->n_experts)
            refuse(reader, "%s is %" PRIu32 " but %s is %" PRIu32, found, config->n_experts, aliases[i], n);
        if (found) continue;
        found = aliases[i];
        config->n_experts = n;
    }
    if (!found) refuse(reader, "n_routed_experts is missing");

    config->n_expert_groups = config->n_expert_groups_kept = 1;
    whole_if_given(reader, "n_group", 1, EXPERTS_MAX, &config->n_expert_groups);
    whole_if_given(reader, "topk_group", 1, EXPERTS_MAX, &config->n_expert_groups_kept);
    flag(reader, "norm_topk_prob", true, &config->normalise_router);
    struct json_object *scale = member(reader->root, "routed_scaling_factor");
    if (!scale)
        refuse(reader, "routed_scaling_factor is missing");
    else
        positive(reader, "routed_scaling_factor", scale, &config->router_scale);
    word_must_be(reader, reader->root, "scoring_func", "sigmoid");
    word_must_be(reader, reader->root, "topk_method", "noaux_tc");
}

/* Relations between sizes, once all of them are in range. */
static void check_sizes(struct reader *reader, const struct config *c)
{
    uint32_t qk_dim = c->nope_dim + c->rope_dim, given = qk_dim;
    whole_if_given(reader, "qk_head_dim", 1, 1 << 17, &given);
    if (given != qk_dim)
        refuse(reader, "qk_head_dim is %" PRIu32 ", but qk_nope_head_dim and qk_rope_head_dim make %" PRIu32, given,
               qk_dim);
    if (c->rope_dim % 2 != 0) refuse(reader, "qk_rope_head_dim is %" PRIu32 ", it must be even", c->rope_dim);
    if (c->rope_dim > c->index_head_dim)
        refuse(reader, "qk_rope_head_dim is %" PRIu32 ", more than the index_head_dim of %" PRIu32, c->rope_dim,
               c->index_head_dim);
    if ((uint64_t)c->n_heads * (c->nope_dim + c->rope_dim) > WIDTH_MAX ||
        (uint64_t)c->n_heads * (c->nope_dim + c->value_dim) > WIDTH_MAX)
        refuse(reader, "num_attention_heads is %" PRIu32 ", too many for heads of this size", c->n_heads);
    if ((uint64_t)c->n_shared_experts * c->expert_inner > WIDTH_MAX)
        refuse(reader, "n_shared_experts is %" PRIu32 ", too many for a width of %" PRIu32, c->n_shared_experts,
               c->expert_inner);
    if (c->n_experts_per_token > c->n_experts)
        refuse(reader, "num_experts_per_tok is %" PRIu32 ", but there are %" PRIu32 " experts", c->n_experts_per_token,
               c->n_experts);
    if (c->n_expert_groups_kept > c->n_expert_groups)
        refuse(reader, "topk_group is %" PRIu32 ", but n_group is %" PRIu32, c->n_expert_groups_kept,
               c->n_expert_groups);
    if (c->n_expert_groups > 1 && (c->n_experts % c->n_expert_groups != 0 || c->n_experts / c->n_expert_groups < 2))
        refuse(reader,
               "n_group is %" PRIu32 ", which does not cut %" PRIu32 " experts into equal groups of two or more",
               c->n_expert_groups, c->n_experts);
    if (reader->ok && c->n_experts / c->n_expert_groups * c->n_expert_groups_kept < c->n_experts_per_token)
        refuse(reader, "topk_group is %" PRIu32 ", whose groups hold fewer than num_experts_per_tok experts",
               c->n_expert_groups_kept);
}

/* --- constants of the arithmetic --- */

static void read_rope(struct reader *reader, struct config *config)
{
    struct json_object *nested = member(reader->root, "rope_parameters"),
                       *scaling = member(reader->root, "rope_scaling");
    struct json_object *theta = member(reader->root, "rope_theta"), *inner = NULL;
    if (nested && !json_object_is_type(nested, json_type_object))
        refuse(reader, "rope_parameters must be an object");
    else if (nested) {
        inner = member(nested, "rope_theta");
        word_must_be(reader, nested, "rope_type", "default");
        word_must_be(reader, nested, "type", "default");
    }
    if (scaling && !json_object_is_type(scaling, json_type_object))
        refuse(reader, "rope_scaling must be an object");
    else if (scaling) {
        word_must_be(reader, scaling, "rope_type", "default");
        word_must_be(reader, scaling, "type", "default");
    }
    if (!theta && !inner) refuse(reader, "rope_theta is missing, both in rope_parameters and outside of it");
    float outer_theta = 0;
    if (theta && positive(reader, "rope_theta", theta, &outer_theta)) config->rope_theta = outer_theta;
    if (inner && positive(reader, "rope_parameters.rope_theta", inner, &config->rope_theta) && theta &&
        outer_theta != config->rope_theta)
        refuse(reader, "rope_theta is %g, but rope_parameters.rope_theta is %g", (double)outer_theta,
               (double)config->rope_theta);
    flag_must_be(reader, "rope_interleave", true, "only interleaved pairs are");
    flag_must_be(reader, "indexer_rope_interleave", true, "only interleaved pairs are");
}

static void read_constants(struct reader *reader, struct config *config)
{
    struct json_object *eps = member(reader->root, "rms_norm_eps"), *latent = member(reader->root, "latent_norm_eps");
    if (!eps)
        refuse(reader, "rms_norm_eps is missing");
    else
        positive(reader, "rms_norm_eps", eps, &config->rms_eps);
    config->latent_eps = config->rms_eps;
    if (latent) positive(reader, "latent_norm_eps", latent, &config->latent_eps);

    word_must_be(reader, reader->root, "hidden_act", "silu");
    flag(reader, "attention_bias", false, &config->attention_bias);
    flag_must_be(reader, "mlp_bias", false, "this architecture has no biases in its MLPs");
    flag_must_be(reader, "tie_word_embeddings", false, "lm_head.weight is a tensor of its own");
}

static void read_mtp(struct reader *reader, struct config *config)
{
    uint32_t n_layers = 0;
    struct json_object *chain = member(reader->root, "mtp_chain");
    whole_if_given(reader, "num_nextn_predict_layers", 0, CONFIG_LAYERS_MAX, &n_layers);
    config->declares_mtp = n_layers == 1; /* several would be another way of drafting */
    flag(reader, "index_share_for_mtp_iteration", false, &config->index_share_for_mtp);
    config->mtp_chain = MTP_CHAIN_NORMED;
    if (!chain) return;
    const char *word = json_object_is_type(chain, json_type_string) ? json_object_get_string(chain) : "";
    if (strcmp(word, "block_output") == 0)
        config->mtp_chain = MTP_CHAIN_BLOCK_OUTPUT;
    else if (strcmp(word, "normed") != 0)
        refuse(reader, "mtp_chain is %.60s, supported are \"normed\" and \"block_output\"",
               json_object_to_json_string(chain));
}

/* --- kinds of layers --- */

/* A list of n_layers words, each one of `yes` or of `no` (the second may be NULL). False when refused. */
static bool read_words(struct reader *reader, const char *key, struct json_object *list, uint32_t n_layers,
                       const char *const yes[2], const char *const no[2], bool *out)
{
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != n_layers) {
        refuse(reader, "%s must be a list of %" PRIu32 " words, one for each layer", key, n_layers);
        return false;
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        const char *word = json_object_is_type(item, json_type_string) ? json_object_get_string(item) : "";
        out[i] = strcmp(word, yes[0]) == 0 || (yes[1] && strcmp(word, yes[1]) == 0);
        if (!out[i] && strcmp(word, no[0]) != 0 && (!no[1] || strcmp(word, no[1]) != 0)) {
            refuse(reader, "%s[%" PRIu32 "] is %.60s, supported are \"%s\" and \"%s\"", key, i,
                   json_object_to_json_string(item), yes[0], no[0]);
            return false;
        }
    }
    return true;
}

static void read_mlp_kinds(struct reader *reader, struct config *config)
{
    static const char *const sparse[2] = {"sparse"}, *const dense[2] = {"dense"};
    struct json_object *types = member(reader->root, "mlp_layer_types");
    uint32_t n_dense = 0, freq = 1;
    bool is_given = whole_if_given(reader, "first_k_dense_replace", 0, CONFIG_LAYERS_MAX, &n_dense);
    if (!is_given && !types)
        refuse(reader, "neither first_k_dense_replace nor mlp_layer_types says which layers are dense");
    whole_if_given(reader, "moe_layer_freq", 1, UINT32_MAX, &freq);
    if (freq != 1) refuse(reader, "moe_layer_freq is %" PRIu32 ", supported is only 1", freq);
    if (!reader->ok) return;
    if (n_dense > config->n_layers)
        refuse(reader, "first_k_dense_replace is %" PRIu32 ", more than the %" PRIu32 " layers", n_dense,
               config->n_layers);
    for (uint32_t i = 0; i <= config->n_layers; i++) config->is_sparse[i] = i >= n_dense || i == config->n_layers;
    bool listed[CONFIG_LAYERS_MAX];
    if (!types || !read_words(reader, "mlp_layer_types", types, config->n_layers, sparse, dense, listed)) return;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (is_given && listed[i] != config->is_sparse[i])
            refuse(reader, "mlp_layer_types[%" PRIu32 "] disagrees with first_k_dense_replace %" PRIu32, i, n_dense);
        config->is_sparse[i] = listed[i];
    }
}

/* One of the ways to say which layers are full, and what it said. */
struct schedule {
    const char *key;
    bool is_full[CONFIG_LAYERS_MAX];
};

static bool read_pattern(struct reader *reader, struct json_object *value, uint32_t n_layers, struct schedule *out)
{
    static const char *const full[2] = {"F", "full"}, *const shared[2] = {"S", "shared"};
    out->key = "index_topk_pattern";
    if (!json_object_is_type(value, json_type_string))
        return read_words(reader, out->key, value, n_layers, full, shared, out->is_full);
    const char *letters = json_object_get_string(value);
    if (strlen(letters) != n_layers || strspn(letters, "FS") != n_layers) {
        refuse(reader, "%s must be %" PRIu32 " letters F or S, one for each layer", out->key, n_layers);
        return false;
    }
    for (uint32_t i = 0; i < n_layers; i++) out->is_full[i] = letters[i] == 'F';
    return true;
}

/* Full where max(i - offset + 1, 0) is a multiple of freq. */
static void fill_by_frequency(uint32_t freq, uint32_t offset, uint32_t n_layers, struct schedule *out)
{
    out->key = "index_topk_freq with index_skip_topk_offset";
    for (uint32_t i = 0; i < n_layers; i++) out->is_full[i] = i + 1 <= offset || (i + 1 - offset) % freq == 0;
}

/* The ways are taken in their order of precedence, and every other one that is given must say the same: the schedule is
 * trained architecture, and a wrong one gives a plausible model. */
static void read_schedule(struct reader *reader, struct config *config)
{
    static const char *const full[2] = {"full"}, *const shared[2] = {"shared"};
    struct json_object *types = member(reader->root, "indexer_types");
    struct json_object *pattern = member(reader->root, "index_topk_pattern");
    struct schedule ways[3];
    uint32_t n = 0, freq = 1, offset = 2;
    if (types) {
        ways[n].key = "indexer_types";
        if (!read_words(reader, ways[n].key, types, config->n_layers, full, shared, ways[n].is_full)) return;
        n++;
    }
    if (pattern && !read_pattern(reader, pattern, config->n_layers, &ways[n++])) return;
    bool has_freq = whole_if_given(reader, "index_topk_freq", 1, 1 << 20, &freq);
    bool has_offset = whole_if_given(reader, "index_skip_topk_offset", 0, 1 << 20, &offset);
    if (n == 0 || (has_freq && has_offset)) fill_by_frequency(freq, offset, config->n_layers, &ways[n++]);
    if (!reader->ok) return;

    memcpy(config->is_full, ways[0].is_full, config->n_layers * sizeof *config->is_full);
    config->is_full[config->n_layers] = true; /* the MTP layer never takes another layer's selection */
    for (uint32_t w = 1; w < n; w++)
        for (uint32_t i = 0; i < config->n_layers; i++)
            if (ways[w].is_full[i] != ways[0].is_full[i])
                refuse(reader, "%s and %s disagree about layer %" PRIu32, ways[0].key, ways[w].key, i);
    if (!config->is_full[0]) refuse(reader, "%s makes layer 0 shared, but it has no full layer before it", ways[0].key);
}

/* --- end of text --- */

static void add_eos(struct reader *reader, struct config *config, struct json_object *value)
{
    uint32_t id, at = 0;
    if (!as_whole(reader, "eos_token_id", value, 0, config->vocab - 1, &id)) return;
    while (at < config->n_eos && config->eos[at] < id) at++;
    if (at < config->n_eos && config->eos[at] == id) return;
    if (config->n_eos == CONFIG_EOS_MAX) {
        refuse(reader, "eos_token_id: more than %d ids", CONFIG_EOS_MAX);
        return;
    }
    memmove(config->eos + at + 1, config->eos + at, (config->n_eos - at) * sizeof *config->eos);
    config->eos[at] = id;
    config->n_eos++;
}

static void read_eos(struct reader *reader, struct config *config)
{
    struct json_object *value = member(reader->root, "eos_token_id");
    if (!value || !reader->ok) return;
    if (!json_object_is_type(value, json_type_array)) {
        add_eos(reader, config, value);
        return;
    }
    for (size_t i = 0; reader->ok && i < json_object_array_length(value); i++)
        add_eos(reader, config, json_object_array_get_idx(value, i));
}

/* --- the doors --- */

bool config_parse(struct config *config, const char *name, const char *json, size_t bytes, struct err *err)
{
    struct reader reader;
    *config = (struct config){0};
    if (!reader_init(&reader, name, json, bytes, err)) return false;
    read_kind(&reader);
    read_sizes(&reader, config);
    read_experts(&reader, config);
    if (reader.ok) check_sizes(&reader, config);
    read_rope(&reader, config);
    read_constants(&reader, config);
    read_mtp(&reader, config);
    if (reader.ok) read_mlp_kinds(&reader, config);
    if (reader.ok) read_schedule(&reader, config);
    read_eos(&reader, config);
    reader_fini(&reader);
    return reader.ok;
}

static bool parse_generation(struct config *config, const char *name, const char *json, size_t bytes, struct err *err)
{
    struct reader reader;
    if (!reader_init(&reader, name, json, bytes, err)) return false;
    read_eos(&reader, config);
    reader_fini(&reader);
    return reader.ok;
}

static bool parse_file(struct config *config, struct alloc *alloc, struct file_system fs, const char *path,
                       bool (*parse)(struct config *, const char *, const char *, size_t, struct err *),
                       struct err *err)
{
    size_t bytes;
    char *text = file_read_all(alloc, fs, path, CONFIG_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool ok = parse(config, path, text, bytes, err);
    alloc_put(alloc, text);
    return ok;
}

bool config_read(struct config *config, struct alloc *alloc, struct file_system fs, const char *dir, struct err *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/config.json", dir) >= (int)sizeof path)
        return err_set(err, ERR_USER, "%.100s...: the path is too long", dir);
    if (!parse_file(config, alloc, fs, path, config_parse, err)) return false;
    if (snprintf(path, sizeof path, "%s/generation_config.json", dir) >= (int)sizeof path)
        return err_set(err, ERR_USER, "%.100s...: the path is too long", dir);
    return !file_present(fs, path) || parse_file(config, alloc, fs, path, parse_generation, err);
}
