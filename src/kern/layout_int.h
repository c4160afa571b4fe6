#ifndef KERN_LAYOUT_INT_H
#define KERN_LAYOUT_INT_H
/* Bit layouts of the weight rows, one value at a time: the reference's view, and what vector kernels use for the last
 * columns of a row. Values are small integers and exact in f32; scales are the caller's. Rows start at any byte. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum layout {
    LAYOUT_F32,
    LAYOUT_INT8,
    LAYOUT_INT4, /* even column in the low nibble, stored value + 8 */
    LAYOUT_INT3, /* 64 columns in 24 bytes: 16 bytes of two low bits each, 8 bytes of third bits, stored value + 4 */
    LAYOUT_INT2, /* column 4k + m in bits 2m and 2m + 1, stored value + 2 */
};

enum { INT3_GROUP = 64, INT3_BLOCK_BYTES = 24, INT3_LOW_BYTES = 16 };

static inline size_t layout_row_bytes(enum layout layout, size_t n_in)
{
    switch (layout) {
    case LAYOUT_F32: return 4 * n_in;
    case LAYOUT_INT8: return n_in;
    case LAYOUT_INT4: return n_in / 2 + n_in % 2;
    case LAYOUT_INT3: return (n_in + INT3_GROUP - 1) / INT3_GROUP * INT3_BLOCK_BYTES;
    case LAYOUT_INT2: return (n_in + 3) / 4;
    }
    return 0;
}

static inline float layout_value(enum layout layout, const unsigned char *row, size_t i)
{
    switch (layout) {
    case LAYOUT_F32: {
        float value;
        memcpy(&value, row + 4 * i, sizeof value);
        return value;
    }
    case LAYOUT_INT8: return (float)(row[i] < 128 ? (int)row[i] : (int)row[i] - 256);
    case LAYOUT_INT4: return (float)((row[i / 2] >> (4 * (i % 2)) & 15) - 8);
    case LAYOUT_INT3: {
        const unsigned char *block = row + i / INT3_GROUP * INT3_BLOCK_BYTES;
        size_t k = i % INT3_GROUP;
        int low = block[k / 4] >> (2 * (k % 4)) & 3;
        int high = block[INT3_LOW_BYTES + k / 8] >> (k % 8) & 1;
        return (float)((low | high << 2) - 4);
    }
    case LAYOUT_INT2: return (float)((row[i / 4] >> (2 * (i % 4)) & 3) - 2);
    }
    return 0;
}

/* Scales of one row: one per row when the group is 0. */
static inline size_t layout_row_scales(size_t n_in, size_t group)
{
    return group ? (n_in + group - 1) / group : 1;
}

#endif
