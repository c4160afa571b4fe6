#include "resid/resident.h"
#include "support/check.h"
#include "support/faulty_files.h"
#include "support/made_model.h"
#include "support/open_model.h"
#include "support/temp_folder.h"

#include <math.h>
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

static void open_fixture(struct open_model *m, struct alloc *alloc, const char *name)
{
    char dir[256];
    struct err err = {0};
    snprintf(dir, sizeof dir, "tests/fixtures/glm52-tiny/%s", name);
    if (!open_model(m, alloc, file_system_real(), dir, true, &err)) fail_msg("%s: %s", name, err.text);
}

/* Writes the model and opens it whole. The model is used up. */
static bool open_made(struct made_model *made, struct open_model *m, struct alloc *alloc, struct err *err)
{
    *err = (struct err){0};
    remove_tree(folder.path);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    made_write(made, folder.path);
    made_model_fini(made);
    return open_model(m, alloc, file_system_real(), folder.path, true, err);
}

static void every_fixture_opens_with_what_it_holds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum capability mtp;
        bool mtp_has_indexer;
        uint32_t n_routed_experts, n_full_indexers;
    } fixtures[] = {
        {"plain", CAPABILITY_ABSENT, false, 24, 4},        {"indexshare", CAPABILITY_ABSENT, false, 56, 4},
        {"freq-oddsize", CAPABILITY_ABSENT, false, 55, 4}, {"bias", CAPABILITY_ABSENT, false, 16, 3},
        {"groups", CAPABILITY_ABSENT, false, 32, 3},       {"mtp", CAPABILITY_PRESENT, true, 40, 3},
        {"fp8", CAPABILITY_PRESENT, true, 16, 2},
    };
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        struct open_model m;
        struct alloc alloc = {0};
        open_fixture(&m, &alloc, fixtures[i].name);
        const struct inventory *v = &m.inventory;
        printf("%s: %u tensors, %u quantised, %u experts, %u indexers, %llu bytes\n", fixtures[i].name,
               m.catalogue.n_tensors, v->n_quantised, v->n_routed_experts, v->n_full_indexers,
               (unsigned long long)v->bytes);
        assert_int_equal(v->dsa, CAPABILITY_PRESENT);
        assert_int_equal(v->mtp, fixtures[i].mtp);
        assert_int_equal(v->mtp_has_indexer, fixtures[i].mtp_has_indexer);
        assert_int_equal(v->n_full_indexers, fixtures[i].n_full_indexers);
        assert_int_equal(v->n_ignored, 0);
        assert_int_equal(m.catalogue.n_ignored_files, 1); /* the reference values lie beside the model */
        assert_string_equal(m.catalogue.ignored_file, "reference.safetensors");
        const struct spine *spine = resident_weights(m.resident)->spine;
        assert_true(spine->has_dsa);
        assert_int_equal(spine->has_mtp, v->mtp == CAPABILITY_PRESENT);
        assert_int_equal(spine->mtp_has_indexer, v->mtp_has_indexer);
        close_model(&m);
        assert_int_equal(alloc.live, 0);
    }
}

/* --- containers --- */

static const float *floats_of(const struct made_tensor *t)
{
    return (const float *)(const void *)t->data;
}

static void packed_weights_keep_their_disk_layout(void **state)
{
    (void)state;
    struct made_model made, kept;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err;
    made_model_tiny(&made);
    made_model_tiny(&kept); /* the same again: the generator has no chance in it */
    if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s", err.text);
    struct weights *w = resident_weights(m.resident);

    const struct made_tensor *t = made_find(&kept, "model.layers.3.self_attn.kv_b_proj.weight");
    const struct matrix *kv_b = &w->spine->blocks[3].role[ROLE_KV_B];
    assert_int_equal(kv_b->format, FORMAT_INT4_ROW);
    assert_int_equal(kv_b->rows, 56);
    assert_int_equal(kv_b->columns, 32);
    assert_memory_equal(kv_b->payload, t->data, t->bytes);
    t = made_find(&kept, "model.layers.3.self_attn.kv_b_proj.weight.qs");
    assert_memory_equal(kv_b->scales, t->data, t->bytes);

    t = made_find(&kept, "model.layers.2.mlp.gate.weight");
    assert_int_equal(w->spine->blocks[2].role[ROLE_ROUTER].format, FORMAT_F32);
    assert_memory_equal(w->spine->blocks[2].role[ROLE_ROUTER].payload, t->data, t->bytes);
    assert_null(w->spine->blocks[0].role[ROLE_ROUTER].payload);
    assert_null(w->spine->blocks[1].role[ROLE_INDEX_Q].payload); /* a shared layer */
    assert_non_null(w->spine->blocks[4].role[ROLE_EH_PROJ].payload);

    /* an embedding row is its int8 numbers times its scale */
    const struct made_tensor *embed = made_find(&kept, "model.embed_tokens.weight");
    const struct made_tensor *scales = made_find(&kept, "model.embed_tokens.weight.qs");
    const uint32_t tokens[3] = {39, 0, 7};
    float rows[3][64];
    assert_true(w->ops->embed(w, tokens, 3, rows[0], &err));
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 64; i++)
            assert_true(rows[k][i] ==
                        (float)(signed char)embed->data[tokens[k] * 64 + (uint32_t)i] * floats_of(scales)[tokens[k]]);
    close_model(&m);
    assert_int_equal(alloc.live, 0);
    made_model_fini(&kept);
}

static void a_want_gives_each_expert_once(void **state)
{
    (void)state;
    struct made_model made, kept;
    struct open_model m;
    struct alloc alloc = {0};
    struct err err;
    made_model_tiny(&made);
    made_model_tiny(&kept);
    if (!open_made(&made, &m, &alloc, &err)) fail_msg("%s", err.text);
    struct weights *w = resident_weights(m.resident);
    for (uint32_t layer = 1; layer <= 4; layer++) {
        const uint32_t ids[2] = {0, 2};
        struct lease leases[2];
        assert_false(w->ops->lacks(w, layer));
        w->ops->hint(w, layer, ids, 1, 2);
        assert_true(w->ops->want(w, layer, ids, 2, ORDER_ASCENDING, &err));
        for (int i = 0; i < 2; i++) {
            char name[128];
            assert_true(w->ops->next(w, &leases[i], &err));
            assert_int_equal(leases[i].layer, layer);
            assert_int_equal(leases[i].expert, ids[i]);
            snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.down_proj.weight", layer, ids[i]);
            const struct made_tensor *t = made_find(&kept, name);
            assert_int_equal(leases[i].part[EXPERT_DOWN].rows, 64);
            assert_memory_equal(leases[i].part[EXPERT_DOWN].payload, t->data, t->bytes);
        }
        w->ops->unpin(w, &leases[1]);
        w->ops->unpin(w, &leases[0]);
        assert_null(leases[0].part[EXPERT_UP].payload);
    }
    assert_true(w->ops->want(w, 1, NULL, 0, ORDER_ANY, &err));
    close_model(&m);
    assert_int_equal(alloc.live, 0);
    made_model_fini(&kept);
}

/* --- checkpoints --- */

static float one_float(const unsigned char *p, enum dtype dtype)
{
    uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    float value;
    if (dtype == DTYPE_BF16) {
        bits <<= 16;
        memcpy(&value, &bits, 4);
        return value;
    }
    int exponent = p[0] >> 3 & 15, fraction = p[0] & 7; /* e4m3 */
    double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return (float)(p[0] & 0x80 ? -magnitude : magnitude);
}

static void narrow_floats_become_f32(void **state)
{
    (void)state;
    static const char *const names[] = {"mtp", "fp8"};
    unsigned n_compared = 0;
    for (size_t f = 0; f < 2; f++) {
        struct open_model m;
        struct alloc alloc = {0};
        struct err err = {0};
        open_fixture(&m, &alloc, names[f]);
        const struct spine *spine = resident_weights(m.resident)->spine;
        for (uint32_t l = 0; l <= m.config.n_layers; l++) {
            for (int r = 0; r < ROLE_COUNT; r++) {
                const struct weight_source *source = &m.inventory.layers[l].role[r];
                const struct matrix *w = &spine->blocks[l].role[r];
                if (!source->payload || source->format == FORMAT_F32) continue;
                assert_int_equal(w->format, FORMAT_F32);
                unsigned char *raw = malloc(source->payload->bytes);
                float *scales = calloc(1, source->scales ? source->scales->bytes : 1);
                if (!catalogue_read(&m.catalogue, source->payload, 0, raw, source->payload->bytes, &err))
                    fail_msg("%s", err.text);
                if (source->scales &&
                    !catalogue_read(&m.catalogue, source->scales, 0, scales, source->scales->bytes, &err))
                    fail_msg("%s", err.text);
                uint32_t columns = w->columns, across = (columns + 127) / 128;
                for (uint32_t i = 0; i < w->rows * columns; i++) {
                    uint32_t row = i / columns, column = i % columns;
                    float want = source->scales
                                     ? one_float(raw + i, DTYPE_F8_E4M3) * scales[row / 128 * across + column / 128]
                                     : one_float(raw + 2 * (size_t)i, DTYPE_BF16);
                    assert_true(((const float *)w->payload)[i] == want);
                }
                n_compared++;
                free(raw);
                free(scales);
            }
        }
        close_model(&m);
        assert_int_equal(alloc.live, 0);
    }
    printf("%u tensors compared\n", n_compared);
    assert_true(n_compared > 100);
}

/* --- values that must not be --- */

static void damaged_values_are_refused_by_tensor_and_index(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        uint64_t index;
        float value;
        const char *says;
    } values[] = {
        {"model.layers.1.self_attn.q_a_proj.weight.qs", 31, 0.0f, "value 31 is 0, a scale must be"},
        {"model.layers.1.self_attn.q_a_proj.weight.qs", 0, -0.5f, "value 0 is -0.5, a scale must be"},
        {"model.layers.1.self_attn.q_a_proj.weight.qs", 7, NAN, "value 7 is"},
        {"model.layers.1.self_attn.q_a_proj.weight.qs", 7, INFINITY, "value 7 is inf, a scale must be"},
        {"model.layers.2.mlp.experts.1.up_proj.weight.qs", 5, 0.0f, "value 5 is 0, a scale must be"},
        {"model.layers.4.mlp.experts.2.down_proj.weight.qs", 63, NAN, "value 63 is"},
        {"model.layers.4.eh_proj.weight.qs", 1, -1.0f, "value 1 is -1, a scale must be"},
        {"model.layers.0.self_attn.indexer.wk.weight.qs", 2, 0.0f, "value 2 is 0, a scale must be"},
        {"model.embed_tokens.weight.qs", 39, INFINITY, "value 39 is inf, a scale must be"},
        {"lm_head.weight.qs", 3, -INFINITY, "value 3 is -inf, a scale must be"},
        {"model.norm.weight", 63, NAN, "value 63 is"},
        {"model.layers.0.input_layernorm.weight", 0, INFINITY, "value 0 is inf, it must be finite"},
        {"model.layers.3.mlp.gate.weight", 191, NAN, "value 191 is"},
        {"model.layers.3.mlp.gate.e_score_correction_bias", 2, -INFINITY, "value 2 is -inf, it must be finite"},
        {"model.layers.2.self_attn.indexer.k_norm.bias", 4, NAN, "value 4 is"},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct made_model made;
        struct open_model m;
        struct alloc alloc = {0};
        struct err err;
        made_model_tiny(&made);
        made_set_float(made_find(&made, values[i].tensor), values[i].index, values[i].value);
        if (open_made(&made, &m, &alloc, &err)) fail_msg("%s: accepted", values[i].tensor);
        assert_int_equal(err.kind, ERR_DATA);
        if (!strstr(err.text, values[i].says) || !strstr(err.text, values[i].tensor) ||
            !strstr(err.text, ".safetensors: "))
            fail_msg("%s: %s", values[i].tensor, err.text);
        assert_int_equal(alloc.live, 0);
    }
}

/* One byte of a checkpoint's payload, so that it is no number any more. */
static void damaged_narrow_floats_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *fixture, *tensor;
        uint64_t at;
        unsigned char bytes[2];
        uint64_t index;
    } values[] = {
        {"fp8", "model.layers.1.mlp.experts.3.up_proj.weight", 1000, {0x7f, 0x7f}, 1000},
        {"fp8", "model.layers.4.self_attn.o_proj.weight", 77, {0xff, 0x11}, 77},
        {"mtp", "model.layers.0.self_attn.q_a_proj.weight", 200, {0xc0, 0x7f}, 100},
        {"mtp", "model.embed_tokens.weight", 40000, {0x80, 0xff}, 20000},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        static const char *const files[] = {"config.json", "model.safetensors"};
        struct open_model m;
        struct alloc alloc = {0};
        struct err err = {0};
        char says[64], from[256];
        remove_tree(folder.path);
        assert_int_equal(mkdir(folder.path, 0700), 0);
        for (int f = 0; f < 2; f++) {
            size_t bytes;
            snprintf(from, sizeof from, "tests/fixtures/glm52-tiny/%s/%s", values[i].fixture, files[f]);
            unsigned char *data = take_file(from, &bytes);
            put_file(temp_path(&folder, files[f]), data, bytes);
            free(data);
        }
        if (!open_model(&m, &alloc, file_system_real(), folder.path, true, &err)) fail_msg("%s", err.text);
        uint64_t offset = catalogue_find(&m.catalogue, values[i].tensor)->offset;
        close_model(&m);
        FILE *f = fopen(temp_path(&folder, "model.safetensors"), "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, (long)(offset + values[i].at), SEEK_SET), 0);
        assert_int_equal(fwrite(values[i].bytes, 1, 2, f), 2);
        fclose(f);
        snprintf(says, sizeof says, "value %u is", (unsigned)values[i].index);
        if (open_model(&m, &alloc, file_system_real(), folder.path, true, &err)) fail_msg("%s: accepted", says);
        if (!strstr(err.text, says) || !strstr(err.text, values[i].tensor)) fail_msg("%s", err.text);
        assert_int_equal(alloc.live, 0);
    }
}

/* --- faults from config.json to the last weight --- */

static void write_tiny(void)
{
    struct made_model made;
    remove_tree(folder.path);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    made_model_tiny(&made);
    made_write(&made, folder.path);
    const char *generation = "{\"eos_token_id\": 3}";
    put_file(temp_path(&folder, "generation_config.json"), generation, strlen(generation));
    made_model_fini(&made);
}

static void every_failed_call_ends_clean(void **state)
{
    (void)state;
    write_tiny();
    for (int ends_early = 0; ends_early < 2; ends_early++) {
        uint64_t k = 1;
        for (;; k++) {
            struct faulty_files faulty = {.fail_at = k, .ends_early = ends_early};
            struct alloc alloc = {0};
            struct open_model m;
            struct err err = {0};
            bool ok = open_model(&m, &alloc, faulty_files_system(&faulty), folder.path, true, &err);
            bool was_reached = faulty.calls >= k;
            if (!ok && err.kind != (ends_early ? ERR_DATA : ERR_IO)) fail_msg("call %d: %s", (int)k, err.text);
            close_model(&m);
            assert_int_equal(alloc.live, 0);
            assert_int_equal(faulty.n_open, 0);
            if (was_reached) continue; /* a fault in looking for an optional file need not be fatal */
            assert_true(ok);
            break;
        }
        printf("%u failing calls tried (%s)\n", (unsigned)k - 1, ends_early ? "short" : "EIO");
        assert_true(k > 200);
    }
    struct faulty_files slow = {.read_most = 13, .interrupts = true};
    struct alloc alloc = {0};
    struct open_model m;
    struct err err = {0};
    if (!open_model(&m, &alloc, faulty_files_system(&slow), folder.path, true, &err)) fail_msg("%s", err.text);
    assert_int_equal(m.config.n_eos, 2);
    close_model(&m);
    assert_int_equal(alloc.live, 0);
    assert_int_equal(slow.n_open, 0);
}

static void every_failed_allocation_ends_clean(void **state)
{
    (void)state;
    write_tiny();
    uint64_t k = 1;
    for (;; k++) {
        struct faulty_files counting = {0};
        struct alloc alloc = {.fail_at = k};
        struct open_model m;
        struct err err = {0};
        bool ok = open_model(&m, &alloc, faulty_files_system(&counting), folder.path, true, &err);
        if (!ok && err.kind != ERR_NOMEM) fail_msg("allocation %d: %s", (int)k, err.text);
        close_model(&m);
        assert_int_equal(alloc.live, 0);
        assert_int_equal(counting.n_open, 0);
        if (ok) break;
    }
    printf("%u failing allocations tried\n", (unsigned)k - 1);
    assert_true(k > 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_opens_with_what_it_holds),
        cmocka_unit_test(packed_weights_keep_their_disk_layout),
        cmocka_unit_test(a_want_gives_each_expert_once),
        cmocka_unit_test(narrow_floats_become_f32),
        cmocka_unit_test(damaged_values_are_refused_by_tensor_and_index),
        cmocka_unit_test(damaged_narrow_floats_are_refused),
        cmocka_unit_test(every_failed_call_ends_clean),
        cmocka_unit_test(every_failed_allocation_ends_clean),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
