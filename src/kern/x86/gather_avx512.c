#include "kern/fetch_int.h"
#include "kern/vector/turned_int.h"

/* Mixes in tiles of 4 outputs by 64 columns, which share their loads, so the multiply-adds and not the loads set the
 * pace. */
enum {
    TILE = 4,
    BLOCK_ROWS = 128, /* rows whose strip of columns stays in the first cache level for all outputs */
    STRIP = 4 * KERN_LANES,
    FETCH_DISTANCE = 48, /* rows, about as far as the memory is away */
};

#define EACH_COLUMN(M, a) M(a, 0) M(a, 1) M(a, 2) M(a, 3)
#define EACH(M) EACH_COLUMN(M, 0) EACH_COLUMN(M, 1) EACH_COLUMN(M, 2) EACH_COLUMN(M, 3)

DEFINE_TURNED(avx512)

struct mixes {
    float *y;
    const float *p;
    size_t y_stride, p_stride, n_y;
};

/* Outputs h .. h+3, columns column .. column+63, rows begin .. end-1. */
static void mix_strip(const struct mixes *m, size_t h, const float *const *rows, size_t begin, size_t end,
                      size_t column)
{
    size_t n = m->n_y - h < TILE ? m->n_y - h : TILE;
    float *y0 = m->y + h * m->y_stride + column, *y1 = y0 + (n > 1) * m->y_stride, *y2 = y1 + (n > 2) * m->y_stride;
    float *y3 = y2 + (n > 3) * m->y_stride;
    const float *p0 = m->p + h * m->p_stride, *p1 = p0 + (n > 1) * m->p_stride, *p2 = p1 + (n > 2) * m->p_stride;
    const float *p3 = p2 + (n > 3) * m->p_stride;
#define BEGIN(a, b) __m512 s##a##b = _mm512_loadu_ps(y##a + 16 * (b));
    EACH(BEGIN)
#undef BEGIN
    for (size_t t = begin; t < end; t++) {
        const float *row = rows[t] + column;
        if (h == 0) fetch_rows(rows, end, t + FETCH_DISTANCE, 1, column, column + STRIP);
        __m512 row0 = _mm512_loadu_ps(row), row1 = _mm512_loadu_ps(row + 16);
        __m512 row2 = _mm512_loadu_ps(row + 32), row3 = _mm512_loadu_ps(row + 48);
        __m512 weight0 = _mm512_set1_ps(p0[t]), weight1 = _mm512_set1_ps(p1[t]);
        __m512 weight2 = _mm512_set1_ps(p2[t]), weight3 = _mm512_set1_ps(p3[t]);
#define STEP(a, b) s##a##b = _mm512_fmadd_ps(weight##a, row##b, s##a##b);
        EACH(STEP)
#undef STEP
    }
#define END(a, b) \
    if ((a) < n) _mm512_storeu_ps(y##a + 16 * (b), s##a##b);
    EACH(END)
#undef END
}

/* Fewer columns than a strip, for one output. */
static void mix_last(float *y, const float *p, const float *const *rows, size_t begin, size_t end, size_t column,
                     size_t count)
{
    __mmask16 mask = (__mmask16)(count < KERN_LANES ? (1u << count) - 1 : 0xffff);
    __m512 sum = _mm512_maskz_loadu_ps(mask, y + column);
    for (size_t t = begin; t < end; t++)
        sum = _mm512_fmadd_ps(_mm512_set1_ps(p[t]), _mm512_maskz_loadu_ps(mask, rows[t] + column), sum);
    _mm512_mask_storeu_ps(y + column, mask, sum);
}

void gather_mixes_avx512(float *y, size_t y_stride, const float *p, size_t p_stride, size_t n_y,
                         const float *const *rows, size_t n_rows, size_t dim)
{
    const struct mixes m = {.y = y, .p = p, .y_stride = y_stride, .p_stride = p_stride, .n_y = n_y};
    for (size_t begin = 0; begin < n_rows; begin += BLOCK_ROWS) {
        size_t end = n_rows - begin < BLOCK_ROWS ? n_rows : begin + BLOCK_ROWS, column = 0;
        for (; column + STRIP <= dim; column += STRIP)
            for (size_t h = 0; h < n_y; h += TILE) mix_strip(&m, h, rows, begin, end, column);
        for (; column < dim; column += KERN_LANES)
            for (size_t h = 0; h < n_y; h++)
                mix_last(y + h * y_stride, p + h * p_stride, rows, begin, end, column, dim - column);
    }
}
