#ifndef RESID_USAGE_H
#define RESID_USAGE_H
/* How often each expert was asked for in the past, across runs: what placement starts from. Advice only: it changes how
 * much is read and never a result, so whatever is wrong with a file is a reason to start from nothing.
 *
 * The file is docs/formats/usage.md: small, one for each model identity, written whole. Owned by the engine thread. */
#include "plat/file.h"
#include "plat/file_write.h"
#include "resid/policy.h"

struct usage {
    struct alloc *alloc;
    uint32_t n_layers, n_experts; /* layers without experts and the MTP layer included */
    uint8_t identity[32];
    uint32_t n_passes; /* that the counts stem from, decayed as they are */
    uint32_t *counts;  /* [n_layers][n_experts] decayed touches */
};

bool usage_init(struct usage *usage, struct alloc *alloc, uint32_t n_layers, uint32_t n_experts,
                const uint8_t identity[32], struct err *err) MUST_CHECK;
void usage_fini(struct usage *usage); /* safe twice and on a zeroed one */

/* Replaces all counts. ERR_DATA for a damaged file or one of another model, which is left as it is; the counts are all
 * zero then. A file that is not there is all zero too, and no error. */
bool usage_read(struct usage *usage, struct file_system fs, const char *path, struct err *err) MUST_CHECK;
bool usage_write(const struct usage *usage, struct write_system ws, const char *path, struct err *err) MUST_CHECK;

/* The text that another engine leaves beside a model (.coli_usage): lines of layer, expert, count. Other dimensions, a
 * newer version or another engine's mark are ERR_DATA; lines about layers without experts are left out. `has_experts`
 * [n_layers] says which have some. */
bool usage_import(struct usage *usage, struct file_system fs, const char *path, const bool *has_experts,
                  struct err *err) MUST_CHECK;

/* To and from a policy's counters. */
void usage_seed(const struct usage *usage, struct policy *policy);
void usage_take(struct usage *usage, const struct policy *policy);

/* The n keys with the highest counts, the highest first; fewer when fewer were ever asked for. Returns how many. */
uint32_t usage_top(const struct usage *usage, uint32_t *keys, uint32_t n);

#endif
