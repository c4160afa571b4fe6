#include "kern/list_int.h"
#include "kern/x86/avx2_int.h"

/* One row of inputs streams the weights: four outputs at a time, unpacked in registers and used at once. Many rows
 * unpack a panel of four outputs into the first cache level and use it for up to TILE_ROWS rows. Per output and row
 * both add the same terms to the same lanes in the same order. */
enum {
    TILE_OUT = 4,
    TILE_ROWS = 24,
    BLOCK_ROWS = 3,      /* 4 x 3 sums of eight lanes, four weights and one input fill the sixteen registers */
    PANEL_COLUMNS = 768, /* a multiple of every group */
};

struct operands {
    const unsigned char *w;
    const float *scales, *x;
    size_t row_bytes, row_scales, x_stride, n_out, n_in, group;
};

/* Four outputs beginning at o; where fewer are left the last is repeated, and not stored. */
INLINE void rows_at(const struct operands *m, size_t o, const unsigned char *rows[4], const float *scales[4])
{
    for (size_t k = 0; k < 4; k++) {
        size_t row = o + k < m->n_out ? o + k : m->n_out - 1;
        rows[k] = m->w + row * m->row_bytes;
        scales[k] = m->scales ? m->scales + row * m->row_scales : NULL;
    }
}

INLINE void store_four(float *y, __m128 sums, size_t count)
{
    float values[4];
    _mm_storeu_ps(values, sums);
    memcpy(y, values, (count < 4 ? count : 4) * sizeof *y);
}

INLINE __m128 scale_four(enum layout layout, __m128 sums, const float *const scales[4], size_t group)
{
    if (layout == LAYOUT_F32 || group) return sums;
    return _mm_mul_ps(sums, _mm_setr_ps(*scales[0], *scales[1], *scales[2], *scales[3]));
}

INLINE void dot4_grouped(enum layout layout, struct lanes totals[4], const unsigned char *const rows[4],
                         const float *const scales[4], const float *x, size_t n_in, size_t group)
{
    for (size_t g = 0, begin = 0; begin < n_in; g++, begin += group) {
        struct lanes sums[4] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
        size_t end = begin + group < n_in ? begin + group : n_in;
        lanes_dot4(layout, sums, rows, x, begin, end);
        totals[0] = lanes_fma1(sums[0], _mm256_broadcast_ss(scales[0] + g), totals[0]);
        totals[1] = lanes_fma1(sums[1], _mm256_broadcast_ss(scales[1] + g), totals[1]);
        totals[2] = lanes_fma1(sums[2], _mm256_broadcast_ss(scales[2] + g), totals[2]);
        totals[3] = lanes_fma1(sums[3], _mm256_broadcast_ss(scales[3] + g), totals[3]);
    }
}

INLINE void one_row(enum layout layout, float *y, const struct operands *m, const float *x, size_t group)
{
    for (size_t o = 0; o < m->n_out; o += 4) {
        const unsigned char *rows[4];
        const float *scales[4];
        struct lanes sums[4] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
        rows_at(m, o, rows, scales);
        if (group)
            dot4_grouped(layout, sums, rows, scales, x, m->n_in, group);
        else
            lanes_dot4(layout, sums, rows, x, 0, m->n_in);
        store_four(y + o, scale_four(layout, lanes_fold4(sums), scales, group), m->n_out - o);
    }
}

struct tile {
    _Alignas(32) float sums[TILE_ROWS][TILE_OUT][KERN_LANES];
    _Alignas(32) float panel[TILE_OUT][PANEL_COLUMNS]; /* weights as integers in f32 */
};

/* Adds columns begin .. end-1 of the panel to the sums of `n` rows (1 to 3) by way of eight lanes at a time. With
 * factors the columns are one group, summed on its own and then folded in. x is the first row's panel columns. */
INLINE void block(struct tile *tile, size_t row, size_t n, const float *x, size_t x_stride, size_t begin, size_t end,
                  const float *factors)
{
    const float *x0 = x, *x1 = n > 1 ? x + x_stride : x, *x2 = n > 2 ? x + 2 * x_stride : x;
    for (size_t half = 0; half < KERN_LANES; half += 8) {
        __m256 s[BLOCK_ROWS][TILE_OUT];
        for (size_t r = 0; r < BLOCK_ROWS; r++)
            for (size_t k = 0; k < TILE_OUT; k++)
                s[r][k] = factors || r >= n ? _mm256_setzero_ps() : _mm256_load_ps(&tile->sums[row + r][k][half]);
        __m256 s00 = s[0][0], s01 = s[0][1], s02 = s[0][2], s03 = s[0][3];
        __m256 s10 = s[1][0], s11 = s[1][1], s12 = s[1][2], s13 = s[1][3];
        __m256 s20 = s[2][0], s21 = s[2][1], s22 = s[2][2], s23 = s[2][3];
        for (size_t c = begin + half; c < end; c += KERN_LANES) {
            __m256 w0 = _mm256_load_ps(&tile->panel[0][c]), w1 = _mm256_load_ps(&tile->panel[1][c]);
            __m256 w2 = _mm256_load_ps(&tile->panel[2][c]), w3 = _mm256_load_ps(&tile->panel[3][c]);
            __m256 input = _mm256_loadu_ps(x0 + c);
            s00 = _mm256_fmadd_ps(w0, input, s00);
            s01 = _mm256_fmadd_ps(w1, input, s01);
            s02 = _mm256_fmadd_ps(w2, input, s02);
            s03 = _mm256_fmadd_ps(w3, input, s03);
            if (n > 1) {
                input = _mm256_loadu_ps(x1 + c);
                s10 = _mm256_fmadd_ps(w0, input, s10);
                s11 = _mm256_fmadd_ps(w1, input, s11);
                s12 = _mm256_fmadd_ps(w2, input, s12);
                s13 = _mm256_fmadd_ps(w3, input, s13);
            }
            if (n > 2) {
                input = _mm256_loadu_ps(x2 + c);
                s20 = _mm256_fmadd_ps(w0, input, s20);
                s21 = _mm256_fmadd_ps(w1, input, s21);
                s22 = _mm256_fmadd_ps(w2, input, s22);
                s23 = _mm256_fmadd_ps(w3, input, s23);
            }
        }
        s[0][0] = s00, s[0][1] = s01, s[0][2] = s02, s[0][3] = s03;
        s[1][0] = s10, s[1][1] = s11, s[1][2] = s12, s[1][3] = s13;
        s[2][0] = s20, s[2][1] = s21, s[2][2] = s22, s[2][3] = s23;
        for (size_t r = 0; r < n; r++) {
            for (size_t k = 0; k < TILE_OUT; k++) {
                float *sum = &tile->sums[row + r][k][half];
                __m256 total = s[r][k];
                if (factors) total = _mm256_fmadd_ps(total, _mm256_set1_ps(factors[k]), _mm256_load_ps(sum));
                _mm256_store_ps(sum, total);
            }
        }
    }
}

INLINE void blocks(struct tile *tile, size_t n_rows, const float *x, size_t x_stride, size_t begin, size_t end,
                   const float *factors)
{
    size_t r = 0;
    for (; r + BLOCK_ROWS <= n_rows; r += BLOCK_ROWS)
        block(tile, r, 3, x + r * x_stride, x_stride, begin, end, factors);
    if (n_rows - r == 2) block(tile, r, 2, x + r * x_stride, x_stride, begin, end, factors);
    if (n_rows - r == 1) block(tile, r, 1, x + r * x_stride, x_stride, begin, end, factors);
}

/* Rows row .. row + n_rows - 1 (at most TILE_ROWS) by four outputs beginning at o. n_in is a multiple of 16. */
INLINE void run_tile(enum layout layout, struct tile *tile, float *y, size_t y_stride, const struct operands *m,
                     size_t row, size_t n_rows, size_t o, size_t group)
{
    const unsigned char *rows[4];
    const float *scales[4];
    rows_at(m, o, rows, scales);
    memset(tile->sums, 0, n_rows * sizeof tile->sums[0]);
    for (size_t first = 0; first < m->n_in; first += PANEL_COLUMNS) {
        size_t columns = m->n_in - first < PANEL_COLUMNS ? m->n_in - first : PANEL_COLUMNS;
        const float *x = m->x + row * m->x_stride + first;
        for (size_t k = 0; k < TILE_OUT; k++)
            for (size_t c = 0; c < columns; c += KERN_LANES)
                lanes_store(&tile->panel[k][c], lanes_of_weights(layout, rows[k], first + c));
        if (!group) {
            blocks(tile, n_rows, x, m->x_stride, 0, columns, NULL);
            continue;
        }
        for (size_t begin = 0; begin < columns; begin += group) {
            size_t end = begin + group < columns ? begin + group : columns, g = (first + begin) / group;
            float factors[4] = {scales[0][g], scales[1][g], scales[2][g], scales[3][g]};
            blocks(tile, n_rows, x, m->x_stride, begin, end, factors);
        }
    }
    for (size_t r = 0; r < n_rows; r++) {
        struct lanes sums[4];
        for (size_t k = 0; k < TILE_OUT; k++) sums[k] = lanes_load(tile->sums[r][k]);
        store_four(y + (row + r) * y_stride + o, scale_four(layout, lanes_fold4(sums), scales, group), m->n_out - o);
    }
}

INLINE void matmul(enum layout layout, float *y, size_t y_stride, const void *w, const float *scales, const float *x,
                   size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    struct operands m = {.w = w, .scales = layout == LAYOUT_F32 ? NULL : scales, .x = x, .x_stride = x_stride};
    struct tile tile;
    m.row_bytes = layout_row_bytes(layout, n_in);
    m.row_scales = layout_row_scales(n_in, group);
    m.n_out = n_out;
    m.n_in = n_in;
    if (n_rows == 1 || n_in % KERN_LANES != 0) { /* odd widths occur in tests only, and go row by row */
        for (size_t r = 0; r < n_rows; r++) one_row(layout, y + r * y_stride, &m, x + r * x_stride, group);
        return;
    }
    for (size_t row = 0; row < n_rows; row += TILE_ROWS) {
        size_t rows = n_rows - row < TILE_ROWS ? n_rows - row : TILE_ROWS;
        for (size_t o = 0; o < n_out; o += TILE_OUT) run_tile(layout, &tile, y, y_stride, &m, row, rows, o, group);
    }
}

#define DEFINE(name, layout, columns_per_scale)                                                              \
    void matmul_##name##_avx2(float *y, size_t y_stride, const void *w, const float *scales, const float *x, \
                              size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)       \
    {                                                                                                        \
        (void)group;                                                                                         \
        matmul(layout, y, y_stride, w, scales, x, x_stride, n_rows, n_out, n_in, columns_per_scale);         \
    }

DEFINE(f32, LAYOUT_F32, 0)
DEFINE(int8, LAYOUT_INT8, 0)
DEFINE(int4, LAYOUT_INT4, 0)
DEFINE(int4_grouped, LAYOUT_INT4, group)
DEFINE(int2, LAYOUT_INT2, 0)
DEFINE(int3, LAYOUT_INT3, INT3_GROUP)
