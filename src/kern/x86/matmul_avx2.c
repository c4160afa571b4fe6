#include "kern/x86/avx2_int.h"
#include "kern/x86/matmul_int.h"

/* Few rows of inputs stream the weights: four products at a time, unpacked in registers and used at once. Many rows
 * unpack a panel of eight outputs into the first cache level and use it for up to TILE_ROWS rows. Per output and row
 * both add the same terms to the same lanes in the same order. */
enum {
    FEW_ROWS = 2,
    QUAD = 4,       /* outputs of a block */
    BLOCK_ROWS = 3, /* 4 x 3 sums of eight lanes, one weight and three inputs fill the sixteen registers */
    TILE_OUT = 2 * QUAD,
    TILE_ROWS = 24,
    PANEL_COLUMNS = 512,
};

/* Sums of n_x rows by 4 / n_x outputs, in the order of lanes_dot4. */
INLINE void few_grouped(enum layout layout, struct lanes totals[4], const unsigned char *const w[4],
                        const float *const scales[4], const float *const x[2], size_t n_x, const struct operands *m)
{
    for (size_t g = 0, begin = 0; begin < m->n_in; g++, begin += m->group) {
        struct lanes sums[4] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
        size_t end = begin + m->group < m->n_in ? begin + m->group : m->n_in;
        prefetch_columns(layout, w, 4 / n_x, begin, end, prefetch_distance(m->row_bytes, 4 / n_x));
        lanes_dot4(layout, sums, w, x, n_x, begin, end);
        totals[0] = lanes_fma1(sums[0], _mm256_broadcast_ss(scales[0] + g), totals[0]);
        totals[1] = lanes_fma1(sums[1], _mm256_broadcast_ss(scales[1 / n_x] + g), totals[1]);
        totals[2] = lanes_fma1(sums[2], _mm256_broadcast_ss(scales[2 / n_x] + g), totals[2]);
        totals[3] = lanes_fma1(sums[3], _mm256_broadcast_ss(scales[3 / n_x] + g), totals[3]);
    }
}

/* Rows row .. row + n_x - 1, where n_x is a constant, 1 or 2. */
INLINE void few_rows(enum layout layout, const struct operands *m, size_t row, size_t n_x)
{
    const float *x[2] = {m->x + row * m->x_stride, m->x + (row + n_x - 1) * m->x_stride};
    size_t stream = stream_columns(layout);
    for (size_t o = 0; o < m->n_out; o += 4 / n_x) {
        const unsigned char *w[4];
        const float *scales[4] = {NULL};
        struct lanes sums[4] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
        float values[4];
        for (size_t k = 0; k < 4 / n_x; k++) {
            w[k] = m->w + clamp_output(m, o + k) * m->row_bytes;
            if (m->group) scales[k] = m->scales + clamp_output(m, o + k) * m->row_scales;
        }
        if (m->group) few_grouped(layout, sums, w, scales, x, n_x, m);
        for (size_t begin = 0; !m->group && begin < m->n_in; begin += stream) {
            size_t end = m->n_in - begin < stream ? m->n_in : begin + stream;
            prefetch_columns(layout, w, 4 / n_x, begin, end, prefetch_distance(m->row_bytes, 4 / n_x));
            lanes_dot4(layout, sums, w, x, n_x, begin, end);
        }
        _mm_storeu_ps(values, lanes_fold4(sums));
        for (size_t k = 0; k < 4; k++)
            if (o + k / n_x < m->n_out)
                m->y[(row + k % n_x) * m->y_stride + o + k / n_x] = values[k] * row_scale(layout, m, o + k / n_x);
    }
}

struct tile {
    _Alignas(32) float sums[TILE_ROWS][TILE_OUT][KERN_LANES];
    _Alignas(32) float panel[TILE_OUT][PANEL_COLUMNS];   /* weights as integers in f32 */
    float factors[PANEL_COLUMNS / KERN_LANES][TILE_OUT]; /* scales of the panel's groups */
};

#define EACH_OUT(M, r) M(r, 0) M(r, 1) M(r, 2) M(r, 3)

/* Adds columns begin .. end-1 of the panel to eight lanes, from `half` on, of `n` rows (1 to 3) by four outputs. With
 * factors the columns are one group, summed on its own and then folded in. x is the first row's panel columns. */
INLINE void block(struct tile *tile, size_t row, size_t n, size_t out, const float *x, size_t x_stride, size_t half,
                  size_t begin, size_t end, const float *factors)
{
    float *sums = &tile->sums[row][out][half];
    const float *panel = tile->panel[out];
    const float *x0 = x, *x1 = n > 1 ? x + x_stride : x, *x2 = n > 2 ? x + 2 * x_stride : x;
#define SUM(r, k) (sums + ((r)*TILE_OUT + (k)) * KERN_LANES)
#define BEGIN(r, k) __m256 s##r##k = factors || r >= n ? _mm256_setzero_ps() : _mm256_load_ps(SUM(r, k));
    EACH_OUT(BEGIN, 0)
    EACH_OUT(BEGIN, 1)
    EACH_OUT(BEGIN, 2)
#undef BEGIN
    for (size_t c = begin + half; c < end; c += KERN_LANES) {
        __m256 input0 = _mm256_loadu_ps(x0 + c), input1 = input0, input2 = input0;
        if (n > 1) input1 = _mm256_loadu_ps(x1 + c);
        if (n > 2) input2 = _mm256_loadu_ps(x2 + c);
#define OUT(k)                                                         \
    {                                                                  \
        __m256 weight = _mm256_load_ps(panel + (k)*PANEL_COLUMNS + c); \
        s0##k = _mm256_fmadd_ps(weight, input0, s0##k);                \
        if (n > 1) s1##k = _mm256_fmadd_ps(weight, input1, s1##k);     \
        if (n > 2) s2##k = _mm256_fmadd_ps(weight, input2, s2##k);     \
    }
        OUT(0)
        OUT(1)
        OUT(2)
        OUT(3)
#undef OUT
    }
#define END(r, k)                                                                                              \
    if (r < n) {                                                                                               \
        if (factors)                                                                                           \
            s##r##k = _mm256_fmadd_ps(s##r##k, _mm256_broadcast_ss(factors + (k)), _mm256_load_ps(SUM(r, k))); \
        _mm256_store_ps(SUM(r, k), s##r##k);                                                                   \
    }
    EACH_OUT(END, 0)
    EACH_OUT(END, 1)
    EACH_OUT(END, 2)
#undef END
#undef SUM
}

/* All `columns` of the panel for n rows, a group at a time or all at once. */
INLINE void run_panel(struct tile *tile, size_t row, size_t n, const float *x, size_t x_stride, size_t columns,
                      size_t group)
{
    for (size_t out = 0; out < TILE_OUT; out += QUAD) {
        for (size_t half = 0; half < KERN_LANES; half += 8) {
            if (!group) block(tile, row, n, out, x, x_stride, half, 0, columns, NULL);
            for (size_t begin = 0, g = 0; group && begin < columns; begin += group, g++) {
                size_t end = begin + group < columns ? begin + group : columns;
                block(tile, row, n, out, x, x_stride, half, begin, end, &tile->factors[g][out]);
            }
        }
    }
}

/* The panel for all rows of the tile, in blocks of constant size: four are two and two, since one row alone would wait
 * for its own sums. Shared by all layouts. */
static void run_rows(struct tile *tile, size_t n_rows, const float *x, size_t x_stride, size_t columns, size_t group)
{
    size_t r = 0;
    while (r < n_rows) {
        const float *input = x + r * x_stride;
        size_t left = n_rows - r;
        if (left >= BLOCK_ROWS && left != BLOCK_ROWS + 1) {
            run_panel(tile, r, BLOCK_ROWS, input, x_stride, columns, group);
            r += BLOCK_ROWS;
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
                lanes_store(&tile->panel[k][c], lanes_of_weights(layout, w, first + c));
            for (size_t g = 0; m->group && g * m->group < columns; g++)
                tile->factors[g][k] = m->scales[output * m->row_scales + first / m->group + g];
        }
        run_rows(tile, n_rows, m->x + row * m->x_stride + first, m->x_stride, columns, m->group);
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < TILE_OUT && o + k < m->n_out; k++)
            m->y[(row + r) * m->y_stride + o + k] =
                lanes_fold(lanes_load(tile->sums[r][k])) * row_scale(layout, m, o + k);
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

DEFINE_MATMULS(avx2)
