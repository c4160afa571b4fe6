#ifndef MODEL_LINEAR_H
#define MODEL_LINEAR_H
/* Products of a weight matrix of any format: the one place where a format meets its kernel.
 *
 * Parallel over output rows only, so every output is one canonical reduction whoever computes it. Which family of
 * kernels (kern/kern.h) a product belongs to is a matter of its format and of the numerics, never of the processor or
 * of the number of rows:
 *
 *                              exact    int8
 *   int4, per row              limb3    limb1
 *   int4, groups of 64 n       limb3    limb1
 *   int8                       f32      limb1
 *   others, other groups       f32      f32
 */
#include "fmt/format.h"
#include "kern/kern.h"
#include "model/numerics.h"
#include "par/team.h"

/* Rows of inputs that are split at a time. */
enum { LINEAR_ROWS = 64 };

/* A format's kernels for split inputs; without a split the family is f32. */
struct linear_limbs {
    split_fn *split;
    matmul_split_fn *matmul;
    size_t n_limbs;
};

struct linear {
    struct team *team;
    matmul_fn *matmul[FORMAT_COUNT]; /* NULL: weights of this format are never in memory as they are */
    matmul_transposed_fn *transposed[FORMAT_COUNT];
    unpack_fn *unpack[FORMAT_COUNT];
    struct linear_limbs limbs[FORMAT_COUNT];
    unsigned char *split; /* split inputs of the product that runs */
    size_t split_bytes;
};

/* What linear_apply needs to split up to LINEAR_ROWS of n_rows rows of up to n_columns inputs. */
uint64_t linear_scratch_bytes(uint64_t n_rows, uint64_t n_columns);

/* `scratch` stays the caller's and in use; it needs no alignment. */
void linear_init(struct linear *linear, const struct kern *kern, struct team *team, enum numerics numerics,
                 void *scratch, uint64_t scratch_bytes);

/* Rows first .. first+n-1 of a matrix as a matrix. */
struct matrix matrix_rows(const struct matrix *matrix, uint32_t first, uint32_t n);

/* y[r][o] = W[o] . x[r] for n_rows rows; y and x are dense: [n_rows][rows] and [n_rows][columns]. On the whole team.
 * One thread at a time may call these two: they use the scratch. */
void linear_apply(const struct linear *linear, float *y, const struct matrix *w, const float *x, size_t n_rows);

/* Two matrices of equal shape on the same input, in one parallel section. */
void linear_apply_pair(const struct linear *linear, float *y_a, const struct matrix *a, float *y_b,
                       const struct matrix *b, const float *x, size_t n_rows);

/* On the calling thread alone, always f32: rows that lie y_stride and x_stride floats apart; y = c W (the transposed
 * product) for one row; one row of W as floats. */
void linear_rows(const struct linear *linear, float *y, size_t y_stride, const struct matrix *w, const float *x,
                 size_t x_stride, size_t n_rows);
void linear_row_transposed(const struct linear *linear, float *y, const struct matrix *w, const float *c);
void linear_unpack(const struct linear *linear, float *y, const struct matrix *w);

#endif
