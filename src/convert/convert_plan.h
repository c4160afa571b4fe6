#ifndef CONVERT_PLAN_H
#define CONVERT_PLAN_H
/* Which source tensor becomes what, and where in which output shard it lies.
 *
 * Made from config, catalogue and options alone, before a payload byte is read, so every refusal that can come early
 * does. Outputs hold tensors in the order of their names; names decide the cut, so how the source was cut into shards
 * does not matter. Points into the catalogue; read-only once made. */
#include "base/arena.h"
#include "convert/convert.h"
#include "fmt/catalogue.h"
#include "fmt/config.h"
#include "fmt/format.h"

struct convert_tensor {
    const char *name, *scales_name;
    const struct tensor *source, *source_scale; /* the latter for FP8 only */
    enum convert_pass pass;
    enum weight_format format; /* FORMAT_F32, FORMAT_INT8_ROW, FORMAT_INT4_ROW or FORMAT_INT4_GROUPED */
    uint32_t rows, columns;    /* columns 0: a vector */
    uint32_t group;            /* 0: one scale per row */
    uint64_t payload_bytes, scale_bytes;
    uint64_t payload_at, scales_at; /* from the start of the output file */
};

struct convert_output {
    char name[32];
    enum convert_pass pass;
    const struct convert_tensor *tensors; /* [n_tensors], by name */
    uint32_t n_tensors;
    const char *header; /* [header_bytes]: the length word, the JSON and its padding */
    uint64_t header_bytes;
    uint64_t bytes;        /* of the whole file */
    uint64_t source_bytes; /* to be read for it */
};

struct convert_plan {
    struct convert_options options; /* resolved */
    struct convert_tensor *tensors; /* [n_tensors], by pass and name */
    uint32_t n_tensors;
    struct convert_output *outputs;
    uint32_t n_outputs;
    uint32_t n_unused;
    const char *unused;
    struct arena arena;
    struct alloc *alloc;
};

bool convert_plan_make(struct convert_plan *plan, struct alloc *alloc, const struct convert_options *options,
                       const struct config *config, const struct catalogue *catalogue, struct err *err) MUST_CHECK;
void convert_plan_fini(struct convert_plan *plan);

/* Bytes of one value of a source dtype; 0: one that cannot be a source. */
uint64_t convert_source_value_bytes(enum dtype dtype);

enum { CONVERT_FP8_BLOCK = 128 };

#endif
