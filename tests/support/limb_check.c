#include "support/limb_check.h"

#include <math.h>

static const size_t lengths[] = {1,   2,   3,   7,   8,   9,   15,  16,  17,  31,   33,   63,   64,   65,
                                 96,  127, 128, 129, 130, 191, 192, 193, 255, 256,  257,  320,  384,  400,
                                 511, 512, 513, 640, 767, 768, 769, 896, 900, 1024, 1025, 1040, 1537, 2048};
static const size_t groups[] = {64, 128, 192, 256};

static size_t n_blocks(size_t n_in)
{
    return (n_in + KERN_SPLIT_COLUMNS - 1) / KERN_SPLIT_COLUMNS;
}

static int limb_at(const unsigned char *limb, size_t p)
{
    return limb[p] < 128 ? (int)limb[p] : (int)limb[p] - 256;
}

static double value_at(struct limbs l, const unsigned char *block, size_t p)
{
    float scale;
    int v = 0;
    size_t columns = KERN_SPLIT_COLUMNS;
    for (size_t i = 0; i < l.n; i++) v = 256 * v + limb_at(block + i * columns, p);
    memcpy(&scale, block + limbs_scales_at(l) + p % 64 / 4 * 4, sizeof scale);
    return (double)v * (double)scale;
}

/* The largest |x| of the lane that column i is in. */
static double largest_of_lane(struct limbs l, const float *x, size_t n_in, size_t i)
{
    double largest = 0;
    size_t columns = KERN_SPLIT_COLUMNS, first = i / columns * columns, lane = SIZE_MAX;
    for (size_t p = 0; p < columns; p++)
        if (first + limbs_column(l, p) == i) lane = p % 64 / 4;
    for (size_t p = 0; p < columns; p++) {
        size_t column = first + limbs_column(l, p);
        if (p % 64 / 4 == lane && column < n_in) largest = fmax(largest, fabs((double)x[column]));
    }
    return largest;
}

/* Every integer stands for its input, as closely as kern.h says. */
static bool split_is_near(struct check *check, struct limbs l, const unsigned char *row, const float *x, size_t n_in)
{
    size_t columns = KERN_SPLIT_COLUMNS;
    for (size_t p = 0; p < n_blocks(n_in) * columns; p++) {
        const unsigned char *block = row + p / columns * limbs_block_bytes(l);
        size_t column = p / columns * columns + limbs_column(l, p % columns);
        double got = value_at(l, block, p % columns);
        if (column >= n_in) {
            if (got == 0) continue;
            if (!check->is_quiet)
                print_error("%s %s: column %zu beyond the end is %g\n", check->name, check->shape, column, got);
            return false;
        }
        double bound = largest_of_lane(l, x, n_in, column) * (l.n == 3 ? 0x1.03p-23 : 0.5001 / 127);
        bound += l.n == 3 ? 0x1p-127 : 0x1p-100;
        if (fabs(got - (double)x[column]) <= bound) continue;
        if (!check->is_quiet)
            print_error("%s %s: column %zu is %.9g, the split has %.9g\n", check->name, check->shape, column,
                        (double)x[column], got);
        return false;
    }
    return true;
}

struct limb_case {
    split_fn *split, *split_ref;
    matmul_split_fn *fn, *ref;
    struct limbs l;
    size_t n_in, n_out, n_rows, group;
    bool is_grouped;
};

/* Numbers that a split could trip over: whole lanes of zeros, a lane with a lone giant, the ends of the range. */
static void spice(struct check *check, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t dice = rng_below(&check->rng, 97);
        if (dice == 0) x[i] *= 1000;
        if (dice == 1) x[i] = 0x1.fbfbfap0f; /* scales to the largest integer and a half, which is even above */
        if (dice == 2) x[i] = -0x1.fbfbfcp0f;
        if (dice == 3) x[i] = nextafterf(0x1.fbfbfap0f, 0);
        if (dice == 4 && check->kind == EXTREME) x[i] = rng_below(&check->rng, 2) ? INFINITY : NAN;
    }
    if (n > 300 && rng_below(&check->rng, 3) == 0) memset(x + 16, 0, 280 * sizeof *x);
}

static bool split_body(struct check *check, const void *argument)
{
    const struct limb_case *c = argument;
    size_t x_stride = c->n_in + rng_below(&check->rng, 4);
    size_t row_bytes = kern_split_bytes(c->l.n, c->n_in);
    size_t stride = row_bytes + rng_below(&check->rng, 3) * 52, bytes = (c->n_rows - 1) * stride + row_bytes;
    SHAPE(check, "rows %zu, in %zu, kind %d, %s", c->n_rows, c->n_in, (int)check->kind,
          check->against_end ? "at the end" : "at the start");
    float *x = check_floats(check, (c->n_rows - 1) * x_stride + c->n_in);
    spice(check, x, (c->n_rows - 1) * x_stride + c->n_in);
    unsigned char *want = check_area(check, bytes), *got = check_area(check, bytes);
    check_seal(check);
    c->split_ref(want, stride, x, x_stride, c->n_rows, c->n_in);
    c->split(got, stride, x, x_stride, c->n_rows, c->n_in);
    check->comparisons += bytes;
    for (size_t i = 0; i < bytes; i++) {
        if (want[i] == got[i]) continue;
        if (!check->is_quiet)
            print_error("%s %s: byte %zu is %02x, the reference has %02x\n", check->name, check->shape, i, got[i],
                        want[i]);
        return false;
    }
    for (size_t r = 0; r < c->n_rows && check->kind != EXTREME && c->split == c->split_ref; r++)
        if (!split_is_near(check, c->l, want + r * stride, x + r * x_stride, c->n_in)) return false;
    return check_is_sealed(check, 1);
}

bool check_split(struct check *check, split_fn *fn, split_fn *ref, struct limbs l)
{
    struct limb_case c = {.split = fn, .split_ref = ref, .l = l};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        c.n_in = lengths[i];
        c.n_rows = 1 + i % 3;
        if (!check_all_kinds(check, split_body, &c)) return false;
    }
    return true;
}

/* The product of what the split stands for, in float64: what is left are the roundings of the lanes. */
static bool product_is_near(struct check *check, const struct limb_case *c, const float *y, size_t y_stride,
                            const unsigned char *w, const float *scales, const unsigned char *split, size_t stride)
{
    size_t group = c->is_grouped ? c->group : 0, row_scales = layout_row_scales(c->n_in, group);
    size_t columns = KERN_SPLIT_COLUMNS;
    for (size_t r = 0; r < c->n_rows; r++) {
        for (size_t o = 0; o < c->n_out; o++) {
            double exact = 0, magnitude = 0;
            const unsigned char *row = w + o * layout_row_bytes(c->l.layout, c->n_in);
            for (size_t p = 0; p < n_blocks(c->n_in) * columns; p++) {
                size_t column = p / columns * columns + limbs_column(c->l, p % columns);
                if (column >= c->n_in) continue;
                const unsigned char *block = split + r * stride + p / columns * limbs_block_bytes(c->l);
                double weight = (double)layout_value(c->l.layout, row, column);
                weight *= (double)scales[o * row_scales + (group ? column / group : 0)];
                exact += weight * value_at(c->l, block, p % columns);
                magnitude += fabs(weight * value_at(c->l, block, p % columns));
            }
            double terms = (double)n_blocks(c->n_in) + 9;
            if (!check_near(check, exact, y[r * y_stride + o], terms, magnitude)) return false;
        }
    }
    return true;
}

static bool matmul_body(struct check *check, const void *argument)
{
    const struct limb_case *c = argument;
    size_t y_stride = c->n_out + rng_below(&check->rng, 4), y_floats = (c->n_rows - 1) * y_stride + c->n_out;
    size_t row_bytes = kern_split_bytes(c->l.n, c->n_in);
    size_t stride = row_bytes + rng_below(&check->rng, 3) * 52;
    SHAPE(check, "rows %zu (%zu bytes apart, to %zu), out %zu, in %zu, group %zu, kind %d, %s", c->n_rows, stride,
          y_stride, c->n_out, c->n_in, c->group, (int)check->kind, check->against_end ? "at the end" : "at the start");
    float *x = check_floats(check, c->n_rows * c->n_in);
    spice(check, x, c->n_rows * c->n_in);
    unsigned char *split = check_area(check, (c->n_rows - 1) * stride + row_bytes);
    c->split_ref(split, stride, x, c->n_in, c->n_rows, c->n_in);
    unsigned char *w = check_weights(check, c->l.layout, c->n_out, c->n_in);
    if (c->n_in > 20 && check->kind == PLAIN)
        memset(w, c->l.layout == LAYOUT_INT8 ? 0x80 : 0, c->n_in / 2); /* lowest */
    size_t group = c->is_grouped ? c->group : 0;
    float *scales = check_scales(check, c->n_out * layout_row_scales(c->n_in, group));
    size_t operands = check->n_areas;
    float *want = check_area(check, y_floats * sizeof(float)), *got = check_area(check, y_floats * sizeof(float));
    float *alone = check_area(check, c->n_out * sizeof(float));
    check_seal(check);
    c->ref(want, y_stride, w, scales, split, stride, c->n_rows, c->n_out, c->n_in, c->group);
    c->fn(got, y_stride, w, scales, split, stride, c->n_rows, c->n_out, c->n_in, c->group);
    if (!check_same(check, want, got, y_floats)) return false;
    for (size_t r = 0; r < c->n_rows; r++) {
        c->fn(alone, c->n_out, w, scales, split + r * stride, stride, 1, c->n_out, c->n_in, c->group);
        if (!check_same(check, got + r * y_stride, alone, c->n_out)) return false;
    }
    if (check->kind != EXTREME && c->fn == c->ref &&
        !product_is_near(check, c, want, y_stride, w, scales, split, stride))
        return false;
    return check_is_sealed(check, operands);
}

bool check_matmul_split(struct check *check, matmul_split_fn *fn, matmul_split_fn *ref, split_fn *split, struct limbs l,
                        bool is_grouped)
{
    static const size_t outs[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17};
    static const size_t rows[] = {1, 1, 2, 3, 4, 5, 7, 8};
    struct limb_case c = {.split_ref = split, .fn = fn, .ref = ref, .l = l, .is_grouped = is_grouped};
    for (size_t g = 0; g < (is_grouped ? COUNT(groups) : 1); g++) {
        for (size_t i = g % 3; i < COUNT(lengths); i += is_grouped ? 3 : 1) {
            c.n_in = lengths[i];
            c.group = is_grouped ? groups[g] : 0;
            c.n_out = outs[rng_below(&check->rng, COUNT(outs))];
            c.n_rows = rows[rng_below(&check->rng, c.n_in > 600 ? 3 : COUNT(rows))];
            if (!check_all_kinds(check, matmul_body, &c)) return false;
        }
    }
    c.n_in = 800; /* every number of rows around the tiles */
    c.group = is_grouped ? 64 : 0;
    for (c.n_rows = 1; c.n_rows <= 50; c.n_rows += 1 + c.n_rows / 5) {
        c.n_out = 1 + rng_below(&check->rng, c.n_rows < 9 ? 18 : 9);
        if (!check_all_kinds(check, matmul_body, &c)) return false;
    }
    return true;
}
