#include "support/made_chat_model.h"

#include "support/made_model.h"
#include <stdlib.h>

/* The vocabulary and the ends of the demo model, and little else. */
static const char config[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 4096, \"hidden_size\": 64, \"num_hidden_layers\": 3,"
    " \"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"first_k_dense_replace\": 1, \"n_routed_experts\": 4,"
    " \"num_experts_per_tok\": 2, \"n_shared_experts\": 1, \"routed_scaling_factor\": 2.5, \"num_attention_heads\": 2,"
    " \"q_lora_rank\": 32, \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 4, \"v_head_dim\": 16,"
    " \"index_topk\": 64, \"index_n_heads\": 2, \"index_head_dim\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,"
    " \"max_position_embeddings\": 4096, \"eos_token_id\": [4060, 4067, 4069],"
    " \"indexer_types\": [\"full\", \"shared\", \"full\"]}";

static void copy_file(const struct temp_folder *folder, const char *name)
{
    char path[128];
    size_t bytes;
    snprintf(path, sizeof path, "models/demo/%s", name);
    unsigned char *data = take_file(path, &bytes);
    put_file(temp_path(folder, name), data, bytes);
    free(data);
}

void made_chat_model_write(const struct temp_folder *folder)
{
    struct made_model model;
    made_model_init(&model, config, MADE_INDEXERS, 1, 0, 1);
    /* Logits within a few units of each other. */
    struct made_tensor *scales = made_find(&model, "lm_head.weight.qs");
    for (uint64_t i = 0; i < scales->bytes / 4; i++) made_set_float(scales, i, 0.02f);
    made_write(&model, folder->path);
    made_model_fini(&model);
    copy_file(folder, "tokenizer.json");
    copy_file(folder, "tokenizer_config.json");
    copy_file(folder, "chat_template.jinja");
    copy_file(folder, "generation_config.json");
}
