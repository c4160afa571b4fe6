#ifndef KERN_KERN_H
#define KERN_KERN_H
/* Arithmetic: the operations a forward pass is made of, and the list of their implementations.
 *
 * Kernels take pointers and counts, allocate nothing, lock nothing, cannot fail. They are pure, so any thread may call
 * them on its own operands. Outputs never alias inputs unless said. Pointers need the alignment of their type only;
 * no kernel touches a byte outside its operands.
 *
 * The canonical reduction. Every sum over an inner dimension is formed in KERN_LANES partial sums: term i goes to lane
 * i mod KERN_LANES by one fused multiply-add, terms in ascending order; then the lanes are folded in halves (lane j
 * takes lane j + 8, then j + 4, j + 2, j + 1). That order belongs to the operation, not to an instruction set: the
 * scalar reference and every vector version give the same bits, and a row's result cannot depend on its neighbours, on
 * the tile it fell into or on the thread that ran it. A value with a scale is multiplied as an integer (exact in f32):
 * per-row formats multiply the folded sum by the row's scale once; grouped formats fold each group's lanes into running
 * lanes by total[j] = fma(partial[j], scale, total[j]) and fold once at the end.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERN_LANES = 16 };

/* Instruction sets a kernel may need; a mask of those usable here comes from plat/cpu.h. */
enum {
    CPU_AVX2 = 1 << 0, /* with FMA and F16C */
    CPU_AVX512 = 1 << 1,
    CPU_AVX512_VNNI = 1 << 2,
    CPU_AVX_VNNI = 1 << 3,
    CPU_AMX_INT8 = 1 << 4,
    CPU_NEON = 1 << 5,
    CPU_NEON_DOTPROD = 1 << 6,
    CPU_NEON_I8MM = 1 << 7,
};

/* y[r][o] = W[o] . x[r] for o < n_out, r < n_rows. y is [n_rows] rows y_stride floats apart, x likewise (n_in floats
 * used of each). W is n_out rows in the layout of its format; scales as fmt/format.h has them. group is a multiple of
 * KERN_LANES up to 256 for the grouped format, and ignored by the others: int3 has groups of 64 by itself. */
typedef void matmul_fn(float *y, size_t y_stride, const void *w, const float *scales, const float *x, size_t x_stride,
                       size_t n_rows, size_t n_out, size_t n_in, size_t group);

/* Fixed-point limbs: a second family, for int4 and int8 weights, in which nearly every step is exact integer
 * arithmetic.
 *
 * Inputs are split once per row and then serve every row of weights. Columns come in blocks of KERN_SPLIT_COLUMNS, and
 * a block is dealt to the KERN_LANES lanes, 16 columns each, such that with int4 weights a lane lies in one stretch of
 * 64 columns (limb_int.h says which). In each block a lane has a scale and integers v that stand for x = v * scale:
 *
 * limb3: scale is the smallest power of two, but not below 2^-126, that keeps |v| <= 127 * 65793; v is x / scale
 * rounded to nearest even, kept as three signed bytes, v = a * 65536 + b * 256 + c. The error is at most half of the
 * scale, and that 1.01 * 2^-23 of the lane's largest |x|. Sums are as exact as f32 sums are.
 *
 * limb1: scale is the largest |x| / 127, v is x * (127 / largest) rounded to nearest even, one signed byte. Lanes whose
 * largest |x| is below 2^-100 are zeros. Inexact, for those who ask for it.
 *
 * A lane with an infinity or a NaN has v = 0 and the scale NaN, which reaches every output of its row.
 *
 * The product: lane[j] = fma(t, factor, lane[j]), blocks ascending, from 0. t is the exact sum of v * weight over the
 * lane, which fits 32 bits, rounded once to f32; factor is the lane's scale, with grouped weights times theirs, rounded
 * once. Then the lanes are folded as above, and other formats multiply by the scale of the row. */
enum { KERN_SPLIT_COLUMNS = 256 };

/* Splits n_rows rows of n_in floats, x_stride floats apart, into rows split_stride bytes apart. A split serves the
 * products of its name: the same limbs, and int4 or int8 weights. */
typedef void split_fn(void *split, size_t split_stride, const float *x, size_t x_stride, size_t n_rows, size_t n_in);

/* Bytes of a split row. For speed, start and stride are best multiples of 64, as this is. */
static inline size_t kern_split_bytes(size_t n_limbs, size_t n_in)
{
    size_t lanes = KERN_LANES * (sizeof(float) + sizeof(int32_t));
    return (n_in + KERN_SPLIT_COLUMNS - 1) / KERN_SPLIT_COLUMNS * (n_limbs * KERN_SPLIT_COLUMNS + lanes);
}

/* matmul_fn on inputs that are split. group is a multiple of 64 for the grouped format. */
typedef void matmul_split_fn(float *y, size_t y_stride, const void *w, const float *scales, const void *split,
                             size_t split_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group);

/* y[i] = sum over o of c[o] * W[o][i], o ascending, one chain of fused multiply-adds per i that starts from 0.
 * The coefficient of a scaled weight is c[o] * scale, rounded once. Used to absorb a query into the latent space. */
typedef void matmul_transposed_fn(float *y, const void *w, const float *scales, const float *c, size_t n_out,
                                  size_t n_in, size_t group);

/* y[i] = W[0][i] as f32: one row. */
typedef void unpack_fn(float *y, const void *w, const float *scales, size_t n_in, size_t group);

/* y[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; the sum of squares in double. y may be x. */
typedef void rmsnorm_fn(float *y, const float *x, const float *w, size_t n, float eps);

/* Mean and biased variance in double, then (x - mean) / sqrt(variance + eps) * w + b. y may be x. */
typedef void layernorm_fn(float *y, const float *x, const float *w, const float *b, size_t n, float eps);

/* Rotates interleaved pairs (x[2j], x[2j+1]) and writes de-interleaved: first parts to x[j], second to x[n_pairs + j].
 * scratch holds 2 * n_pairs floats. */
typedef void rope_fn(float *x, float *scratch, const float *cosine, const float *sine, size_t n_pairs);

/* y[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + exp(-z)). y may be gate. */
typedef void swiglu_fn(float *y, const float *gate, const float *up, size_t n);

/* y[i] = 1 / (1 + exp(-x[i])). y may be x. */
typedef void sigmoid_fn(float *y, const float *x, size_t n);

/* y[i] += x[i], and y[i] = fma(a, x[i], y[i]). */
typedef void add_fn(float *y, const float *x, size_t n);
typedef void axpy_fn(float *y, float a, const float *x, size_t n);

/* x[i] = exp(x[i] - max) / sum, the sum in canonical lanes. n > 0, all finite. */
typedef void softmax_fn(float *x, size_t n);

/* y[h][t] = (q[h] . rows[t]) * scale for h < n_q, t < n_rows: attention scores. Each row and query is `dim` floats;
 * results of one query are adjacent, queries q_stride floats apart. */
typedef void gather_dots_fn(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q,
                            const float *const *rows, size_t n_rows, size_t dim, float scale);

/* y[h][i] += sum over t of p[h][t] * rows[t][i], for h < n_y, i < dim: t ascending, one chain of fused multiply-adds
 * that goes on from what is in y. So rows may come in any number of calls. */
typedef void gather_mixes_fn(float *y, size_t y_stride, const float *p, size_t p_stride, size_t n_y,
                             const float *const *rows, size_t n_rows, size_t dim);

/* DSA index scores: y[t] = sum over heads g ascending of w[g] * relu((q[g] . keys[t]) * dot_scale), by fused
 * multiply-add from 0; w already carries its own scale. q is [n_heads][dim]. A NaN is not below 0: it reaches y. */
typedef void index_scores_fn(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                             size_t n_heads, size_t dim, float dot_scale);

/* The positions of the k largest of n scores (k <= n), ascending, to out[k]. Order: score descending, then position
 * ascending; +0 equals -0. Returns false and leaves out undefined when any score is NaN. No scratch. */
typedef bool select_top_fn(uint32_t *out, const float *scores, size_t n, size_t k);

/* What share of its own limit a kernel reaches: does at least n multiply-adds that need no memory, as fast as the
 * instruction set does them, and returns how many they were. In f32, or with bytes added up in 32 bits. */
typedef uint64_t peak_fn(uint64_t n);

/* op, type, isa, bits it needs: in the order of preference, slowest first, a later line wins. One line per kernel feeds
 * prototypes, dispatch, the equivalence check and the benchmark, so that none can exist untested. */
#define KERN_OPS(X)                                         \
    X(matmul_f32, matmul_fn)                                \
    X(matmul_int8, matmul_fn)                               \
    X(matmul_int4, matmul_fn)                               \
    X(matmul_int4_grouped, matmul_fn)                       \
    X(matmul_int2, matmul_fn)                               \
    X(matmul_int3, matmul_fn)                               \
    X(split_limb3_int4, split_fn)                           \
    X(split_limb1_int8, split_fn)                           \
    X(split_limb1_int4, split_fn)                           \
    X(matmul_limb3_int4, matmul_split_fn)                   \
    X(matmul_limb3_int4_grouped, matmul_split_fn)           \
    X(matmul_limb1_int8, matmul_split_fn)                   \
    X(matmul_limb1_int4, matmul_split_fn)                   \
    X(matmul_limb1_int4_grouped, matmul_split_fn)           \
    X(matmul_transposed_f32, matmul_transposed_fn)          \
    X(matmul_transposed_int8, matmul_transposed_fn)         \
    X(matmul_transposed_int4, matmul_transposed_fn)         \
    X(matmul_transposed_int4_grouped, matmul_transposed_fn) \
    X(matmul_transposed_int2, matmul_transposed_fn)         \
    X(matmul_transposed_int3, matmul_transposed_fn)         \
    X(unpack_f32, unpack_fn)                                \
    X(unpack_int8, unpack_fn)                               \
    X(unpack_int4, unpack_fn)                               \
    X(unpack_int4_grouped, unpack_fn)                       \
    X(unpack_int2, unpack_fn)                               \
    X(unpack_int3, unpack_fn)                               \
    X(rmsnorm, rmsnorm_fn)                                  \
    X(layernorm, layernorm_fn)                              \
    X(rope, rope_fn)                                        \
    X(swiglu, swiglu_fn)                                    \
    X(sigmoid, sigmoid_fn)                                  \
    X(add, add_fn)                                          \
    X(axpy, axpy_fn)                                        \
    X(softmax, softmax_fn)                                  \
    X(gather_dots, gather_dots_fn)                          \
    X(gather_mixes, gather_mixes_fn)                        \
    X(index_scores, index_scores_fn)                        \
    X(select_top, select_top_fn)                            \
    X(peak_f32, peak_fn)                                    \
    X(peak_int8, peak_fn)

struct kern {
#define X(op, type) type *op;
    KERN_OPS(X)
#undef X
};

/* Fills the table with the best kernels that need no more than `cpu`. Mask 0 gives the scalar reference. */
void kern_select(struct kern *kern, uint32_t cpu);

/* The list itself, for those who measure every kernel. */
struct kern_entry {
    const char *op, *isa;
    uint32_t needs;
};

size_t kern_entries(const struct kern_entry **entries);

/* Puts kernel i of the list into its place of the table. */
void kern_put(struct kern *kern, size_t i);

#endif
