#ifndef CONVERT_OUTPUT_H
#define CONVERT_OUTPUT_H
/* One output shard, from source bytes to a durable file with a digest. */
#include "convert/convert_plan.h"
#include "convert/convert_record.h"

/* Buffers that serve all outputs, sized by convert_maker_init. Owned by one thread. */
struct convert_maker {
    const struct convert_job *job;
    const struct convert_plan *plan;
    const struct catalogue *catalogue;
    float *weights;      /* [block_values] */
    uint8_t *raw;        /* [2 * block_values]: 8- and 16-bit source values */
    float *factors;      /* FP8: the block factors of the rows at hand */
    uint8_t *payload;    /* [block_values] at most */
    float *scales;       /* of the rows at hand */
    uint8_t *buffers[2]; /* writes are gathered, for the F32 and for the U8 region */
    uint64_t block_values;
};

/* Called with the number of source bytes just read. A false stops, with the reason in err. */
typedef bool convert_tick_fn(void *context, const struct convert_output *output, uint64_t source_bytes,
                             struct err *err);

bool convert_maker_init(struct convert_maker *maker, const struct convert_job *job, const struct convert_plan *plan,
                        const struct catalogue *catalogue, struct err *err) MUST_CHECK;
void convert_maker_fini(struct convert_maker *maker);

/* Writes PATH whole or not at all. */
bool convert_maker_make(struct convert_maker *maker, const struct convert_output *output, const char *path,
                        struct convert_made *made, convert_tick_fn *tick, void *tick_context,
                        struct err *err) MUST_CHECK;

#endif
