#ifndef KERN_LIMB_MATMUL_INT_H
#define KERN_LIMB_MATMUL_INT_H
/* Products of split inputs, tile by tile and block by block. How a block is added to a tile, add_block, belongs to the
 * instruction set. A tile of rows is taken through all outputs before the next: its limbs stay in the second cache
 * level, where those of the next are brought meanwhile. */
#include "kern/list_int.h"
#include "kern/vector/limb_operands_int.h"
#if defined(__AVX512F__)
#include "kern/x86/limb_avx512_int.h"
#elif defined(__AVX2__)
#include "kern/x86/limb_avx2_int.h"
#elif defined(__aarch64__)
#include "kern/arm/limb_neon_int.h"
#endif

/* What is asked for beside a tile of outputs: its share of each of the next n_rows rows, n_lines with every block. */
struct ahead {
    const unsigned char *at;
    size_t n_rows, n_lines;
};

INLINE struct ahead look_ahead(struct limbs l, const struct limb_operands *m, size_t row, size_t o)
{
    size_t next = row + ROWS;
    if (next >= m->n_rows) return (struct ahead){0};
    size_t n_blocks = (m->n_in + KERN_SPLIT_COLUMNS - 1) / KERN_SPLIT_COLUMNS;
    size_t row_lines = n_blocks * limbs_block_bytes(l) / 64, n_steps = (m->n_out + OUTS - 1) / OUTS * n_blocks;
    size_t n_lines = (row_lines + n_steps - 1) / n_steps, first = o / OUTS * n_blocks * n_lines;
    if (first >= row_lines) return (struct ahead){0};
    return (struct ahead){.at = m->split + next * m->split_stride + 64 * first,
                          .n_rows = m->n_rows - next < ROWS ? m->n_rows - next : ROWS,
                          .n_lines = n_lines};
}

INLINE void ask_ahead(struct ahead *a, size_t stride)
{
    if (a->n_rows == 0) return;
    for (size_t r = 0; r < a->n_rows; r++)
        for (size_t i = 0; i < a->n_lines; i++) __builtin_prefetch(a->at + r * stride + 64 * i, 0, 2);
    a->at += 64 * a->n_lines;
}

/* Rows row .. row + n_x - 1 by the outputs from o on. */
INLINE void run_tile(struct limbs l, const struct limb_operands *m, size_t row, size_t n_x, size_t o)
{
    struct tile t;
    struct ahead ahead = look_ahead(l, m, row, o);
    size_t bytes = layout_row_bytes(l.layout, KERN_SPLIT_COLUMNS), left = m->n_in;
    const unsigned char *block = m->split + row * m->split_stride;
    t.at = 0;
    t.distance = prefetch_distance(m->row_bytes, OUTS);
    memset(t.sums, 0, n_x * sizeof t.sums[0]);
    for (size_t k = 0; k < OUTS; k++) {
        t.w[k] = weights_of_output(m, o + k);
        t.scales[k] = scales_of_output(m, o + k);
    }
    for (; left >= KERN_SPLIT_COLUMNS; left -= KERN_SPLIT_COLUMNS, block += limbs_block_bytes(l)) {
        ask_ahead(&ahead, m->split_stride);
        add_block(l, m, &t, block, n_x, m->n_in - left);
        t.at += bytes;
    }
    if (left > 0) { /* the limbs beyond the end are 0, whatever they meet */
        unsigned char last[OUTS][KERN_SPLIT_COLUMNS];
        memset(last, 0, sizeof last);
        for (size_t k = 0; k < OUTS; k++) t.w[k] = memcpy(last[k], t.w[k] + t.at, layout_row_bytes(l.layout, left));
        t.at = 0;
        add_block(l, m, &t, block, n_x, m->n_in - left);
    }
    size_t n_outs = m->n_out - o < OUTS ? m->n_out - o : OUTS;
    for (size_t r = 0; r < n_x; r++) {
        float values[OUTS];
        for (size_t k = 0; k < OUTS; k += DOTS) dots_store(values + k, lanes_fold_dots(t.sums[r] + k));
        for (size_t k = 0; k < n_outs; k++)
            m->y[(row + r) * m->y_stride + o + k] = m->is_grouped ? values[k] : values[k] * m->scales[o + k];
    }
}

INLINE void limb_matmul(struct limbs l, struct limb_operands m)
{
    for (size_t o = 0; m.n_rows == 1 && o < m.n_out; o += OUTS) run_tile(l, &m, 0, 1, o); /* without a loop over rows */
    for (size_t row = 0; m.n_rows > 1 && row < m.n_rows; row += ROWS)
        for (size_t o = 0; o < m.n_out; o += OUTS)
            run_tile(l, &m, row, m.n_rows - row < ROWS ? m.n_rows - row : ROWS, o);
}

/* One function of kern.h by limb_matmul(limbs, operands), which is inlined and sees the limbs, and a group of 0, as
 * constants. */
#define DEFINE_LIMB_MATMUL(name, isa, layout, n_limbs, grouped)                                                     \
    void matmul_limb##n_limbs##_##name##_##isa(float *y, size_t y_stride, const void *w, const float *scales,       \
                                               const void *split, size_t split_stride, size_t n_rows, size_t n_out, \
                                               size_t n_in, size_t group)                                           \
    {                                                                                                               \
        struct limb_operands m = {.y = y, .w = w, .split = split, .scales = scales, .split_stride = split_stride};  \
        m.y_stride = y_stride;                                                                                      \
        m.n_rows = n_rows;                                                                                          \
        m.n_out = n_out;                                                                                            \
        m.n_in = n_in;                                                                                              \
        m.group = group;                                                                                            \
        m.is_grouped = grouped;                                                                                     \
        m.row_bytes = layout_row_bytes(layout, n_in);                                                               \
        m.row_scales = layout_row_scales(n_in, (grouped) ? group : 0);                                              \
        limb_matmul((struct limbs){layout, n_limbs}, m);                                                            \
    }

#define DEFINE_LIMB_MATMULS(isa)                                \
    DEFINE_LIMB_MATMUL(int4, isa, LAYOUT_INT4, 3, false)        \
    DEFINE_LIMB_MATMUL(int4_grouped, isa, LAYOUT_INT4, 3, true) \
    DEFINE_LIMB_MATMUL(int4, isa, LAYOUT_INT4, 1, false)        \
    DEFINE_LIMB_MATMUL(int4_grouped, isa, LAYOUT_INT4, 1, true) \
    DEFINE_LIMB_MATMUL(int8, isa, LAYOUT_INT8, 1, false)

#endif
