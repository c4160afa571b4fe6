#include "support/toy_experts.h"
#include "support/check.h"

#include <stdlib.h>

enum {
    HIDDEN = 256,
    INNER = 192,
    SHARD_BYTES = 4 * 1024 * 1024,
    TENSORS_MAX = 2 * EXPERT_PARTS * TOY_EXPERTS * (TOY_LAYERS + 1),
};

struct writer {
    struct toy *toy;
    uint64_t random;
    char names[TENSORS_MAX][64];
};
static struct writer writer;

static uint32_t rnd(void)
{
    writer.random = writer.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(writer.random >> 33);
}

static const struct tensor *add(uint32_t shard, uint32_t layer, uint32_t expert, int part, enum dtype dtype,
                                uint64_t bytes)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    struct toy *toy = writer.toy;
    uint32_t i = toy->n_tensors++;
    unsigned char *at = toy->data[shard] + toy->bytes[shard];
    assert_true(i < TENSORS_MAX);
    assert_true(toy->bytes[shard] + bytes <= SHARD_BYTES);
    snprintf(writer.names[i], sizeof writer.names[i], "model.layers.%u.mlp.experts.%u.%s.weight%s", layer, expert,
             parts[part], dtype == DTYPE_F32 ? ".qs" : "");
    toy->tensors[i] = (struct tensor){.name = writer.names[i],
                                      .dtype = dtype,
                                      .rank = 1,
                                      .shard = shard,
                                      .offset = toy->bytes[shard],
                                      .bytes = bytes};
    for (uint64_t k = 0; dtype != DTYPE_F32 && k < bytes; k++) at[k] = (unsigned char)rnd();
    for (uint64_t k = 0; dtype == DTYPE_F32 && k < bytes; k += 4) {
        float scale = (float)(1 + rnd() % 1000) / 1000.0f;
        memcpy(at + k, &scale, 4);
    }
    toy->bytes[shard] += bytes;
    return &toy->tensors[i];
}

static void add_expert(uint32_t layer, uint32_t expert)
{
    struct toy *toy = writer.toy;
    static const int order[EXPERT_PARTS] = {EXPERT_DOWN, EXPERT_GATE, EXPERT_UP};
    bool is_mtp = layer == TOY_LAYERS, straddles = expert % 5 == 3, is_odd = expert % 7 == 5;
    uint32_t shard = is_mtp ? 2 : layer % 2;
    struct weight_source *sources = toy->experts[layer][expert];
    for (int i = 0; i < EXPERT_PARTS; i++) {
        int part = order[is_odd ? EXPERT_PARTS - 1 - i : i];
        uint32_t rows = part == EXPERT_DOWN ? HIDDEN : INNER, columns = part == EXPERT_DOWN ? INNER : HIDDEN;
        uint32_t where = straddles && i == 2 ? (shard + 1) % TOY_SHARDS : shard;
        sources[part] = (struct weight_source){
            .format = is_mtp ? FORMAT_INT8_ROW : FORMAT_INT4_ROW, .rows = rows, .columns = columns};
        sources[part].payload = add(where, layer, expert, part, DTYPE_U8, (uint64_t)rows * columns / (is_mtp ? 1 : 2));
        if (is_odd && i == 0) toy->bytes[where] += 4096 + 8 * (rnd() % 500); /* a hole of more than a page */
    }
    for (int i = 0; i < EXPERT_PARTS; i++) {
        int part = order[i];
        uint32_t where = straddles && i == 2 ? (shard + 1) % TOY_SHARDS : shard;
        sources[part].scales = add(where, layer, expert, part, DTYPE_F32, 4 * (uint64_t)sources[part].rows);
    }
}

void toy_open(struct toy *toy, uint64_t seed)
{
    static const char *const paths[TOY_SHARDS] = {"toy/a.safetensors", "toy/b.safetensors", "toy/c.safetensors"};
    struct err err = {0};
    *toy = (struct toy){.config = {.n_layers = TOY_LAYERS, .n_experts = TOY_EXPERTS, .hidden = HIDDEN}};
    writer.toy = toy;
    writer.random = seed * 77 + 1;
    toy->tensors = calloc(TENSORS_MAX, sizeof *toy->tensors);
    assert_non_null(toy->tensors);
    for (int i = 0; i < TOY_SHARDS; i++) {
        toy->data[i] = calloc(1, SHARD_BYTES);
        assert_non_null(toy->data[i]);
        toy->bytes[i] = 8 * (rnd() % 700); /* as after a header */
    }
    for (uint32_t layer = 1; layer <= TOY_LAYERS; layer++) {
        toy->layers[layer].experts = toy->experts[layer];
        for (uint32_t expert = 0; expert < TOY_EXPERTS; expert++) add_expert(layer, expert);
        for (int part = 0; part < EXPERT_PARTS; part++)
            toy->weight_bytes[layer] +=
                toy->experts[layer][0][part].payload->bytes + toy->experts[layer][0][part].scales->bytes;
    }
    for (int i = 0; i < TOY_SHARDS; i++) {
        mem_files_add(&toy->files, paths[i], toy->data[i], toy->bytes[i]);
        toy->shards[i].name = paths[i] + 4;
        assert_true(file_open(&toy->shards[i].file, &toy->alloc, mem_files_system(&toy->files), paths[i], &err));
    }
    toy->catalogue = (struct catalogue){
        .shards = toy->shards, .n_shards = TOY_SHARDS, .tensors = toy->tensors, .n_tensors = toy->n_tensors};
    toy->inventory = (struct inventory){
        .config = &toy->config, .catalogue = &toy->catalogue, .layers = toy->layers, .mtp = CAPABILITY_PRESENT};
}

void toy_close(struct toy *toy)
{
    for (int i = 0; i < TOY_SHARDS; i++) {
        file_close(&toy->shards[i].file);
        free(toy->data[i]);
    }
    free(toy->tensors);
    assert_int_equal(toy->files.n_open, 0);
    assert_int_equal(toy->alloc.live, 0);
}

const unsigned char *toy_truth(const struct toy *toy, const struct tensor *t)
{
    return toy->data[t->shard] + t->offset;
}

void toy_compare(const struct toy *toy, uint32_t layer, uint32_t expert, const struct matrix part[EXPERT_PARTS])
{
    for (int p = 0; p < EXPERT_PARTS; p++) {
        const struct weight_source *source = &toy->experts[layer][expert][p];
        assert_int_equal(part[p].rows, source->rows);
        assert_int_equal(part[p].columns, source->columns);
        assert_int_equal((uintptr_t)part[p].scales % 4, 0);
        assert_memory_equal(part[p].payload, toy_truth(toy, source->payload), source->payload->bytes);
        assert_memory_equal(part[p].scales, toy_truth(toy, source->scales), source->scales->bytes);
    }
}
