/* Every kernel of the list equals its reference, bit for bit, and touches no byte outside of its operands.
 *
 * Operands lie between unreadable pages, once against the page behind and once against the page in front. Outputs are
 * poisoned and compared whole, gaps between rows included. Lengths go all around lanes, vectors, groups and bytes.
 * The reference itself is held to a bound from float64. Kernels made wrong on purpose prove that the check sees.
 *
 *   kern_check_test [--seed N]    the check
 *   kern_check_test --isa NAME    the check of the kernels for one instruction set
 *
 * weir bench kernels measures the same list. */

#include "kern/layout_int.h"
#include "kern/list_int.h"
#include "plat/cpu.h"
#include "support/guarded.h"
#include "support/limb_check.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t lengths[] = {1,   2,   3,   4,   5,   7,   8,   9,   11,  13,   15,   16,   17,   19,  23,
                                 24,  25,  29,  31,  32,  33,  39,  40,  41,  47,   48,   49,   55,   57,  63,
                                 64,  65,  71,  79,  80,  81,  95,  96,  97,  111,  112,  127,  128,  129, 143,
                                 159, 160, 161, 175, 191, 192, 193, 207, 255, 256,  257,  320,  383,  384, 385,
                                 511, 512, 513, 576, 767, 768, 769, 784, 800, 1023, 1024, 1025, 1537, 2048};
static const size_t groups[] = {16, 32, 48, 64, 96, 128, 192, 256};

/* matmul */

struct matmul_case {
    matmul_fn *fn, *ref;
    enum layout layout;
    size_t n_in, n_out, n_rows, group;
    size_t scale_group; /* what the layout makes of the group */
};

static bool matmul_reference_is_near(struct check *check, const struct matmul_case *c, const float *y, size_t y_stride,
                                     const unsigned char *w, const float *scales, const float *x, size_t x_stride)
{
    size_t row_scales = layout_row_scales(c->n_in, c->scale_group);
    for (size_t r = 0; r < c->n_rows; r++) {
        for (size_t o = 0; o < c->n_out; o++) {
            double exact = 0, magnitude = 0;
            for (size_t i = 0; i < c->n_in; i++) {
                double weight = (double)layout_value(c->layout, w + o * layout_row_bytes(c->layout, c->n_in), i);
                if (c->layout != LAYOUT_F32)
                    weight *= (double)scales[o * row_scales + (c->scale_group ? i / c->scale_group : 0)];
                exact += weight * (double)x[r * x_stride + i];
                magnitude += fabs(weight * (double)x[r * x_stride + i]);
            }
            if (!check_near(check, exact, y[r * y_stride + o], (double)c->n_in + 4, magnitude)) return false;
        }
    }
    return true;
}

static bool matmul_body(struct check *check, const void *argument)
{
    const struct matmul_case *c = argument;
    size_t x_stride = c->n_in + rng_below(&check->rng, 4), y_stride = c->n_out + rng_below(&check->rng, 4);
    size_t y_floats = (c->n_rows - 1) * y_stride + c->n_out;
    SHAPE(check, "rows %zu (%zu apart, to %zu), out %zu, in %zu, group %zu, kind %d, %s", c->n_rows, x_stride, y_stride,
          c->n_out, c->n_in, c->group, (int)check->kind, check->against_end ? "at the end" : "at the start");
    unsigned char *w = check_weights(check, c->layout, c->n_out, c->n_in);
    float *scales = NULL;
    if (c->layout != LAYOUT_F32) scales = check_scales(check, c->n_out * layout_row_scales(c->n_in, c->scale_group));
    float *x = check_floats(check, (c->n_rows - 1) * x_stride + c->n_in);
    size_t operands = check->n_areas;
    float *want = check_area(check, y_floats * sizeof(float)), *got = check_area(check, y_floats * sizeof(float));
    float *alone = check_area(check, c->n_out * sizeof(float));
    check_seal(check);
    c->ref(want, y_stride, w, scales, x, x_stride, c->n_rows, c->n_out, c->n_in, c->group);
    c->fn(got, y_stride, w, scales, x, x_stride, c->n_rows, c->n_out, c->n_in, c->group);
    if (!check_same(check, want, got, y_floats)) return false;
    for (size_t r = 0; r < c->n_rows; r++) {
        c->fn(alone, c->n_out, w, scales, x + r * x_stride, x_stride, 1, c->n_out, c->n_in, c->group);
        if (!check_same(check, got + r * y_stride, alone, c->n_out)) return false;
    }
    if (check->kind != EXTREME && c->fn == c->ref &&
        !matmul_reference_is_near(check, c, want, y_stride, w, scales, x, x_stride))
        return false;
    return check_is_sealed(check, operands);
}

static bool check_matmul(struct check *check, matmul_fn *fn, matmul_fn *ref, enum layout layout, bool is_grouped)
{
    static const size_t outs[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17};
    static const size_t rows[] = {1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 13, 23, 24, 25, 26, 49};
    struct matmul_case c = {.fn = fn, .ref = ref, .layout = layout};
    for (size_t g = 0; g < (is_grouped ? COUNT(groups) : 1); g++) {
        for (size_t i = g % 3; i < COUNT(lengths); i += is_grouped ? 3 : 1) {
            c.n_in = lengths[i];
            c.group = is_grouped ? groups[g] : 0;
            c.scale_group = layout == LAYOUT_INT3 ? INT3_GROUP : c.group;
            c.n_out = outs[rng_below(&check->rng, COUNT(outs))];
            c.n_rows = rows[rng_below(&check->rng, c.n_in > 300 ? 8 : COUNT(rows))];
            if (i % 4 == 0) c.n_rows = 1;
            if (!check_all_kinds(check, matmul_body, &c)) return false;
        }
    }
    c.n_in = 800; /* every number of rows and outputs around the tiles, past the longest run of columns kept unpacked */
    c.group = is_grouped ? 64 : 0;
    c.scale_group = layout == LAYOUT_INT3 ? INT3_GROUP : c.group;
    for (c.n_rows = 1; c.n_rows <= 50; c.n_rows += 1 + c.n_rows / 5) {
        c.n_out = 1 + rng_below(&check->rng, c.n_rows < 9 ? 18 : 9);
        if (!check_all_kinds(check, matmul_body, &c)) return false;
    }
    return true;
}

/* matmul_transposed and unpack */

struct transposed_case {
    matmul_transposed_fn *fn, *ref;
    unpack_fn *unpack, *unpack_ref;
    enum layout layout;
    size_t n_in, n_out, group, scale_group;
};

static bool transposed_reference_is_near(struct check *check, const struct transposed_case *c, const float *y,
                                         const unsigned char *w, const float *scales, const float *coefficients)
{
    size_t row_scales = layout_row_scales(c->n_in, c->scale_group);
    for (size_t i = 0; i < c->n_in; i++) {
        double exact = 0, magnitude = 0;
        for (size_t o = 0; o < c->n_out; o++) {
            double weight = (double)layout_value(c->layout, w + o * layout_row_bytes(c->layout, c->n_in), i);
            if (c->layout != LAYOUT_F32)
                weight *= (double)scales[o * row_scales + (c->scale_group ? i / c->scale_group : 0)];
            exact += weight * (double)coefficients[o];
            magnitude += fabs(weight * (double)coefficients[o]);
        }
        magnitude += 128 * 0x1p-126; /* a coefficient below the normal range loses bits that a weight then multiplies */
        if (!check_near(check, exact, y[i], (double)c->n_out + 4, magnitude)) return false;
    }
    return true;
}

static bool transposed_body(struct check *check, const void *argument)
{
    const struct transposed_case *c = argument;
    SHAPE(check, "out %zu, in %zu, group %zu, kind %d, %s", c->n_out, c->n_in, c->group, (int)check->kind,
          check->against_end ? "at the end" : "at the start");
    unsigned char *w = check_weights(check, c->layout, c->n_out, c->n_in);
    float *scales = NULL;
    if (c->layout != LAYOUT_F32) scales = check_scales(check, c->n_out * layout_row_scales(c->n_in, c->scale_group));
    float *coefficients = check_floats(check, c->n_out);
    size_t operands = check->n_areas;
    float *want = check_area(check, c->n_in * sizeof(float)), *got = check_area(check, c->n_in * sizeof(float));
    check_seal(check);
    c->ref(want, w, scales, coefficients, c->n_out, c->n_in, c->group);
    c->fn(got, w, scales, coefficients, c->n_out, c->n_in, c->group);
    if (!check_same(check, want, got, c->n_in)) return false;
    if (check->kind != EXTREME && c->fn == c->ref &&
        !transposed_reference_is_near(check, c, want, w, scales, coefficients))
        return false;
    return check_is_sealed(check, operands);
}

static bool check_transposed(struct check *check, matmul_transposed_fn *fn, matmul_transposed_fn *ref,
                             enum layout layout, bool is_grouped)
{
    struct transposed_case c = {.fn = fn, .ref = ref, .layout = layout};
    for (size_t g = 0; g < (is_grouped ? COUNT(groups) : 1); g++) {
        for (size_t i = g % 3; i < COUNT(lengths); i += is_grouped ? 3 : 1) {
            c.n_in = lengths[i];
            c.n_out = i % 4 == 3 ? 31 + i % 40 : i % 16 + 1; /* also more rows than a tile has */
            c.group = is_grouped ? groups[g] : 0;
            c.scale_group = layout == LAYOUT_INT3 ? INT3_GROUP : c.group;
            if (!check_all_kinds(check, transposed_body, &c)) return false;
        }
    }
    return true;
}

static bool unpack_body(struct check *check, const void *argument)
{
    const struct transposed_case *c = argument;
    SHAPE(check, "in %zu, group %zu, %s", c->n_in, c->group, check->against_end ? "at the end" : "at the start");
    unsigned char *w = check_weights(check, c->layout, 1, c->n_in);
    float *scales = NULL;
    if (c->layout != LAYOUT_F32) scales = check_scales(check, layout_row_scales(c->n_in, c->scale_group));
    size_t operands = check->n_areas;
    float *want = check_area(check, c->n_in * sizeof(float)), *got = check_area(check, c->n_in * sizeof(float));
    check_seal(check);
    c->unpack_ref(want, w, scales, c->n_in, c->group);
    c->unpack(got, w, scales, c->n_in, c->group);
    return check_same(check, want, got, c->n_in) && check_is_sealed(check, operands);
}

static bool check_unpack(struct check *check, unpack_fn *fn, unpack_fn *ref, enum layout layout, bool is_grouped)
{
    struct transposed_case c = {.unpack = fn, .unpack_ref = ref, .layout = layout};
    for (size_t g = 0; g < (is_grouped ? COUNT(groups) : 1); g++) {
        for (size_t i = g % 3; i < COUNT(lengths); i += is_grouped ? 3 : 1) {
            c.n_in = lengths[i];
            c.group = is_grouped ? groups[g] : 0;
            c.scale_group = layout == LAYOUT_INT3 ? INT3_GROUP : c.group;
            if (!check_all_kinds(check, unpack_body, &c)) return false;
        }
    }
    return true;
}

#define CHECK_LAYOUT(name, layout, is_grouped)                                                  \
    static bool check_matmul_##name(struct check *check, matmul_fn *fn)                         \
    {                                                                                           \
        return check_matmul(check, fn, matmul_##name##_ref, layout, is_grouped);                \
    }                                                                                           \
    static bool check_matmul_transposed_##name(struct check *check, matmul_transposed_fn *fn)   \
    {                                                                                           \
        return check_transposed(check, fn, matmul_transposed_##name##_ref, layout, is_grouped); \
    }                                                                                           \
    static bool check_unpack_##name(struct check *check, unpack_fn *fn)                         \
    {                                                                                           \
        return check_unpack(check, fn, unpack_##name##_ref, layout, is_grouped);                \
    }

CHECK_LAYOUT(f32, LAYOUT_F32, false)
CHECK_LAYOUT(int8, LAYOUT_INT8, false)
CHECK_LAYOUT(int4, LAYOUT_INT4, false)
CHECK_LAYOUT(int4_grouped, LAYOUT_INT4, true)
CHECK_LAYOUT(int2, LAYOUT_INT2, false)
CHECK_LAYOUT(int3, LAYOUT_INT3, false)

/* Fixed-point limbs: support/limb_check.c. */

#define CHECK_SPLIT(name, layout, n)                                                            \
    static bool check_split_limb##n##_##name(struct check *check, split_fn *fn)                 \
    {                                                                                           \
        return check_split(check, fn, split_limb##n##_##name##_ref, (struct limbs){layout, n}); \
    }

#define CHECK_LIMBS(name, splits, layout, n, is_grouped)                                                    \
    static bool check_matmul_limb##n##_##name(struct check *check, matmul_split_fn *fn)                     \
    {                                                                                                       \
        return check_matmul_split(check, fn, matmul_limb##n##_##name##_ref, split_limb##n##_##splits##_ref, \
                                  (struct limbs){layout, n}, is_grouped);                                   \
    }

CHECK_SPLIT(int4, LAYOUT_INT4, 3)
CHECK_SPLIT(int4, LAYOUT_INT4, 1)
CHECK_SPLIT(int8, LAYOUT_INT8, 1)
CHECK_LIMBS(int4, int4, LAYOUT_INT4, 3, false)
CHECK_LIMBS(int4_grouped, int4, LAYOUT_INT4, 3, true)
CHECK_LIMBS(int4, int4, LAYOUT_INT4, 1, false)
CHECK_LIMBS(int4_grouped, int4, LAYOUT_INT4, 1, true)
CHECK_LIMBS(int8, int8, LAYOUT_INT8, 1, false)

/* Vector operations: one case shape serves them all. */

struct vector_case {
    size_t n;
    rmsnorm_fn *rmsnorm;
    layernorm_fn *layernorm;
    rope_fn *rope;
    swiglu_fn *swiglu;
    sigmoid_fn *sigmoid;
    add_fn *add;
    axpy_fn *axpy;
    softmax_fn *softmax;
};

static void shape_of_vector(struct check *check, size_t n)
{
    SHAPE(check, "n %zu, kind %d, %s", n, (int)check->kind, check->against_end ? "at the end" : "at the start");
}

static bool rmsnorm_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *x = check_floats(check, c->n), *w = check_floats(check, c->n);
    float *want = check_area(check, c->n * sizeof *x), *got = check_area(check, c->n * sizeof *x),
          *in_place = check_twin(check, x, c->n);
    double squares = 0;
    for (size_t i = 0; i < c->n; i++) squares += (double)x[i] * (double)x[i];
    check_seal(check);
    rmsnorm_ref(want, x, w, c->n, 1e-5f);
    c->rmsnorm(got, x, w, c->n, 1e-5f);
    c->rmsnorm(in_place, in_place, w, c->n, 1e-5f);
    if (!check_same(check, want, got, c->n) || !check_same(check, want, in_place, c->n)) return false;
    if (check->kind == EXTREME) return check_is_sealed(check, 2);
    for (size_t i = 0; i < c->n; i++) {
        double exact = (double)x[i] / sqrt(squares / (double)c->n + (double)1e-5f) * (double)w[i];
        if (!check_near(check, exact, want[i], 4, fabs(exact) + 0x1p-126)) return false;
    }
    return check_is_sealed(check, 2);
}

static bool layernorm_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *x = check_floats(check, c->n), *w = check_floats(check, c->n), *b = check_floats(check, c->n);
    float *want = check_area(check, c->n * sizeof *x), *got = check_area(check, c->n * sizeof *x),
          *in_place = check_twin(check, x, c->n);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < c->n; i++) sum += (double)x[i];
    double mean = sum / (double)c->n;
    for (size_t i = 0; i < c->n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    check_seal(check);
    layernorm_ref(want, x, w, b, c->n, 1e-6f);
    c->layernorm(got, x, w, b, c->n, 1e-6f);
    c->layernorm(in_place, in_place, w, b, c->n, 1e-6f);
    if (!check_same(check, want, got, c->n) || !check_same(check, want, in_place, c->n)) return false;
    if (check->kind == EXTREME) return check_is_sealed(check, 3);
    for (size_t i = 0; i < c->n; i++) {
        double scaled = ((double)x[i] - mean) / sqrt(squares / (double)c->n + (double)1e-6f) * (double)w[i];
        double exact = scaled + (double)b[i];
        if (!check_near(check, exact, want[i], 5, fabs(scaled) + fabs((double)b[i]) + 1e-12)) return false;
    }
    return check_is_sealed(check, 3);
}

static bool rope_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *cosine = check_floats(check, c->n), *sine = check_floats(check, c->n);
    float *x = check_floats(check, 2 * c->n), *scratch = check_area(check, 2 * c->n * sizeof *x);
    float *want = check_twin(check, x, 2 * c->n), *got = check_twin(check, x, 2 * c->n);
    check_seal(check);
    rope_ref(want, scratch, cosine, sine, c->n);
    c->rope(got, scratch, cosine, sine, c->n);
    if (!check_same(check, want, got, 2 * c->n)) return false;
    if (check->kind == EXTREME) return check_is_sealed(check, 3);
    for (size_t j = 0; j < c->n; j++) {
        double ac = (double)x[2 * j] * (double)cosine[j], bs = (double)x[2 * j + 1] * (double)sine[j];
        double bc = (double)x[2 * j + 1] * (double)cosine[j], as = (double)x[2 * j] * (double)sine[j];
        if (!check_near(check, ac - bs, want[j], 3, fabs(ac) + fabs(bs))) return false;
        if (!check_near(check, bc + as, want[c->n + j], 3, fabs(bc) + fabs(as))) return false;
    }
    return check_is_sealed(check, 3);
}

static bool swiglu_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *gate = check_floats(check, c->n), *up = check_floats(check, c->n);
    if (check->kind == PLAIN)
        for (size_t i = 0; i < c->n; i++) gate[i] *= 120; /* through both ends of the exponential */
    float *want = check_area(check, c->n * sizeof *up), *got = check_area(check, c->n * sizeof *up);
    float *in_place = check_twin(check, gate, c->n);
    check_seal(check);
    swiglu_ref(want, gate, up, c->n);
    c->swiglu(got, gate, up, c->n);
    c->swiglu(in_place, in_place, up, c->n);
    if (!check_same(check, want, got, c->n) || !check_same(check, want, in_place, c->n)) return false;
    for (size_t i = 0; i < c->n && check->kind != EXTREME; i++) {
        if (gate[i] < -87) continue; /* exp(-gate) leaves f32, and the product is at most 1e-36 */
        double exact = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i];
        if (!check_near(check, exact, want[i], 6, fabs(exact) + 0x1p-126)) return false;
    }
    return check_is_sealed(check, 2);
}

static bool sigmoid_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *x = check_floats(check, c->n);
    if (check->kind == PLAIN)
        for (size_t i = 0; i < c->n; i++) x[i] *= 120;
    float *want = check_area(check, c->n * sizeof *x), *got = check_area(check, c->n * sizeof *x),
          *in_place = check_twin(check, x, c->n);
    check_seal(check);
    sigmoid_ref(want, x, c->n);
    c->sigmoid(got, x, c->n);
    c->sigmoid(in_place, in_place, c->n);
    if (!check_same(check, want, got, c->n) || !check_same(check, want, in_place, c->n)) return false;
    for (size_t i = 0; i < c->n; i++) {
        double exact = 1 / (1 + exp(-(double)x[i]));
        if (x[i] < -87) exact = fmin(exact, (double)want[i]); /* exp(-x) leaves f32, and 0 is near enough */
        if (!check_near(check, exact, want[i], 5, exact)) return false;
    }
    return check_is_sealed(check, 1);
}

static bool add_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *x = check_floats(check, c->n), *want = check_floats(check, c->n), *got = check_twin(check, want, c->n);
    float a = rng_number(&check->rng, check->kind);
    check_seal(check);
    if (c->add) {
        add_ref(want, x, c->n);
        c->add(got, x, c->n);
    } else {
        axpy_ref(want, a, x, c->n);
        c->axpy(got, a, x, c->n);
    }
    if (!check_same(check, want, got, c->n)) return false;
    for (size_t i = 0; i < c->n && check->kind != EXTREME; i++) {
        float before;
        memcpy(&before, check->areas[1].copy + i * sizeof before, sizeof before);
        double exact = (double)before + (c->add ? 1 : (double)a) * (double)x[i];
        if (!check_near(check, exact, want[i], 1, fabs(exact))) return false;
    }
    return check_is_sealed(check, 1);
}

static bool softmax_body(struct check *check, const void *argument)
{
    const struct vector_case *c = argument;
    shape_of_vector(check, c->n);
    float *x = check_floats(check, c->n);
    for (size_t i = 0; i < c->n && check->kind == PLAIN; i++) x[i] *= 60;
    float *want = check_twin(check, x, c->n), *got = check_twin(check, x, c->n);
    double max = (double)x[0], sum = 0;
    for (size_t i = 0; i < c->n; i++) max = fmax(max, (double)x[i]);
    for (size_t i = 0; i < c->n; i++) sum += exp((double)x[i] - max);
    check_seal(check);
    softmax_ref(want, c->n);
    c->softmax(got, c->n);
    if (!check_same(check, want, got, c->n)) return false;
    for (size_t i = 0; i < c->n && check->kind != EXTREME; i++) {
        double exact = exp((double)x[i] - max) / sum;
        /* x - max is rounded, by up to 2^-24 of itself, and the exponential turns that into a relative error */
        double terms = 6 + (double)c->n / KERN_LANES + fabs((double)x[i] - max);
        if (!check_near(check, exact, want[i], terms, exact + 0x1p-120)) return false;
    }
    return check_is_sealed(check, 1);
}

static bool check_vector(struct check *check, body_fn *body, struct vector_case c)
{
    for (size_t i = 0; i < COUNT(lengths); i++) {
        c.n = lengths[i];
        if (!check_all_kinds(check, body, &c)) return false;
    }
    return true;
}

#define CHECK_VECTOR(op, body)                                            \
    static bool check_##op(struct check *check, op##_fn *fn)              \
    {                                                                     \
        return check_vector(check, body, (struct vector_case){.op = fn}); \
    }

CHECK_VECTOR(rmsnorm, rmsnorm_body)
CHECK_VECTOR(layernorm, layernorm_body)
CHECK_VECTOR(rope, rope_body)
CHECK_VECTOR(swiglu, swiglu_body)
CHECK_VECTOR(sigmoid, sigmoid_body)
CHECK_VECTOR(add, add_body)
CHECK_VECTOR(axpy, add_body)
CHECK_VECTOR(softmax, softmax_body)

/* Gathers: rows by pointer */

struct gather_case {
    size_t n_rows, dim, n_heads;
    gather_dots_fn *dots;
    gather_mixes_fn *mixes;
    index_scores_fn *index;
};

static void shape_of_gather(struct check *check, const struct gather_case *c)
{
    SHAPE(check, "rows %zu, heads %zu, dim %zu, kind %d, %s", c->n_rows, c->n_heads, c->dim, (int)check->kind,
          check->against_end ? "at the end" : "at the start");
}

static bool dots_body(struct check *check, const void *argument)
{
    const struct gather_case *c = argument;
    size_t q_stride = c->dim + rng_below(&check->rng, 4), y_stride = c->n_rows + rng_below(&check->rng, 4);
    size_t y_floats = (c->n_heads - 1) * y_stride + c->n_rows;
    shape_of_gather(check, c);
    float *q = check_floats(check, (c->n_heads - 1) * q_stride + c->dim);
    float *all = check_floats(check, c->n_rows * c->dim);
    const float **rows = check_pointers(check, all, c->n_rows, c->dim);
    float *want = check_area(check, y_floats * sizeof *q), *got = check_area(check, y_floats * sizeof *q);
    check_seal(check);
    gather_dots_ref(want, y_stride, q, q_stride, c->n_heads, rows, c->n_rows, c->dim, 0.0625f);
    c->dots(got, y_stride, q, q_stride, c->n_heads, rows, c->n_rows, c->dim, 0.0625f);
    if (!check_same(check, want, got, y_floats)) return false;
    for (size_t k = 0; k < c->n_heads * c->n_rows && check->kind != EXTREME; k++) {
        const float *query = q + k / c->n_rows * q_stride, *row = rows[k % c->n_rows];
        double exact = 0, magnitude = 0;
        for (size_t i = 0; i < c->dim; i++) {
            exact += (double)query[i] * (double)row[i] * 0.0625;
            magnitude += fabs((double)query[i] * (double)row[i] * 0.0625);
        }
        float value = want[k / c->n_rows * y_stride + k % c->n_rows];
        if (!check_near(check, exact, value, (double)c->dim + 1, magnitude)) return false;
    }
    return check_is_sealed(check, 3);
}

/* Rows in one call and in two must end at the same bits. */
static bool mixes_body(struct check *check, const void *argument)
{
    const struct gather_case *c = argument;
    size_t p_stride = c->n_rows + rng_below(&check->rng, 4), y_stride = c->dim + rng_below(&check->rng, 4);
    size_t y_floats = (c->n_heads - 1) * y_stride + c->dim, cut = rng_below(&check->rng, c->n_rows);
    shape_of_gather(check, c);
    float *p = check_floats(check, (c->n_heads - 1) * p_stride + c->n_rows);
    float *all = check_floats(check, c->n_rows * c->dim);
    const float **rows = check_pointers(check, all, c->n_rows, c->dim);
    float *before = check_floats(check, y_floats), *want = check_twin(check, before, y_floats);
    float *got = check_twin(check, before, y_floats), *in_two = check_twin(check, before, y_floats);
    check_seal(check);
    gather_mixes_ref(want, y_stride, p, p_stride, c->n_heads, rows, c->n_rows, c->dim);
    c->mixes(got, y_stride, p, p_stride, c->n_heads, rows, c->n_rows, c->dim);
    if (cut > 0) c->mixes(in_two, y_stride, p, p_stride, c->n_heads, rows, cut, c->dim);
    c->mixes(in_two, y_stride, p + cut, p_stride, c->n_heads, rows + cut, c->n_rows - cut, c->dim);
    if (!check_same(check, want, got, y_floats) || !check_same(check, want, in_two, y_floats)) return false;
    for (size_t k = 0; k < c->n_heads * c->dim && check->kind != EXTREME; k++) {
        size_t h = k / c->dim, i = k % c->dim;
        double exact = (double)before[h * y_stride + i], magnitude = fabs(exact);
        for (size_t t = 0; t < c->n_rows; t++) {
            exact += (double)p[h * p_stride + t] * (double)rows[t][i];
            magnitude += fabs((double)p[h * p_stride + t] * (double)rows[t][i]);
        }
        if (!check_near(check, exact, want[h * y_stride + i], (double)c->n_rows, magnitude)) return false;
    }
    return check_is_sealed(check, 4);
}

static bool index_body(struct check *check, const void *argument)
{
    const struct gather_case *c = argument;
    SHAPE(check, "keys %zu, heads %zu, dim %zu, kind %d, %s", c->n_rows, c->n_heads, c->dim, (int)check->kind,
          check->against_end ? "at the end" : "at the start");
    float *q = check_floats(check, c->n_heads * c->dim), *w = check_floats(check, c->n_heads);
    float *all = check_floats(check, c->n_rows * c->dim);
    const float **keys = check_pointers(check, all, c->n_rows, c->dim);
    float *want = check_area(check, c->n_rows * sizeof *q), *got = check_area(check, c->n_rows * sizeof *q);
    check_seal(check);
    index_scores_ref(want, q, w, keys, c->n_rows, c->n_heads, c->dim, 0.125f);
    c->index(got, q, w, keys, c->n_rows, c->n_heads, c->dim, 0.125f);
    if (!check_same(check, want, got, c->n_rows)) return false;
    for (size_t t = 0; t < c->n_rows && check->kind != EXTREME; t++) {
        double exact = 0, magnitude = 0;
        for (size_t g = 0; g < c->n_heads; g++) {
            double dot = 0, size = 0;
            for (size_t i = 0; i < c->dim; i++) {
                dot += (double)q[g * c->dim + i] * (double)keys[t][i] * 0.125;
                size += fabs((double)q[g * c->dim + i] * (double)keys[t][i] * 0.125);
            }
            exact += (double)w[g] * fmax(dot, 0);
            magnitude += fabs((double)w[g]) * size;
        }
        if (!check_near(check, exact, want[t], (double)(c->dim + c->n_heads) + 1, magnitude)) return false;
    }
    return check_is_sealed(check, 4);
}

static bool check_gather(struct check *check, body_fn *body, struct gather_case c)
{
    static const size_t heads[] = {1, 2, 3, 4, 5, 32};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        c.dim = lengths[i];
        c.n_rows = i % 21 + 1;
        c.n_heads = heads[i % COUNT(heads)];
        if (!check_all_kinds(check, body, &c)) return false;
    }
    for (c.n_rows = 1; c.n_rows <= 40; c.n_rows++) {
        c.dim = 64 + c.n_rows % 3 * 16;
        c.n_heads = c.n_rows % 9 + 1;
        if (!check_all_kinds(check, body, &c)) return false;
    }
    return true;
}

/* More rows, queries and columns than kernels hold at a time. */
static bool check_longest(struct check *check, body_fn *body, struct gather_case c)
{
    c.n_rows = 300;
    c.n_heads = 37;
    c.dim = 210;
    return check_all_kinds(check, body, &c);
}

static bool check_gather_dots(struct check *check, gather_dots_fn *fn)
{
    const struct gather_case c = {.dots = fn};
    return check_gather(check, dots_body, c) && check_longest(check, dots_body, c);
}

static bool check_gather_mixes(struct check *check, gather_mixes_fn *fn)
{
    /* past the longest run of rows that kernels walk at a time */
    const struct gather_case longest = {.mixes = fn, .n_rows = 300, .dim = 80, .n_heads = 5};
    return check_gather(check, mixes_body, (struct gather_case){.mixes = fn}) &&
           check_all_kinds(check, mixes_body, &longest);
}

static bool check_index_scores(struct check *check, index_scores_fn *fn)
{
    const struct gather_case c = {.index = fn};
    return check_gather(check, index_body, c) && check_longest(check, index_body, c);
}

/* Selection, against the reference; select_test.c holds the reference against a sort. */

static bool select_body(struct check *check, select_top_fn *fn, size_t n, size_t k, unsigned distinct)
{
    SHAPE(check, "n %zu, k %zu, %u distinct, %s", n, k, distinct, check->against_end ? "at the end" : "at the start");
    check_begin(check);
    float *scores = check_area(check, n * sizeof *scores);
    for (size_t i = 0; i < n; i++)
        scores[i] = distinct ? (float)rng_below(&check->rng, distinct) - 2 : rng_number(&check->rng, check->kind);
    if (n > 3) scores[n / 2] = rng_below(&check->rng, 2) ? -INFINITY : INFINITY;
    uint32_t *want = check_area(check, k * sizeof *want), *got = check_area(check, k * sizeof *got);
    check_seal(check);
    if (!select_top_ref(want, scores, n, k) || !fn(got, scores, n, k)) return false;
    check->comparisons += k;
    if (memcmp(want, got, k * sizeof *want) != 0) {
        if (!check->is_quiet) print_error("%s %s: another selection than the reference's\n", check->name, check->shape);
        return false;
    }
    if (!check_is_sealed(check, 1)) return false;
    scores[rng_below(&check->rng, n)] = NAN;
    return !fn(got, scores, n, k);
}

static bool check_select_top(struct check *check, select_top_fn *fn)
{
    static const unsigned distinct[] = {0, 0, 1, 2, 5, 300};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        for (size_t d = 0; d < COUNT(distinct); d++) {
            check->against_end = d % 2;
            check->kind = (enum kind)((i + d) % KINDS);
            if (!select_body(check, fn, lengths[i], rng_below(&check->rng, lengths[i] + 1), distinct[d])) return false;
            if (!select_body(check, fn, lengths[i], lengths[i], distinct[d])) return false;
        }
    }
    return select_body(check, fn, 150000, 2048, 0) && select_body(check, fn, 150000, 2048, 3);
}

/* Peaks are no function of anything: they must do what they were asked for, and tell how much it was. */

static bool check_peak(struct check *check, peak_fn *fn)
{
    for (uint64_t n = 0; n < 100000; n += 1 + n / 3) {
        uint64_t done = fn(n);
        check->comparisons++;
        if (done < n || done > n + 4096) return false;
    }
    return true;
}

static bool check_peak_f32(struct check *check, peak_f32_op *fn)
{
    return check_peak(check, fn);
}

static bool check_peak_int8(struct check *check, peak_int8_op *fn)
{
    return check_peak(check, fn);
}

/* The tests */

static uint64_t seed = 20240607;
static const char *only_isa; /* or all of them */

struct tally {
    unsigned n_checked, n_skipped, n_failed, n_left_out;
};

static void print_outcome(struct check *check, bool ok, struct tally *tally)
{
    if (ok) {
        print_message("  ok       %-36s %zu values\n", check->name, check->comparisons);
        tally->n_checked++;
    } else {
        print_message("  FAILED   %s\n", check->name);
        tally->n_failed++;
    }
}

static void every_kernel_equals_its_reference(void **state)
{
    (void)state;
    struct tally tally = {0};
    uint32_t cpu = cpu_mask();
    print_message("seed %llu, usable:", (unsigned long long)seed);
    for (unsigned bit = 0; cpu_feature_name(bit); bit++)
        if (cpu >> bit & 1) print_message(" %s", cpu_feature_name(bit));
    print_message("\n");
#define X(op, isa, need)                                                              \
    if (only_isa && strcmp(only_isa, #isa) != 0) {                                    \
        tally.n_left_out++;                                                           \
    } else if ((cpu & (need)) == (need)) {                                            \
        struct check check;                                                           \
        check_init(&check, seed);                                                     \
        check.name = #op "_" #isa;                                                    \
        bool ok = check_##op(&check, op##_##isa);                                     \
        print_outcome(&check, ok &&check.comparisons > 0, &tally);                    \
        check_fini(&check);                                                           \
    } else {                                                                          \
        print_message("  skipped  %s: this processor cannot run it\n", #op "_" #isa); \
        tally.n_skipped++;                                                            \
    }
    KERN_LIST(X)
#undef X
    print_message("%u kernels checked, %u failed, %u skipped, %u of other instruction sets left out\n", tally.n_checked,
                  tally.n_failed, tally.n_skipped, tally.n_left_out);
    assert_int_equal(tally.n_failed, 0);
    assert_true(tally.n_checked > 0);
}

static void every_mask_fills_the_table(void **state)
{
    (void)state;
    uint32_t usable = cpu_mask();
    struct kern kern, best;
    kern_select(&kern, 0);
#define X(op, type) assert_true(kern.op == op##_ref);
    KERN_OPS(X)
#undef X
    for (uint32_t mask = 0; mask < 256; mask++) {
        memset(&kern, 0, sizeof kern);
        kern_select(&kern, mask);
#define X(op, type) assert_non_null((void *)(uintptr_t)kern.op);
        KERN_OPS(X)
#undef X
    }
    kern_select(&best, usable);
    kern_select(&kern, usable | 0xffff0000u); /* bits that mean nothing change nothing */
    assert_memory_equal(&kern, &best, sizeof kern);
}

/* Wrong on purpose. */

static void matmul_int4_dropped_tail(float *y, size_t y_stride, const void *w, const float *scales, const float *x,
                                     size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    (void)group;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_out; o++) {
            float lanes[KERN_LANES] = {0};
            const unsigned char *row = (const unsigned char *)w + o * layout_row_bytes(LAYOUT_INT4, n_in);
            for (size_t i = 0; i < n_in / KERN_LANES * KERN_LANES; i++)
                lanes[i % KERN_LANES] =
                    fmaf(layout_value(LAYOUT_INT4, row, i), x[r * x_stride + i], lanes[i % KERN_LANES]);
            for (int half = KERN_LANES / 2; half > 0; half /= 2)
                for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
            y[r * y_stride + o] = lanes[0] * scales[o];
        }
}

static void matmul_f32_in_one_chain(float *y, size_t y_stride, const void *w, const float *scales, const float *x,
                                    size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    (void)scales, (void)group;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_out; o++) {
            float sum = 0;
            for (size_t i = 0; i < n_in; i++)
                sum = fmaf(layout_value(LAYOUT_F32, w, o * n_in + i), x[r * x_stride + i], sum);
            y[r * y_stride + o] = sum;
        }
}

static void axpy_rounded_twice(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

static void add_one_too_many(float *y, const float *x, size_t n)
{
    volatile float beyond = x[n];
    (void)beyond;
    add_ref(y, x, n);
}

static void add_one_too_early(float *y, const float *x, size_t n)
{
    volatile float before = x[-1];
    (void)before;
    add_ref(y, x, n);
}

static void add_spills(float *y, const float *x, size_t n)
{
    add_ref(y, x, n);
    y[n] = 0;
}

static void add_to_operand(float *y, const float *x, size_t n)
{
    add_ref(y, x, n);
    ((float *)(uintptr_t)x)[n / 2] += 1;
}

static void matmul_int8_writes_gap(float *y, size_t y_stride, const void *w, const float *scales, const float *x,
                                   size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    matmul_int8_ref(y, y_stride, w, scales, x, x_stride, n_rows, n_out, n_in, group);
    if (n_rows > 1) memset(y + n_out, 0, (y_stride - n_out) * sizeof *y);
}

static void split_limb3_int4_blind_to_nan(void *split, size_t split_stride, const float *x, size_t x_stride,
                                          size_t n_rows, size_t n_in)
{
    float *numbers = malloc(n_in * sizeof *numbers);
    assert_non_null(numbers);
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < n_in; i++) numbers[i] = isnan(x[r * x_stride + i]) ? 0 : x[r * x_stride + i];
        split_limb3_int4_ref((char *)split + r * split_stride, split_stride, numbers, n_in, 1, n_in);
    }
    free(numbers);
}

static void split_limb1_int8_of_neighbour(void *split, size_t split_stride, const float *x, size_t x_stride,
                                          size_t n_rows, size_t n_in)
{
    split_limb1_int8_ref(split, split_stride, x, x_stride, n_rows, n_in);
    if (n_rows > 1) split_limb1_int8_ref(split, split_stride, x + x_stride, x_stride, 1, n_in);
}

/* Only the two upper limbs count. */
static void matmul_limb3_int4_by_two(float *y, size_t y_stride, const void *w, const float *scales, const void *split,
                                     size_t split_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    size_t bytes = (n_rows - 1) * split_stride + kern_split_bytes(3, n_in);
    unsigned char *upper = memcpy(malloc(bytes), split, bytes);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t b = 0; b < kern_split_bytes(3, n_in); b += kern_split_bytes(3, KERN_SPLIT_COLUMNS))
            memset(upper + r * split_stride + b + 2 * KERN_SPLIT_COLUMNS, 0, KERN_SPLIT_COLUMNS);
    matmul_limb3_int4_ref(y, y_stride, w, scales, upper, split_stride, n_rows, n_out, n_in, group);
    free(upper);
}

/* As if one scale served the row. */
static void matmul_limb1_int4_grouped_first_scale(float *y, size_t y_stride, const void *w, const float *scales,
                                                  const void *split, size_t split_stride, size_t n_rows, size_t n_out,
                                                  size_t n_in, size_t group)
{
    size_t row_bytes = layout_row_bytes(LAYOUT_INT4, n_in), row_scales = layout_row_scales(n_in, group);
    for (size_t o = 0; o < n_out; o++)
        matmul_limb1_int4_ref(y + o, y_stride, (const char *)w + o * row_bytes, scales + o * row_scales, split,
                              split_stride, n_rows, 1, n_in, 0);
}

static bool select_top_ties_last(uint32_t *out, const float *scores, size_t n, size_t k)
{
    if (!select_top_ref(out, scores, n, k)) return false;
    for (size_t i = 0; k > 0 && i < n; i++)
        if (i > out[k - 1] && scores[i] == scores[out[k - 1]]) out[k - 1] = (uint32_t)i;
    return true;
}

static bool select_top_blind_to_nan(uint32_t *out, const float *scores, size_t n, size_t k)
{
    if (!select_top_ref(out, scores, n, k))
        for (size_t i = 0; i < k; i++) out[i] = (uint32_t)i;
    return true;
}

static struct check quiet_check(void)
{
    struct check check;
    check_init(&check, seed);
    check.name = "wrong on purpose";
    check.is_quiet = true;
    return check;
}

static void wrong_results_are_seen(void **state)
{
    (void)state;
    struct check check = quiet_check();
    assert_false(check_matmul_int4(&check, matmul_int4_dropped_tail));
    assert_false(check_matmul_f32(&check, matmul_f32_in_one_chain));
    assert_false(check_matmul_int8(&check, matmul_int8_writes_gap));
    assert_false(check_axpy(&check, axpy_rounded_twice));
    assert_false(check_add(&check, add_to_operand));
    assert_false(check_select_top(&check, select_top_ties_last));
    assert_false(check_select_top(&check, select_top_blind_to_nan));
    assert_false(check_split_limb3_int4(&check, split_limb3_int4_blind_to_nan));
    assert_false(check_split_limb1_int8(&check, split_limb1_int8_of_neighbour));
    assert_false(check_matmul_limb3_int4(&check, matmul_limb3_int4_by_two));
    assert_false(check_matmul_limb1_int4_grouped(&check, matmul_limb1_int4_grouped_first_scale));
    assert_true(check_matmul_limb3_int4(&check, matmul_limb3_int4_ref));
    assert_true(check_matmul_int4(&check, matmul_int4_ref)); /* and the right one is not accused */
    check_fini(&check);
}

/* Whether the check of `fn` dies, in a child of its own. */
static bool is_caught(add_fn *fn)
{
    enum { SURVIVED = 42 };
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO); /* a sanitizer would tell about the fault that is wanted */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        struct check check = quiet_check();
        check_add(&check, fn);
        _exit(SURVIVED);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == SURVIVED);
}

static void stray_accesses_are_seen(void **state)
{
    (void)state;
    assert_true(is_caught(add_one_too_many));
    assert_true(is_caught(add_one_too_early));
    assert_true(is_caught(add_spills));
    assert_false(is_caught(add_ref));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_equals_its_reference),
        cmocka_unit_test(every_mask_fills_the_table),
        cmocka_unit_test(wrong_results_are_seen),
        cmocka_unit_test(stray_accesses_are_seen),
    };
    if (argc == 3 && strcmp(argv[1], "--isa") == 0) only_isa = argv[2];
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) seed = strtoull(argv[2], NULL, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
