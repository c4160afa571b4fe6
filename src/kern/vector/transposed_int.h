#ifndef KERN_TRANSPOSED_INT_H
#define KERN_TRANSPOSED_INT_H
/* Sums over the rows of a weight matrix, and rows unpacked. Element by element there is nothing to fold. Weights come
 * once from memory, TILE_BYTES of rows at a time, and while a tile is in the first cache level the sums of some columns
 * stay in registers for all of its rows. Between tiles they lie in y, in register order. */
#include "kern/list_int.h"
#include "kern/unroll_int.h"
#include "kern/vector/isa_int.h"

enum {
    TILE_BYTES = 2048,
    TILE_ROWS_MAX = 32,
    WIDE_BLOCK = WIDE == 16 ? 8 : 4, /* sixteens of columns whose sums fill the registers */
    SMALL_BLOCK = 4,
};

struct sums {
    enum layout layout;
    float *y;
    const unsigned char *w;
    const float *scales, *c;
    size_t n_out, n_in, group, row_bytes, row_scales;
};

/* Coefficients of `n` rows for columns of scale g. */
INLINE void scale_coefficients(float *scaled, const struct sums *s, size_t row, size_t n, size_t g)
{
    for (size_t k = 0; k < n; k++)
        scaled[k] = s->layout == LAYOUT_F32 ? s->c[row + k] : s->c[row + k] * s->scales[(row + k) * s->row_scales + g];
}

/* Adds `n` rows from `row` on to n_lanes (a constant) sixteens of columns from `column` on. */
INLINE void add_block(enum layout layout, const struct sums *s, const float *scaled, size_t row, size_t n,
                      size_t column, size_t n_lanes)
{
    const unsigned char *w = s->w + row * s->row_bytes;
    struct lanes sum[WIDE_BLOCK];
    UNROLL
    for (size_t i = 0; i < n_lanes; i++) sum[i] = lanes_load(s->y + column + i * KERN_LANES);
    for (size_t k = 0; k < n; k++, w += s->row_bytes) {
        wide coefficient = wide_set1(scaled[k]);
        UNROLL
        for (size_t i = 0; i < n_lanes; i++)
            sum[i] = lanes_fma1(lanes_of_weights(layout, w, column + i * KERN_LANES), coefficient, sum[i]);
    }
    UNROLL
    for (size_t i = 0; i < n_lanes; i++) lanes_store(s->y + column + i * KERN_LANES, sum[i]);
}

/* Columns begin .. end-1, which share a scale. */
INLINE void add_columns(enum layout layout, const struct sums *s, const float *scaled, size_t row, size_t n,
                        size_t begin, size_t end)
{
    size_t i = begin;
    for (; i + WIDE_BLOCK * KERN_LANES <= end; i += WIDE_BLOCK * KERN_LANES)
        add_block(layout, s, scaled, row, n, i, WIDE_BLOCK);
    for (; i + SMALL_BLOCK * KERN_LANES <= end; i += SMALL_BLOCK * KERN_LANES)
        add_block(layout, s, scaled, row, n, i, SMALL_BLOCK);
    for (; i + KERN_LANES <= end; i += KERN_LANES) add_block(layout, s, scaled, row, n, i, 1);
    for (; i < end; i++)
        for (size_t k = 0; k < n; k++)
            s->y[i] = fmaf(scaled[k], layout_value(layout, s->w + (row + k) * s->row_bytes, i), s->y[i]);
}

/* Asks for some bytes of weights, as far as there are. */
INLINE void fetch_bytes(const struct sums *s, size_t begin, size_t bytes)
{
    size_t all = s->n_out * s->row_bytes, end = begin + bytes < all ? begin + bytes : all;
    for (size_t at = begin; at < end; at += 64) __builtin_prefetch(s->w + at);
}

/* A step is the columns of one group, or a block of them where a row has one scale. With each step goes a share of the
 * next tile, which is asked for: all of it at once would fill the queue to the memory. */
INLINE void transposed(enum layout layout, struct sums s)
{
    size_t step = s.group ? s.group : WIDE_BLOCK * KERN_LANES, n_steps = (s.n_in + step - 1) / step;
    size_t tile = TILE_BYTES / s.row_bytes, n;
    tile = tile < SMALL_BLOCK ? SMALL_BLOCK : tile < TILE_ROWS_MAX ? tile : TILE_ROWS_MAX;
    size_t share = (tile * s.row_bytes + n_steps - 1) / n_steps;
    memset(s.y, 0, s.n_in * sizeof *s.y);
    for (size_t row = 0; row < s.n_out; row += n) {
        n = s.n_out - row < tile ? s.n_out - row : tile;
        for (size_t k = 0; k < n_steps; k++) {
            float scaled[TILE_ROWS_MAX];
            size_t begin = k * step, end = s.n_in - begin < step ? s.n_in : begin + step;
            fetch_bytes(&s, (row + n) * s.row_bytes + k * share, share);
            scale_coefficients(scaled, &s, row, n, s.group ? k : 0);
            add_columns(layout, &s, scaled, row, n, begin, end);
        }
    }
    for (size_t i = 0; i + KERN_LANES <= s.n_in; i += KERN_LANES)
        lanes_store(s.y + i, lanes_plain(layout, lanes_load(s.y + i)));
}

INLINE void unpack(enum layout layout, float *y, const void *w, const float *scales, size_t n_in, size_t group)
{
    size_t step = group ? group : n_in;
    for (size_t g = 0; g * step < n_in; g++) {
        size_t i = g * step, end = (g + 1) * step < n_in ? (g + 1) * step : n_in;
        float scale = scales[g];
        for (; i + KERN_LANES <= end; i += KERN_LANES) {
            struct lanes values = lanes_mul(lanes_of_weights(layout, w, i), lanes_set1(scale));
            lanes_store(y + i, lanes_plain(layout, values));
        }
        for (; i < end; i++) y[i] = layout_value(layout, w, i) * scale;
    }
}

#define DEFINE_TRANSPOSED(name, isa, layout_of_rows, columns_per_scale)                                               \
    void matmul_transposed_##name##_##isa(float *y, const void *w, const float *scales, const float *c, size_t n_out, \
                                          size_t n_in, size_t group)                                                  \
    {                                                                                                                 \
        struct sums s = {.layout = layout_of_rows, .y = y, .w = w, .scales = scales, .c = c};                         \
        (void)group;                                                                                                  \
        s.n_out = n_out;                                                                                              \
        s.n_in = n_in;                                                                                                \
        s.group = columns_per_scale;                                                                                  \
        s.row_bytes = layout_row_bytes(layout_of_rows, n_in);                                                         \
        s.row_scales = layout_row_scales(n_in, s.group);                                                              \
        transposed(layout_of_rows, s);                                                                                \
    }

#define DEFINE_TRANSPOSEDS(isa)                              \
    DEFINE_TRANSPOSED(f32, isa, LAYOUT_F32, 0)               \
    DEFINE_TRANSPOSED(int8, isa, LAYOUT_INT8, 0)             \
    DEFINE_TRANSPOSED(int4, isa, LAYOUT_INT4, 0)             \
    DEFINE_TRANSPOSED(int4_grouped, isa, LAYOUT_INT4, group) \
    DEFINE_TRANSPOSED(int2, isa, LAYOUT_INT2, 0)             \
    DEFINE_TRANSPOSED(int3, isa, LAYOUT_INT3, INT3_GROUP)

#define DEFINE_UNPACK(name, isa, layout, columns_per_scale)                                             \
    void unpack_##name##_##isa(float *y, const void *w, const float *scales, size_t n_in, size_t group) \
    {                                                                                                   \
        (void)group;                                                                                    \
        unpack(layout, y, w, scales, n_in, columns_per_scale);                                          \
    }

#define DEFINE_UNPACKS(isa)                                                                        \
    void unpack_f32_##isa(float *y, const void *w, const float *scales, size_t n_in, size_t group) \
    {                                                                                              \
        (void)scales, (void)group;                                                                 \
        memcpy(y, w, n_in * sizeof *y);                                                            \
    }                                                                                              \
    DEFINE_UNPACK(int8, isa, LAYOUT_INT8, 0)                                                       \
    DEFINE_UNPACK(int4, isa, LAYOUT_INT4, 0)                                                       \
    DEFINE_UNPACK(int4_grouped, isa, LAYOUT_INT4, group)                                           \
    DEFINE_UNPACK(int2, isa, LAYOUT_INT2, 0)                                                       \
    DEFINE_UNPACK(int3, isa, LAYOUT_INT3, INT3_GROUP)

#endif
