#include "kern/x86/avx512_int.h"
#include "kern/x86/matmul_int.h"

/* The shape of matmul_avx2.c with registers twice as wide and twice as many: one register holds the sixteen lanes. */
enum {
    FEW_ROWS = 2,
    QUAD = 4,
    BLOCK_ROWS = 6, /* 4 x 6 sums, one weight and six inputs fill the thirty-two registers */
    TILE_OUT = 2 * QUAD,
    TILE_ROWS = 24,
    PANEL_COLUMNS = 512,
};

INLINE void few_grouped(enum layout layout, __m512 totals[8], const unsigned char *const w[8],
                        const float *const scales[8], const float *const x[2], size_t n_x, const struct operands *m)
{
    for (size_t g = 0, begin = 0; begin < m->n_in; g++, begin += m->group) {
        __m512 sums[8] = EIGHT_ZEROS;
        size_t end = begin + m->group < m->n_in ? begin + m->group : m->n_in;
        prefetch_columns(layout, w, 8 / n_x, begin, end, prefetch_distance(m->row_bytes, 8 / n_x));
        dot_eight(layout, sums, w, x, n_x, begin, end);
#define FOLD_IN(k) totals[k] = _mm512_fmadd_ps(sums[k], _mm512_set1_ps(scales[(k) / n_x][g]), totals[k]);
        FOLD_IN(0)
        FOLD_IN(1)
        FOLD_IN(2)
        FOLD_IN(3)
        FOLD_IN(4)
        FOLD_IN(5)
        FOLD_IN(6)
        FOLD_IN(7)
#undef FOLD_IN
    }
}

/* Rows row .. row + n_x - 1, where n_x is a constant, 1 or 2. */
INLINE void few_rows(enum layout layout, const struct operands *m, size_t row, size_t n_x)
{
    const float *x[2] = {m->x + row * m->x_stride, m->x + (row + n_x - 1) * m->x_stride};
    size_t stream = stream_columns(layout);
    for (size_t o = 0; o < m->n_out; o += 8 / n_x) {
        const unsigned char *w[8];
        const float *scales[8] = {NULL};
        __m512 sums[8] = EIGHT_ZEROS;
        float values[8];
        for (size_t k = 0; k < 8 / n_x; k++) {
            w[k] = m->w + clamp_output(m, o + k) * m->row_bytes;
            if (m->group) scales[k] = m->scales + clamp_output(m, o + k) * m->row_scales;
        }
        if (m->group) few_grouped(layout, sums, w, scales, x, n_x, m);
        for (size_t begin = 0; !m->group && begin < m->n_in; begin += stream) {
            size_t end = m->n_in - begin < stream ? m->n_in : begin + stream;
            prefetch_columns(layout, w, 8 / n_x, begin, end, prefetch_distance(m->row_bytes, 8 / n_x));
            dot_eight(layout, sums, w, x, n_x, begin, end);
        }
        for (size_t k = 0; k < 8; k++) sums[k] = to_plain_order(layout, sums[k]);
        _mm256_storeu_ps(values, fold_eight(sums));
        for (size_t k = 0; k < 8; k++)
            if (o + k / n_x < m->n_out)
                m->y[(row + k % n_x) * m->y_stride + o + k / n_x] = values[k] * row_scale(layout, m, o + k / n_x);
    }
}

struct tile {
    _Alignas(64) float sums[TILE_ROWS][TILE_OUT][KERN_LANES];
    _Alignas(64) float panel[TILE_OUT][PANEL_COLUMNS];   /* weights as integers in f32, in plain order */
    float factors[PANEL_COLUMNS / KERN_LANES][TILE_OUT]; /* scales of the panel's groups */
};

#define EACH_OUT(M, r) M(r, 0) M(r, 1) M(r, 2) M(r, 3)
#define EACH_SUM(M) EACH_OUT(M, 0) EACH_OUT(M, 1) EACH_OUT(M, 2) EACH_OUT(M, 3) EACH_OUT(M, 4) EACH_OUT(M, 5)

/* Adds columns begin .. end-1 of the panel to the sums of `n` rows (1 to 6) by four outputs. With factors the columns
 * are one group, summed on its own and then folded in. x is the first row's panel columns. */
INLINE void block(struct tile *tile, size_t row, size_t n, size_t out, const float *x, size_t x_stride, size_t begin,
                  size_t end, const float *factors)
{
    float *sums = tile->sums[row][out];
    const float *panel = tile->panel[out];
    const float *x0 = x, *x1 = x + (n > 1) * x_stride, *x2 = x1 + (n > 2) * x_stride, *x3 = x2 + (n > 3) * x_stride;
    const float *x4 = x3 + (n > 4) * x_stride, *x5 = x4 + (n > 5) * x_stride;
#define SUM(r, k) (sums + ((r)*TILE_OUT + (k)) * KERN_LANES)
#define BEGIN(r, k) __m512 s##r##k = factors || r >= n ? _mm512_setzero_ps() : _mm512_load_ps(SUM(r, k));
    EACH_SUM(BEGIN)
#undef BEGIN
    for (size_t c = begin; c < end; c += KERN_LANES) {
        __m512 w0 = _mm512_load_ps(panel + c), w1 = _mm512_load_ps(panel + PANEL_COLUMNS + c);
        __m512 w2 = _mm512_load_ps(panel + 2 * PANEL_COLUMNS + c), w3 = _mm512_load_ps(panel + 3 * PANEL_COLUMNS + c);
#define ROW(r)                                         \
    if (r < n) {                                       \
        __m512 input = _mm512_loadu_ps(x##r + c);      \
        s##r##0 = _mm512_fmadd_ps(w0, input, s##r##0); \
        s##r##1 = _mm512_fmadd_ps(w1, input, s##r##1); \
        s##r##2 = _mm512_fmadd_ps(w2, input, s##r##2); \
        s##r##3 = _mm512_fmadd_ps(w3, input, s##r##3); \
    }
        ROW(0)
        ROW(1)
        ROW(2)
        ROW(3)
        ROW(4)
        ROW(5)
#undef ROW
    }
#define END(r, k)                                                                                               \
    if (r < n) {                                                                                                \
        if (factors) s##r##k = _mm512_fmadd_ps(s##r##k, _mm512_set1_ps(factors[k]), _mm512_load_ps(SUM(r, k))); \
        _mm512_store_ps(SUM(r, k), s##r##k);                                                                    \
    }
    EACH_SUM(END)
#undef END
#undef SUM
}

/* All `columns` of the panel for n rows, a group at a time or all at once. */
INLINE void run_panel(struct tile *tile, size_t row, size_t n, const float *x, size_t x_stride, size_t columns,
                      size_t group)
{
    for (size_t out = 0; out < TILE_OUT; out += QUAD) {
        if (!group) block(tile, row, n, out, x, x_stride, 0, columns, NULL);
        for (size_t begin = 0, g = 0; group && begin < columns; begin += group, g++) {
            size_t end = begin + group < columns ? begin + group : columns;
            block(tile, row, n, out, x, x_stride, begin, end, &tile->factors[g][out]);
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
        } else if (left >= 4) {
            run_panel(tile, r, 4, input, x_stride, columns, group);
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
            for (size_t c = 0; c < columns; c += KERN_LANES) {
                __m512 weights = weights_at(layout, w, first + c, KERN_LANES);
                _mm512_store_ps(&tile->panel[k][c], to_plain_order(layout, weights));
            }
            for (size_t g = 0; m->group && g * m->group < columns; g++)
                tile->factors[g][k] = m->scales[output * m->row_scales + first / m->group + g];
        }
        run_rows(tile, n_rows, m->x + row * m->x_stride + first, m->x_stride, columns, m->group);
    }
    for (size_t r = 0; r < n_rows; r++) {
        __m512 sums[TILE_OUT];
        float values[TILE_OUT];
        for (size_t k = 0; k < TILE_OUT; k++) sums[k] = _mm512_load_ps(tile->sums[r][k]);
        _mm256_storeu_ps(values, fold_eight(sums));
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

DEFINE_MATMULS(avx512)
