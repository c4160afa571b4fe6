#ifndef KERN_MATMUL_INT_H
#define KERN_MATMUL_INT_H
/* Matrix products in f32.
 *
 * Few rows of inputs stream the weights: DOTS products at a time, unpacked in registers and used at once. Many rows
 * unpack a panel of eight outputs into the first cache level and use it for up to TILE_ROWS rows. Per output and row
 * both add the same terms to the same lanes in the same order. */
#include "kern/unroll_int.h"
#include "kern/vector/isa_int.h"
#include "kern/vector/operands_int.h"

enum {
    FEW_ROWS = 2,
    QUAD = 4,                       /* outputs of a block */
    BLOCK_ROWS = WIDE == 8 ? 3 : 6, /* their sums, a weight and the inputs fill sixteen or thirty-two registers */
    TILE_OUT = 2 * QUAD,
    TILE_ROWS = 24,
    PANEL_COLUMNS = 512,
    NEAR_BYTES = 4096,
};

/* Asks for weights that come after group g of n outputs. Where these are so short that the next ones are too near for
 * the memory, for a share of those that come after them, which lie one behind the other. */
INLINE void prefetch_group(enum layout layout, const struct operands *m, const unsigned char *const w[DOTS], size_t n,
                           size_t g, size_t begin, size_t end)
{
    size_t bytes = n * m->row_bytes, share = (bytes + m->row_scales - 1) / m->row_scales;
    if (bytes > NEAR_BYTES) prefetch_columns(layout, w, n, begin, end, prefetch_distance(m->row_bytes, n));
    for (size_t i = 0; bytes <= NEAR_BYTES && i < share; i += 64) __builtin_prefetch(w[0] + 2 * bytes + g * share + i);
}

/* Sums of n_x rows by DOTS / n_x outputs, in the order of lanes_dots. */
INLINE void few_grouped(enum layout layout, struct lanes totals[DOTS], const unsigned char *const w[DOTS],
                        const float *const scales[DOTS], const float *const x[2], size_t n_x, const struct operands *m)
{
    for (size_t g = 0, begin = 0; begin < m->n_in; g++, begin += m->group) {
        struct lanes sums[DOTS];
        size_t end = begin + m->group < m->n_in ? begin + m->group : m->n_in;
        UNROLL
        for (size_t k = 0; k < DOTS; k++) sums[k] = lanes_zero();
        prefetch_group(layout, m, w, DOTS / n_x, g, begin, end);
        lanes_dots(layout, sums, w, x, n_x, begin, end);
        UNROLL
        for (size_t k = 0; k < DOTS; k++) totals[k] = lanes_fma1(sums[k], wide_set1(scales[k / n_x][g]), totals[k]);
    }
}

/* Rows row .. row + n_x - 1, where n_x is a constant, 1 or 2. */
INLINE void few_rows(enum layout layout, const struct operands *m, size_t row, size_t n_x)
{
    const float *x[2] = {m->x + row * m->x_stride, m->x + (row + n_x - 1) * m->x_stride};
    size_t stream = stream_columns(layout);
    for (size_t o = 0; o < m->n_out; o += DOTS / n_x) {
        const unsigned char *w[DOTS];
        const float *scales[DOTS] = {NULL};
        struct lanes sums[DOTS];
        float values[DOTS];
        UNROLL
        for (size_t k = 0; k < DOTS; k++) sums[k] = lanes_zero();
        for (size_t k = 0; k < DOTS / n_x; k++) {
            w[k] = m->w + clamp_output(m, o + k) * m->row_bytes;
            if (m->group) scales[k] = m->scales + clamp_output(m, o + k) * m->row_scales;
        }
        if (m->group) few_grouped(layout, sums, w, scales, x, n_x, m);
        for (size_t begin = 0; !m->group && begin < m->n_in; begin += stream) {
            size_t end = m->n_in - begin < stream ? m->n_in : begin + stream;
            prefetch_columns(layout, w, DOTS / n_x, begin, end, prefetch_distance(m->row_bytes, DOTS / n_x));
            lanes_dots(layout, sums, w, x, n_x, begin, end);
        }
        UNROLL
        for (size_t k = 0; k < DOTS; k++) sums[k] = lanes_plain(layout, sums[k]);
        dots_store(values, lanes_fold_dots(sums));
        for (size_t k = 0; k < DOTS; k++)
            if (o + k / n_x < m->n_out)
                m->y[(row + k % n_x) * m->y_stride + o + k / n_x] = values[k] * row_scale(layout, m, o + k / n_x);
    }
}

struct tile {
    _Alignas(64) float sums[TILE_ROWS][TILE_OUT][KERN_LANES];
    _Alignas(64) float panel[TILE_OUT][PANEL_COLUMNS];   /* weights as integers in f32, in plain order */
    float factors[PANEL_COLUMNS / KERN_LANES][TILE_OUT]; /* scales of the panel's groups */
};

/* Adds columns begin .. end-1 of the panel to WIDE lanes, from `part` on, of `n` rows (1 to BLOCK_ROWS, a constant) by
 * four outputs. With factors the columns are one group, summed on its own and then folded in. x is the first row's
 * panel columns. */
INLINE void block(struct tile *tile, size_t row, size_t n, size_t out, const float *x, size_t x_stride, size_t part,
                  size_t begin, size_t end, const float *factors)
{
    const float *panel = tile->panel[out], *input[BLOCK_ROWS];
    wide s[BLOCK_ROWS][QUAD], in[BLOCK_ROWS];
    UNROLL
    for (size_t r = 0; r < n; r++) {
        input[r] = x + r * x_stride;
        UNROLL
        for (size_t k = 0; k < QUAD; k++)
            s[r][k] = factors ? wide_zero() : wide_load(&tile->sums[row + r][out + k][part]);
    }
    for (size_t c = begin + part; c < end; c += KERN_LANES) {
        UNROLL
        for (size_t r = 0; r < n; r++) in[r] = wide_load(input[r] + c);
        UNROLL
        for (size_t k = 0; k < QUAD; k++) {
            wide weight = wide_load(panel + k * PANEL_COLUMNS + c);
            UNROLL
            for (size_t r = 0; r < n; r++) s[r][k] = wide_fma(weight, in[r], s[r][k]);
        }
    }
    UNROLL
    for (size_t r = 0; r < n; r++) {
        UNROLL
        for (size_t k = 0; k < QUAD; k++) {
            float *sum = &tile->sums[row + r][out + k][part];
            wide_store(sum, factors ? wide_fma(s[r][k], wide_set1(factors[k]), wide_load(sum)) : s[r][k]);
        }
    }
}

/* All `columns` of the panel for n rows, a group at a time or all at once. */
INLINE void run_panel(struct tile *tile, size_t row, size_t n, const float *x, size_t x_stride, size_t columns,
                      size_t group)
{
    for (size_t out = 0; out < TILE_OUT; out += QUAD) {
        for (size_t part = 0; part < KERN_LANES; part += WIDE) {
            if (!group) block(tile, row, n, out, x, x_stride, part, 0, columns, NULL);
            for (size_t begin = 0, g = 0; group && begin < columns; begin += group, g++) {
                size_t end = begin + group < columns ? begin + group : columns;
                block(tile, row, n, out, x, x_stride, part, begin, end, &tile->factors[g][out]);
            }
        }
    }
}

/* The panel for all rows of the tile, in blocks of constant size: one row alone would wait for its own sums, so seven
 * are four and three, and so on. Shared by all layouts. */
static void run_rows(struct tile *tile, size_t n_rows, const float *x, size_t x_stride, size_t columns, size_t group)
{
    size_t r = 0;
    while (r < n_rows) {
        const float *input = x + r * x_stride;
        size_t left = n_rows - r;
        if (left >= BLOCK_ROWS && left != BLOCK_ROWS + 1) {
            run_panel(tile, r, BLOCK_ROWS, input, x_stride, columns, group);
            r += BLOCK_ROWS;
        } else if (BLOCK_ROWS > 4 && left >= 4) {
            run_panel(tile, r, BLOCK_ROWS > 4 ? 4 : BLOCK_ROWS, input, x_stride, columns, group);
            r += 4;
        } else if (left >= 2) {
            run_panel(tile, r, 2, input, x_stride, columns, group);
            r += 2;
        } else {
            run_panel(tile, r, 1, input, x_stride, columns, group);
            r += 1;
        }
    }
}

/* Rows row .. row + n_rows - 1 (at most TILE_ROWS) by the outputs from o on. n_in is a multiple of 16. */
INLINE void run_tile(enum layout layout, struct tile *tile, const struct operands *m, size_t row, size_t n_rows,
                     size_t o)
{
    size_t panel_columns = m->group ? PANEL_COLUMNS / m->group * m->group : PANEL_COLUMNS;
    memset(tile->sums, 0, n_rows * sizeof tile->sums[0]);
    for (size_t first = 0; first < m->n_in; first += panel_columns) {
        size_t columns = m->n_in - first < panel_columns ? m->n_in - first : panel_columns;
        for (size_t k = 0; k < TILE_OUT; k++) {
            size_t output = clamp_output(m, o + k);
            const unsigned char *w = m->w + output * m->row_bytes;
            for (size_t c = 0; c < columns; c += KERN_LANES)
                lanes_store(&tile->panel[k][c], lanes_plain(layout, lanes_of_weights(layout, w, first + c)));
            for (size_t g = 0; m->group && g * m->group < columns; g++)
                tile->factors[g][k] = m->scales[output * m->row_scales + first / m->group + g];
        }
        run_rows(tile, n_rows, m->x + row * m->x_stride + first, m->x_stride, columns, m->group);
    }
    for (size_t r = 0; r < n_rows; r++) {
        struct lanes sums[TILE_OUT];
        float values[TILE_OUT];
        for (size_t k = 0; k < TILE_OUT; k++) sums[k] = lanes_load(tile->sums[r][k]);
        for (size_t k = 0; k < TILE_OUT; k += DOTS) dots_store(values + k, lanes_fold_dots(sums + k));
        for (size_t k = 0; k < TILE_OUT && o + k < m->n_out; k++)
            m->y[(row + r) * m->y_stride + o + k] = values[k] * row_scale(layout, m, o + k);
    }
}

INLINE void matmul(enum layout layout, struct operands m, size_t n_rows)
{
    struct tile tile;
    size_t row = 0;
    /* Widths that do not fill the lanes occur in tests only, and stream. */
    while (n_rows - row > FEW_ROWS && m.n_in % KERN_LANES == 0) {
        size_t rows = n_rows - row < TILE_ROWS ? n_rows - row : TILE_ROWS;
        for (size_t o = 0; o < m.n_out; o += TILE_OUT) run_tile(layout, &tile, &m, row, rows, o);
        row += rows;
    }
    for (; n_rows - row >= 2; row += 2) few_rows(layout, &m, row, 2);
    if (n_rows - row == 1) few_rows(layout, &m, row, 1);
}

/* One function of kern.h by matmul(layout, operands, n_rows), which is inlined and sees the layout as a constant. */
#define DEFINE_MATMUL(name, isa, layout, columns_per_scale)                                                         \
    void matmul_##name##_##isa(float *y, size_t y_stride, const void *w, const float *scales, const float *x,       \
                               size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)             \
    {                                                                                                               \
        struct operands m = {.y = y, .w = w, .scales = scales, .x = x, .y_stride = y_stride, .x_stride = x_stride}; \
        (void)group;                                                                                                \
        m.n_out = n_out;                                                                                            \
        m.n_in = n_in;                                                                                              \
        m.group = columns_per_scale;                                                                                \
        m.row_bytes = layout_row_bytes(layout, n_in);                                                               \
        m.row_scales = layout_row_scales(n_in, m.group);                                                            \
        matmul(layout, m, n_rows);                                                                                  \
    }

#define DEFINE_MATMULS(isa)                              \
    DEFINE_MATMUL(f32, isa, LAYOUT_F32, 0)               \
    DEFINE_MATMUL(int8, isa, LAYOUT_INT8, 0)             \
    DEFINE_MATMUL(int4, isa, LAYOUT_INT4, 0)             \
    DEFINE_MATMUL(int4_grouped, isa, LAYOUT_INT4, group) \
    DEFINE_MATMUL(int2, isa, LAYOUT_INT2, 0)             \
    DEFINE_MATMUL(int3, isa, LAYOUT_INT3, INT3_GROUP)

#endif
