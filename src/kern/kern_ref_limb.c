#include "kern/limb_int.h"
#include "kern/list_int.h"

#include <math.h>

/* The definition of the fixed-point limbs of kern.h, lane by lane, in the layout of limb_int.h. */

static void put_limbs(struct limbs l, unsigned char *block, size_t p, int32_t v)
{
    /* v plus half the range of each lower limb: its bytes are the limbs, the lower ones with their top bit flipped. */
    uint32_t digits = l.n == 3 ? (uint32_t)(v + 0x8080) ^ 0x8080 : (uint32_t)v;
    for (size_t i = 0; i < l.n; i++) block[i * KERN_SPLIT_COLUMNS + p] = (unsigned char)(digits >> (8 * (l.n - 1 - i)));
}

/* One lane of a block: x[p] is the value that byte p of a limb stands for. */
static void split_lane(struct limbs l, unsigned char *block, const float *x, size_t lane)
{
    uint32_t largest = 0;
    float scale, inverse;
    int32_t sum = 0;
    for (size_t p = 0; p < KERN_SPLIT_COLUMNS; p++)
        if (p % LIMB_REGISTER / 4 == lane && limb_magnitude(x[p]) > largest) largest = limb_magnitude(x[p]);
    if (l.n == 3)
        limb_scale3(largest, &scale, &inverse);
    else
        limb_scale1(largest, &scale, &inverse);
    bool is_finite = largest < LIMB_NOT_FINITE;
    if (!is_finite) scale = limb_float(0x7fc00000);
    for (size_t p = 0; p < KERN_SPLIT_COLUMNS; p++) {
        if (p % LIMB_REGISTER / 4 != lane) continue;
        int32_t v = is_finite ? (int32_t)lrintf(x[p] * inverse) : 0;
        put_limbs(l, block, p, v);
        sum += v;
    }
    int32_t offset = -limbs_bias(l) * sum;
    memcpy(block + limbs_scales_at(l) + lane * sizeof scale, &scale, sizeof scale);
    memcpy(block + limbs_offsets_at(l) + lane * sizeof offset, &offset, sizeof offset);
}

static void split(struct limbs l, void *out, size_t split_stride, const float *x, size_t x_stride, size_t n_rows,
                  size_t n_in)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t first = 0; first < n_in; first += KERN_SPLIT_COLUMNS) {
            float values[KERN_SPLIT_COLUMNS];
            for (size_t p = 0; p < KERN_SPLIT_COLUMNS; p++) {
                size_t column = first + limbs_column(l, p);
                values[p] = column < n_in ? x[r * x_stride + column] : 0;
            }
            unsigned char *block = (unsigned char *)out + r * split_stride + kern_split_bytes(l.n, first);
            for (size_t lane = 0; lane < KERN_LANES; lane++) split_lane(l, block, values, lane);
        }
}

static int limb_at(const unsigned char *limb, size_t p)
{
    return limb[p] < 128 ? (int)limb[p] : (int)limb[p] - 256;
}

static int32_t value_at(struct limbs l, const unsigned char *block, size_t p)
{
    int32_t v = 0;
    for (size_t i = 0; i < l.n; i++) v = 256 * v + limb_at(block + i * KERN_SPLIT_COLUMNS, p);
    return v;
}

static float dot(struct limbs l, const unsigned char *row, const float *scales, const unsigned char *input, size_t n_in,
                 size_t group)
{
    float lanes[KERN_LANES] = {0};
    for (size_t first = 0; first < n_in; first += KERN_SPLIT_COLUMNS) {
        const unsigned char *block = input + kern_split_bytes(l.n, first);
        int32_t sums[KERN_LANES] = {0};
        for (size_t p = 0; p < KERN_SPLIT_COLUMNS; p++) {
            size_t column = first + limbs_column(l, p);
            if (column < n_in)
                sums[p % LIMB_REGISTER / 4] += (int32_t)layout_value(l.layout, row, column) * value_at(l, block, p);
        }
        for (size_t j = 0; j < KERN_LANES; j++) {
            float factor;
            memcpy(&factor, block + limbs_scales_at(l) + j * sizeof factor, sizeof factor);
            if (group)
                factor *= scales[limbs_scale_of(first + j / 4 * LIMB_STRETCH, group, layout_row_scales(n_in, group))];
            lanes[j] = fmaf((float)sums[j], factor, lanes[j]);
        }
    }
    return group ? fold_lanes(lanes) : fold_lanes(lanes) * scales[0];
}

static void matmul(struct limbs l, float *y, size_t y_stride, const void *w, const float *scales,
                   const void *split_rows, size_t split_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    size_t row_bytes = layout_row_bytes(l.layout, n_in), row_scales = layout_row_scales(n_in, group);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < n_out; o++)
            y[r * y_stride + o] = dot(l, (const unsigned char *)w + o * row_bytes, scales + o * row_scales,
                                      (const unsigned char *)split_rows + r * split_stride, n_in, group);
}

#define DEFINE_SPLIT(name, layout, n_limbs)                                                                  \
    void split_limb##n_limbs##_##name##_ref(void *out, size_t split_stride, const float *x, size_t x_stride, \
                                            size_t n_rows, size_t n_in)                                      \
    {                                                                                                        \
        split((struct limbs){layout, n_limbs}, out, split_stride, x, x_stride, n_rows, n_in);                \
    }

#define DEFINE_MATMUL(name, layout, n_limbs, columns_per_scale)                                                        \
    void matmul_limb##n_limbs##_##name##_ref(float *y, size_t y_stride, const void *w, const float *scales,            \
                                             const void *split_rows, size_t split_stride, size_t n_rows, size_t n_out, \
                                             size_t n_in, size_t group)                                                \
    {                                                                                                                  \
        (void)group;                                                                                                   \
        matmul((struct limbs){layout, n_limbs}, y, y_stride, w, scales, split_rows, split_stride, n_rows, n_out, n_in, \
               columns_per_scale);                                                                                     \
    }

DEFINE_SPLIT(int4, LAYOUT_INT4, 3)
DEFINE_SPLIT(int4, LAYOUT_INT4, 1)
DEFINE_SPLIT(int8, LAYOUT_INT8, 1)

DEFINE_MATMUL(int4, LAYOUT_INT4, 3, 0)
DEFINE_MATMUL(int4_grouped, LAYOUT_INT4, 3, group)
DEFINE_MATMUL(int4, LAYOUT_INT4, 1, 0)
DEFINE_MATMUL(int4_grouped, LAYOUT_INT4, 1, group)
DEFINE_MATMUL(int8, LAYOUT_INT8, 1, 0)
