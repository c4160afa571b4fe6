#ifndef FMT_FORMAT_H
#define FMT_FORMAT_H
/* How the numbers of a weight matrix are stored, and how a stored tensor's format is found.
 *
 * A container names no formats: they follow from the logical shape and the byte counts. A Hugging Face checkpoint
 * names them by dtype. One table (format.c) gives the geometry of each. */
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum weight_format {
    FORMAT_F32,
    FORMAT_F16,
    FORMAT_BF16,
    FORMAT_FP8_BLOCK, /* e4m3 with one f32 factor per 128 x 128 block; checkpoints only */
    FORMAT_INT8_ROW,
    FORMAT_INT4_ROW,     /* two values a byte, even column in the low nibble, stored value + 8 */
    FORMAT_INT4_GROUPED, /* the same with one scale per `group` columns */
    FORMAT_INT2_ROW,
    FORMAT_INT3_G64,
    FORMAT_COUNT,
};

const char *format_name(enum weight_format format); /* "int4-row" */

/* Bytes of one row of `columns` values, and how many f32 scales `rows` rows of it have. */
uint64_t format_row_bytes(enum weight_format format, uint64_t columns);
uint64_t format_scales(enum weight_format format, uint64_t rows, uint64_t columns, uint32_t group);

/* Whether anybody writes a format of this name, we or others: what a stamp may say. */
bool format_is_known(const char *name);

/* A matrix in memory in its disk layout: what kernels read. Borrowed, never owned: whoever lent it says for how long.
 *   payload [rows][format_row_bytes], no alignment promised; scales [format_scales], aligned to 4 bytes. */
struct matrix {
    enum weight_format format;
    uint32_t rows, columns; /* outputs, inputs */
    uint32_t group;         /* columns per scale; 0 when the scale is per row or block, or there is none */
    const void *payload;    /* NULL: this weight is absent */
    const float *scales;
};

/* Container rule: format from the sizes of the U8 payload and of its F32 scales. `stamp` is the name from the optional
 * metadata stamp, or NULL. On failure the message says what was expected and found; the caller adds the tensor. */
bool format_resolve(enum weight_format *format, uint32_t *group, uint32_t rows, uint32_t columns,
                    uint64_t payload_bytes, uint64_t scale_bytes, const char *stamp, struct err *err) MUST_CHECK;

#endif
