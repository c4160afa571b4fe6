#ifndef MODEL_LINEAR_H
#define MODEL_LINEAR_H
/* Products of a weight matrix of any format: the one place where a format meets its kernel.
 *
 * Parallel over output rows only, so every output is one canonical reduction whoever computes it. */
#include "fmt/format.h"
#include "kern/kern.h"
#include "par/team.h"

struct linear {
    struct team *team;
    matmul_fn *matmul[FORMAT_COUNT]; /* NULL: weights of this format are never in memory as they are */
    matmul_transposed_fn *transposed[FORMAT_COUNT];
    unpack_fn *unpack[FORMAT_COUNT];
};

void linear_init(struct linear *linear, const struct kern *kern, struct team *team);

/* Rows first .. first+n-1 of a matrix as a matrix. */
struct matrix matrix_rows(const struct matrix *matrix, uint32_t first, uint32_t n);

/* y[r][o] = W[o] . x[r] for n_rows rows; y and x are dense: [n_rows][rows] and [n_rows][columns]. On the whole team. */
void linear_apply(const struct linear *linear, float *y, const struct matrix *w, const float *x, size_t n_rows);

/* Two matrices of equal shape on the same input, in one parallel section. */
void linear_apply_pair(const struct linear *linear, float *y_a, const struct matrix *a, float *y_b,
                       const struct matrix *b, const float *x, size_t n_rows);

/* On the calling thread alone: rows that lie y_stride and x_stride floats apart; y = c W (the transposed product) for
 * one row; one row of W as floats. */
void linear_rows(const struct linear *linear, float *y, size_t y_stride, const struct matrix *w, const float *x,
                 size_t x_stride, size_t n_rows);
void linear_row_transposed(const struct linear *linear, float *y, const struct matrix *w, const float *c);
void linear_unpack(const struct linear *linear, float *y, const struct matrix *w);

#endif
