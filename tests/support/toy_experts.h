#ifndef SUPPORT_TOY_EXPERTS_H
#define SUPPORT_TOY_EXPERTS_H
/* A small model's routed experts in files that are arrays in memory, with the catalogue and inventory that describe
 * them. Nothing but experts: what the residency code looks at.
 *
 * Three main layers (the first dense), and an MTP layer whose experts are twice as large. Most experts lie as in a real
 * container (payloads together, scales together); some straddle two shards, some have their parts in another order with
 * holes between them. All bytes follow from the seed. */
#include "fmt/inventory.h"
#include "support/mem_files.h"

enum { TOY_LAYERS = 3, TOY_EXPERTS = 12, TOY_SHARDS = 3 };

struct toy {
    struct alloc alloc;
    struct mem_files files;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct shard shards[TOY_SHARDS];
    unsigned char *data[TOY_SHARDS];
    uint64_t bytes[TOY_SHARDS];
    struct tensor *tensors;
    uint32_t n_tensors;
    struct layer_sources layers[TOY_LAYERS + 1];
    struct weight_source experts[TOY_LAYERS + 1][TOY_EXPERTS][EXPERT_PARTS];
    uint64_t weight_bytes[TOY_LAYERS + 1]; /* of one expert of this layer */
};

/* Asserts through cmocka. The toy is large: keep it static or on the heap. */
void toy_open(struct toy *toy, uint64_t seed);
void toy_close(struct toy *toy);

/* The file's own bytes of a tensor. */
const unsigned char *toy_truth(const struct toy *toy, const struct tensor *tensor);

/* Compares all parts with the file, byte for byte. */
void toy_compare(const struct toy *toy, uint32_t layer, uint32_t expert, const struct matrix part[EXPERT_PARTS]);

#endif
