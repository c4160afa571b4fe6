#include "model/linear.h"

#include "base/assert.h"
#include "base/checked.h"

/* Weight bytes below which splitting a product costs more than it gains. */
#define PIECE_BYTES (32u << 10)

void linear_init(struct linear *linear, const struct kern *kern, struct team *team)
{
    *linear = (struct linear){
        .team = team,
        .matmul =
            {
                [FORMAT_F32] = kern->matmul_f32,
                [FORMAT_INT8_ROW] = kern->matmul_int8,
                [FORMAT_INT4_ROW] = kern->matmul_int4,
                [FORMAT_INT4_GROUPED] = kern->matmul_int4_grouped,
                [FORMAT_INT2_ROW] = kern->matmul_int2,
                [FORMAT_INT3_G64] = kern->matmul_int3,
            },
        .transposed =
            {
                [FORMAT_F32] = kern->matmul_transposed_f32,
                [FORMAT_INT8_ROW] = kern->matmul_transposed_int8,
                [FORMAT_INT4_ROW] = kern->matmul_transposed_int4,
                [FORMAT_INT4_GROUPED] = kern->matmul_transposed_int4_grouped,
                [FORMAT_INT2_ROW] = kern->matmul_transposed_int2,
                [FORMAT_INT3_G64] = kern->matmul_transposed_int3,
            },
        .unpack =
            {
                [FORMAT_F32] = kern->unpack_f32,
                [FORMAT_INT8_ROW] = kern->unpack_int8,
                [FORMAT_INT4_ROW] = kern->unpack_int4,
                [FORMAT_INT4_GROUPED] = kern->unpack_int4_grouped,
                [FORMAT_INT2_ROW] = kern->unpack_int2,
                [FORMAT_INT3_G64] = kern->unpack_int3,
            },
    };
}

struct matrix matrix_rows(const struct matrix *matrix, uint32_t first, uint32_t n)
{
    ASSERT(first <= matrix->rows);
    ASSERT(n <= matrix->rows - first);
    struct matrix part = *matrix;
    part.rows = n;
    part.payload = (const char *)matrix->payload + first * format_row_bytes(matrix->format, matrix->columns);
    if (matrix->scales)
        part.scales = matrix->scales + format_scales(matrix->format, first, matrix->columns, matrix->group);
    return part;
}

struct product {
    const struct linear *linear;
    const struct matrix *w[2];
    float *y[2];
    const float *x;
    size_t n_rows;
};

static void multiply(const struct product *p, unsigned which, size_t begin, size_t end)
{
    if (begin >= end) return;
    const struct matrix *w = p->w[which];
    struct matrix part = matrix_rows(w, (uint32_t)begin, (uint32_t)(end - begin));
    p->linear->matmul[w->format](p->y[which] + begin, w->rows, part.payload, part.scales, p->x, w->columns, p->n_rows,
                                 part.rows, w->columns, w->group);
}

/* Items are the output rows of the first matrix and behind them those of the second, if there is one. */
static void multiply_range(void *context, size_t begin, size_t end, unsigned thread)
{
    (void)thread;
    const struct product *p = context;
    size_t first = p->w[0]->rows;
    multiply(p, 0, begin, end < first ? end : first);
    if (end > first) multiply(p, 1, (begin > first ? begin : first) - first, end - first);
}

static void run(const struct product *p, size_t n_items)
{
    const struct matrix *w = p->w[0];
    ASSERT(p->linear->matmul[w->format]);
    size_t grain = PIECE_BYTES / (format_row_bytes(w->format, w->columns) * p->n_rows + 1) + 1;
    team_run(p->linear->team, n_items, round_up(grain, 8), multiply_range, (void *)(uintptr_t)p);
}

void linear_apply(const struct linear *linear, float *y, const struct matrix *w, const float *x, size_t n_rows)
{
    const struct product p = {.linear = linear, .w = {w}, .y = {y}, .x = x, .n_rows = n_rows};
    run(&p, w->rows);
}

void linear_apply_pair(const struct linear *linear, float *y_a, const struct matrix *a, float *y_b,
                       const struct matrix *b, const float *x, size_t n_rows)
{
    ASSERT(a->rows == b->rows);
    ASSERT(a->columns == b->columns);
    ASSERT(linear->matmul[b->format]);
    const struct product p = {.linear = linear, .w = {a, b}, .y = {y_a, y_b}, .x = x, .n_rows = n_rows};
    run(&p, (size_t)a->rows + b->rows);
}

void linear_rows(const struct linear *linear, float *y, size_t y_stride, const struct matrix *w, const float *x,
                 size_t x_stride, size_t n_rows)
{
    linear->matmul[w->format](y, y_stride, w->payload, w->scales, x, x_stride, n_rows, w->rows, w->columns, w->group);
}

void linear_row_transposed(const struct linear *linear, float *y, const struct matrix *w, const float *c)
{
    linear->transposed[w->format](y, w->payload, w->scales, c, w->rows, w->columns, w->group);
}

void linear_unpack(const struct linear *linear, float *y, const struct matrix *w)
{
    linear->unpack[w->format](y, w->payload, w->scales, w->columns, w->group);
}
