#ifndef RESID_SPINE_H
#define RESID_SPINE_H
/* The spine in memory: everything but routed experts and embedding rows, read once and kept.
 *
 * Only formats that kernels read as they are stored: a container's, not a checkpoint's. Tensors that lie together on
 * disk are read together, whole pages, straight to where they stay. Scales are checked to be finite and above zero,
 * vectors and routers to be finite. */
#include "model/weights.h"
#include "plat/reader.h"

struct spine_choice {
    bool with_dsa, with_mtp; /* asked for; what the inventory lacks stays away */
};

/* Bytes of weights by part, for the memory plan: what spine_load keeps, less page ends. */
struct spine_bytes {
    uint64_t main, indexers, mtp;
    uint64_t page_bytes; /* all of it in whole pages: what is allocated */
};
bool spine_count(struct spine_bytes *bytes, struct alloc *alloc, const struct inventory *inventory,
                 struct spine_choice choice, struct err *err) MUST_CHECK;

struct spine_store;

/* The reader must be idle and is idle again afterwards. files: as shard_files_add gave them. */
bool spine_load(struct spine_store **store, struct alloc *alloc, const struct inventory *inventory,
                struct spine_choice choice, struct reader *reader, const uint32_t *files, uint64_t piece_bytes,
                struct err *err) MUST_CHECK;
void spine_free(struct spine_store *store); /* NULL is fine */
const struct spine *spine_of(const struct spine_store *store);

/* Whether kernels read this format as it is stored. */
bool spine_format_is_native(enum weight_format format);

#endif
