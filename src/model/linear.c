#include "model/linear.h"

#include "base/assert.h"
#include "base/checked.h"

/* Weight bytes below which splitting a product costs more than it gains. */
#define PIECE_BYTES (32u << 10)

/* The same for inputs that are split. */
#define SPLIT_GRAIN (8u << 10)

/* Where scratch begins to be used: at a multiple of this, a cache line. */
enum { ALIGNMENT = 64 };

/* Split rows are an odd number of cache lines apart: the same columns of many rows, which a kernel takes together, are
 * then spread evenly over the sets of a cache. For 16384 columns they would all be in the same few. */
static uint64_t split_stride(size_t n_limbs, uint64_t n_columns)
{
    return (kern_split_bytes(n_limbs, n_columns) / ALIGNMENT | 1) * ALIGNMENT;
}

uint64_t linear_scratch_bytes(uint64_t n_rows, uint64_t n_columns)
{
    uint64_t rows = n_rows < LINEAR_ROWS ? n_rows : LINEAR_ROWS;
    return rows * split_stride(3, n_columns) + ALIGNMENT;
}

static void choose_limbs(struct linear *linear, const struct kern *k, enum numerics numerics)
{
    struct linear_limbs *limbs = linear->limbs;
    if (numerics == NUMERICS_EXACT) {
        limbs[FORMAT_INT4_ROW] = (struct linear_limbs){k->split_limb3_int4, k->matmul_limb3_int4, 3};
        limbs[FORMAT_INT4_GROUPED] = (struct linear_limbs){k->split_limb3_int4, k->matmul_limb3_int4_grouped, 3};
    } else {
        limbs[FORMAT_INT8_ROW] = (struct linear_limbs){k->split_limb1_int8, k->matmul_limb1_int8, 1};
        limbs[FORMAT_INT4_ROW] = (struct linear_limbs){k->split_limb1_int4, k->matmul_limb1_int4, 1};
        limbs[FORMAT_INT4_GROUPED] = (struct linear_limbs){k->split_limb1_int4, k->matmul_limb1_int4_grouped, 1};
    }
}

void linear_init(struct linear *linear, const struct kern *kern, struct team *team, enum numerics numerics,
                 void *scratch, uint64_t scratch_bytes)
{
    uintptr_t start = round_up((uintptr_t)scratch, ALIGNMENT);
    ASSERT(start - (uintptr_t)scratch <= scratch_bytes);
    *linear = (struct linear){
        .team = team,
        .split = (unsigned char *)scratch + (start - (uintptr_t)scratch),
        .split_bytes = scratch_bytes - (start - (uintptr_t)scratch),
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
    choose_limbs(linear, kern, numerics);
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

/* The kernels of the matrix for split inputs, or NULL. */
static const struct linear_limbs *limbs_of(const struct linear *linear, const struct matrix *w)
{
    const struct linear_limbs *limbs = &linear->limbs[w->format];
    if (!limbs->split || (w->format == FORMAT_INT4_GROUPED && w->group % 64 != 0)) return NULL;
    return limbs;
}

struct product {
    const struct linear *linear;
    const struct matrix *w[2];
    float *y[2];
    const float *x;
    size_t n_rows;
    const struct linear_limbs *limbs[2];
    size_t split_stride; /* 0: x as it is */
};

static void multiply(const struct product *p, unsigned which, size_t begin, size_t end)
{
    if (begin >= end) return;
    const struct matrix *w = p->w[which];
    struct matrix part = matrix_rows(w, (uint32_t)begin, (uint32_t)(end - begin));
    float *y = p->y[which] + begin;
    if (p->split_stride)
        p->limbs[which]->matmul(y, w->rows, part.payload, part.scales, p->linear->split, p->split_stride, p->n_rows,
                                part.rows, w->columns, w->group);
    else
        p->linear->matmul[w->format](y, w->rows, part.payload, part.scales, p->x, w->columns, p->n_rows, part.rows,
                                     w->columns, w->group);
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

/* Items are rows of inputs. */
static void split_range(void *context, size_t begin, size_t end, unsigned thread)
{
    (void)thread;
    const struct product *p = context;
    size_t columns = p->w[0]->columns;
    p->limbs[0]->split(p->linear->split + begin * p->split_stride, p->split_stride, p->x + begin * columns, columns,
                       end - begin, columns);
}

static void run_rows(struct product *p)
{
    const struct matrix *w = p->w[0];
    size_t n_items = (size_t)w->rows + (p->w[1] ? p->w[1]->rows : 0);
    size_t grain = PIECE_BYTES / (format_row_bytes(w->format, w->columns) * p->n_rows + 1) + 1;
    if (p->split_stride) team_run(p->linear->team, p->n_rows, SPLIT_GRAIN / w->columns + 1, split_range, p);
    team_run(p->linear->team, n_items, round_up(grain, 8), multiply_range, p);
}

/* As many rows at a time as the scratch is for, or all of them when nothing is split. */
static void run(struct product *p, size_t n_rows)
{
    p->limbs[0] = limbs_of(p->linear, p->w[0]);
    p->limbs[1] = p->w[1] ? limbs_of(p->linear, p->w[1]) : NULL;
    size_t step = n_rows;
    if (p->limbs[0]) {
        step = LINEAR_ROWS;
        p->split_stride = split_stride(p->limbs[0]->n_limbs, p->w[0]->columns);
        ASSERT((n_rows < step ? n_rows : step) * p->split_stride <= p->linear->split_bytes);
    }
    for (size_t first = 0; first < n_rows; first += step) {
        p->n_rows = n_rows - first < step ? n_rows - first : step;
        run_rows(p);
        p->x += p->n_rows * p->w[0]->columns;
        for (int i = 0; i < 2 && p->w[i]; i++) p->y[i] += p->n_rows * p->w[i]->rows;
    }
}

void linear_apply(const struct linear *linear, float *y, const struct matrix *w, const float *x, size_t n_rows)
{
    ASSERT(linear->matmul[w->format]);
    struct product p = {.linear = linear, .w = {w}, .y = {y}, .x = x};
    run(&p, n_rows);
}

/* Whether one form of the inputs serves both. */
static bool is_shared(const struct linear *linear, const struct matrix *a, const struct matrix *b)
{
    const struct linear_limbs *first = limbs_of(linear, a), *second = limbs_of(linear, b);
    return first && second ? first->split == second->split : !first && !second;
}

void linear_apply_pair(const struct linear *linear, float *y_a, const struct matrix *a, float *y_b,
                       const struct matrix *b, const float *x, size_t n_rows)
{
    ASSERT(a->rows == b->rows);
    ASSERT(a->columns == b->columns);
    if (!is_shared(linear, a, b)) {
        linear_apply(linear, y_a, a, x, n_rows);
        linear_apply(linear, y_b, b, x, n_rows);
        return;
    }
    ASSERT(linear->matmul[a->format]);
    ASSERT(linear->matmul[b->format]);
    struct product p = {.linear = linear, .w = {a, b}, .y = {y_a, y_b}, .x = x};
    run(&p, n_rows);
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
