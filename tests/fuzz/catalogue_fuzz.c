/* A model folder of two shards and an index, opened to its last weight. The input is the three files, the first two
 * with their lengths in front (four bytes, little endian). Whatever they are, the folder opens or is refused, and
 * nothing stays behind. */
#include "support/open_model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char config[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 5, \"hidden_size\": 8, \"num_hidden_layers\": 2,"
    " \"intermediate_size\": 6, \"moe_intermediate_size\": 4, \"first_k_dense_replace\": 1, \"n_routed_experts\": 2,"
    " \"num_experts_per_tok\": 1, \"n_shared_experts\": 1, \"routed_scaling_factor\": 1, \"num_attention_heads\": 1,"
    " \"q_lora_rank\": 4, \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 2, \"v_head_dim\": 4,"
    " \"index_topk\": 2, \"index_n_heads\": 1, \"index_head_dim\": 4, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,"
    " \"num_nextn_predict_layers\": 1, \"indexer_types\": [\"full\", \"shared\"]}";

static char folder[64];

static void must(bool ok)
{
    if (!ok) abort();
}

static void put(const char *name, const void *data, size_t bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int f = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(f >= 0 && write(f, data, bytes) == (ssize_t)bytes && close(f) == 0);
}

static void remove_folder(void)
{
    static const char *const names[] = {"config.json", "out-00000.safetensors", "out-mtp-00000.safetensors",
                                        "model.safetensors.index.json"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* Takes a file with its length in front off the input; what is left is shorter than it says belongs to it. */
static void put_next(const char *name, const uint8_t **data, size_t *bytes)
{
    uint32_t n = 0;
    if (*bytes >= 4) {
        n = (uint32_t)(*data)[0] | (uint32_t)(*data)[1] << 8 | (uint32_t)(*data)[2] << 16 | (uint32_t)(*data)[3] << 24;
        *data += 4;
        *bytes -= 4;
    }
    if (n > *bytes) n = (uint32_t)*bytes;
    put(name, *data, n);
    *data += n;
    *bytes -= n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct alloc alloc = {0};
    struct open_model model;
    struct err err = {0};
    if (!folder[0]) {
        strcpy(folder, "/tmp/weir-fuzz-XXXXXX");
        must(mkdtemp(folder));
        atexit(remove_folder);
        put("config.json", config, sizeof config - 1);
    }
    put_next("out-00000.safetensors", &data, &bytes);
    put_next("out-mtp-00000.safetensors", &data, &bytes);
    put("model.safetensors.index.json", data, bytes);
    if (!open_model(&model, &alloc, file_system_real(), folder, true, &err)) must(err.kind == ERR_DATA && err.text[0]);
    close_model(&model);
    must(alloc.live == 0);
    return 0;
}
