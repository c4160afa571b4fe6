/* The whole of GLM-5.2 by its headers: sparse files of the real sizes with all 118,646 tensors, opened as the program
 * opens a model. */
#include "support/check.h"
#include "support/made_model.h"
#include "support/open_model.h"
#include "support/temp_folder.h"

#include <time.h>
#include <unistd.h>

static const char glm52[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 154880, \"hidden_size\": 6144, \"num_hidden_layers\": 78,"
    " \"intermediate_size\": 12288, \"moe_intermediate_size\": 2048, \"first_k_dense_replace\": 3,"
    " \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"routed_scaling_factor\": 2.5,"
    " \"num_attention_heads\": 64, \"q_lora_rank\": 2048, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 192,"
    " \"qk_rope_head_dim\": 64, \"v_head_dim\": 256, \"index_topk\": 2048, \"index_n_heads\": 32,"
    " \"index_head_dim\": 128, \"rms_norm_eps\": 1e-5, \"rope_parameters\": {\"rope_theta\": 8000000},"
    " \"index_topk_freq\": 4, \"index_skip_topk_offset\": 3, \"num_nextn_predict_layers\": 1,"
    " \"eos_token_id\": [154820, 154827, 154829]}";

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Sparse files of this size are not possible everywhere: a test that cannot run says so. */
static bool can_hold_sparse_files(const struct temp_folder *folder)
{
    const char *path = temp_path(folder, "probe");
    put_file(path, "", 0);
    bool can = truncate(path, (off_t)8 << 30) == 0;
    unlink(path);
    return can;
}

static void opens_by_headers_in_little_time_and_memory(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct made_model made;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err = {0};
    temp_folder_make(&folder);
    if (!can_hold_sparse_files(&folder)) {
        temp_folder_remove(&folder);
        skip();
    }
    made_model_init(&made, glm52, MADE_MTP | MADE_INDEXERS | MADE_HOLES, 141, 3, 20);
    made_write(&made, folder.path);
    made_model_fini(&made);

    double start = seconds();
    bool ok = open_model(&m, &alloc, file_system_real(), folder.path, false, &err);
    double taken = seconds() - start;
    if (!ok) fail_msg("%s", err.text);
    uint64_t bytes = alloc.live_bytes;
    const struct inventory *v = &m.inventory;
    printf("%u tensors in %u shards, %u quantised, %u experts, %u indexers, %llu bytes of weights: %.0f ms, %.1f MB\n",
           m.catalogue.n_tensors, m.catalogue.n_shards, v->n_quantised, v->n_routed_experts, v->n_full_indexers,
           (unsigned long long)v->bytes, 1e3 * taken, 1e-6 * (double)bytes);

    assert_int_equal(m.catalogue.n_tensors, 118646);
    assert_int_equal(v->n_quantised, 59066);
    assert_int_equal(v->n_routed_experts, 19456);
    assert_int_equal(v->n_full_indexers, 21);
    assert_int_equal(v->n_ignored, 0);
    assert_int_equal(v->dsa, CAPABILITY_PRESENT);
    assert_int_equal(v->mtp, CAPABILITY_PRESENT);
    assert_false(v->mtp_is_degraded);
    /* main weights, MTP and indexers as the container's description adds them up */
    assert_true(v->bytes == UINT64_C(373766611456) + UINT64_C(9959134464) + UINT64_C(197183616));
    assert_true(bytes < 100 * 1000 * 1000);
    assert_true(taken < 30); /* only against a quadratic mistake: the machine may be busy */

    uint64_t spine = 0;
    for (int i = 0; i < MODEL_ROLE_COUNT; i++) spine += weight_source_bytes(&v->model[i]);
    for (uint32_t l = 0; l <= 78; l++)
        for (int r = 0; r < ROLE_COUNT; r++)
            if (r < ROLE_INDEX_Q || r > ROLE_INDEX_K_NORM_BIAS) spine += weight_source_bytes(&v->layers[l].role[r]);
    assert_true(spine == UINT64_C(10877286144));

    close_model(&m);
    assert_int_equal(alloc.live, 0);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens_by_headers_in_little_time_and_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
