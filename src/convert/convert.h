#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H
/* A Hugging Face checkpoint (BF16, F16, F32, or FP8 with block scales) to an int4/int8 container.
 *
 * The output is a function of source and options only: not of the machine, the block size, or how often the work was
 * interrupted. Each output shard is complete and durable when it gets its name; the manifest (.weir-convert.json in
 * the destination, weir-conversion.json when everything is done) says what is finished, from which source and with
 * which options. A later run with the same goes on, with others is refused. One conversion at a time per folder.
 *
 * Memory: the plan (names and headers, about 1 KB per tensor) plus about 12 bytes for each of block_values, whatever
 * the size of a tensor. Single threaded; prints nothing. */
#include "plat/clock.h"
#include "plat/file.h"
#include "plat/file_write.h"

enum convert_pass { CONVERT_MAIN, CONVERT_MTP, CONVERT_INDEXER, CONVERT_PASSES };

const char *convert_pass_name(enum convert_pass pass); /* "main", "mtp", "indexer" */

struct convert_options {
    uint32_t passes;        /* bit 1 << enum convert_pass; 0: all that the source has */
    uint32_t bits;          /* main matrices but embedding, head and experts: 4 or 8 */
    uint32_t expert_bits;   /* routed experts; 0: as bits */
    uint32_t io_bits;       /* embedding and head */
    uint32_t group;         /* columns per scale of 4-bit rows: a size that readers look for; 0: one scale per row */
    bool keep_mtp_indexer;  /* the MTP layer's own indexer, which engines may ignore, goes into the indexer pass */
    uint64_t shard_bytes;   /* an output shard's data ends before it would pass this; one expert is never split */
    uint64_t block_values;  /* weights held at once; a row is never split */
    uint64_t reserve_bytes; /* room that must stay free on the destination's disk */
};

struct convert_options convert_options_default(void);

struct convert_tensor_counts {
    uint32_t quantised, kept; /* kept: as F32 */
};

/* What will be made, told before the first byte is read. */
struct convert_summary {
    struct convert_options options; /* with no zeros left that stand for something else */
    uint32_t n_outputs;
    uint32_t n_outputs_done; /* by an earlier run */
    struct convert_tensor_counts tensors[CONVERT_PASSES];
    uint64_t pass_bytes[CONVERT_PASSES]; /* of the output, headers included */
    uint64_t source_bytes;               /* still to be read */
    uint32_t n_unused;                   /* tensors of the source that go nowhere */
    const char *unused;                  /* one of them, or NULL */
};

struct convert_progress {
    const char *output;
    uint32_t output_number, n_outputs;        /* from 1 */
    uint64_t source_bytes_done, source_bytes; /* of this run */
    double bytes_per_second;                  /* 0 while unknown */
    double seconds_left;                      /* negative while unknown */
};

/* Both may be NULL. A false stops the conversion with ERR_CANCELLED; what is finished stays. */
struct convert_watch {
    void *context;
    bool (*planned)(void *context, const struct convert_summary *summary);
    bool (*progress)(void *context, const struct convert_progress *progress);
};

struct convert_job {
    const char *source, *destination; /* folders */
    struct convert_options options;
    struct convert_watch watch;
    struct alloc *alloc;
    struct file_system fs;
    struct write_system ws;
    struct clock clock;
};

struct convert_result {
    uint32_t n_outputs;
    uint64_t bytes;    /* of all outputs */
    double worst_loss; /* relative error of the matrix that suffered most */
    char worst_tensor[256];
};

bool convert_folder(const struct convert_job *job, struct convert_result *result, struct err *err) MUST_CHECK;

#endif
