#ifndef SUPPORT_MADE_MODEL_H
#define SUPPORT_MADE_MODEL_H
/* Container folders made by a test: complete and right ones of any geometry, to be damaged in one place.
 *
 * Names and shapes come from a table of their own, written from the container's description and not from ROLE_LIST, so
 * that a mistake in one is seen against the other. Everything stops the test when it fails. */
#include "fmt/config.h"
#include "support/check.h"
#include <stdbool.h>

struct made_tensor {
    char *name;
    const char *dtype; /* as it is written */
    uint32_t rank;
    uint64_t shape[3];
    uint64_t bytes;
    unsigned char *data; /* NULL: a hole, which reads as zeros */
    uint32_t shard;
};

enum { MADE_SHARDS_MAX = 256 };

struct made_model {
    char *config; /* the text of config.json */
    struct made_tensor *tensors;
    size_t n_tensors, room;
    char shards[MADE_SHARDS_MAX][64];
    char *metadata[MADE_SHARDS_MAX]; /* the text of __metadata__, or NULL */
    uint32_t n_shards;
};

enum made_part { MADE_MTP = 1, MADE_INDEXERS = 2, MADE_HOLES = 4 /* no data at all */ };

/* config_text is taken over as it is; the geometry is that of its parsed form. n_main shards named out-NNNNN, then one
 * or three out-mtp and one or more out-idx. Matrices are int4 per row, embedding, head, MTP and indexers int8. */
void made_model_init(struct made_model *model, const char *config_text, unsigned parts, uint32_t n_main, uint32_t n_mtp,
                     uint32_t n_indexer);
void made_model_fini(struct made_model *model);

/* A small model with dense, sparse, full and shared layers and MTP, in four main shards, one MTP and one indexer shard.
 */
extern const char made_tiny_config[];
void made_model_tiny(struct made_model *model);

struct made_tensor *made_find(struct made_model *model, const char *name);
void made_drop(struct made_model *model, const char *name);
struct made_tensor *made_add(struct made_model *model, uint32_t shard, const char *name, const char *dtype,
                             uint32_t rank, const uint64_t *shape, uint64_t bytes);

/* Gives a tensor other bytes: kept as far as they go, ones behind that. */
void made_resize(struct made_tensor *tensor, uint64_t bytes);

/* Other values for an F32 tensor. */
void made_set_float(struct made_tensor *tensor, uint64_t index, float value);

void made_write(const struct made_model *model, const char *dir);

/* One safetensors file from the text of a header, padded to 8, and data_bytes bytes of data that are all 1. */
void made_put_shard(const char *path, const char *header, uint64_t data_bytes);
#endif
