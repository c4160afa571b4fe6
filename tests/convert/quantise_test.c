/* The quantiser against a second one that is written from the rules: plain loops over a whole matrix in memory. */
#include "convert/quantise.h"
#include "support/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static uint64_t seed_state;

static uint32_t next_random(void)
{
    seed_state = seed_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed_state >> 33);
}

/* Heavy-tailed, like weights with outliers. */
static float random_weight(void)
{
    float x = (float)((int32_t)(next_random() % 20001) - 10000) * 1e-5f;
    return next_random() % 50 == 0 ? x * 40 : x;
}

/* To the nearest integer, halves to the even one, by its definition. */
static int round_half_even(float x)
{
    double below = floor((double)x), rest = (double)x - below;
    if (rest > 0.5 || (rest == 0.5 && fmod(below, 2) != 0)) below += 1;
    return (int)below;
}

static void define(float *scales, int *values, const float *w, uint32_t rows, uint32_t columns, uint32_t group,
                   int qmax)
{
    uint32_t n_groups = (columns + group - 1) / group;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t g = 0; g < n_groups; g++) {
            volatile float largest = 0, scale;
            for (uint32_t i = g * group; i < columns && i < (g + 1) * group; i++)
                if (fabs((double)w[r * columns + i]) > (double)largest)
                    largest = (float)fabs((double)w[r * columns + i]);
            scale = largest / (float)qmax;
            if (scale < 1e-8f) scale = 1e-8f;
            scales[r * n_groups + g] = scale;
            for (uint32_t i = g * group; i < columns && i < (g + 1) * group; i++) {
                volatile float quotient = w[r * columns + i] / scale;
                int value = round_half_even(quotient);
                values[r * columns + i] = value > qmax ? qmax : value < -qmax - 1 ? -qmax - 1 : value;
            }
        }
    }
}

/* group 0: one scale per row; -1: int8. */
static void one_matrix(uint32_t rows, uint32_t columns, int group, const float *w)
{
    uint32_t span = group > 0 ? (uint32_t)group : columns, n_groups = (columns + span - 1) / span;
    uint32_t row_bytes = group < 0 ? columns : (columns + 1) / 2;
    float *want_scales = calloc(rows * n_groups, sizeof *want_scales);
    int *want = calloc(rows * columns, sizeof *want);
    define(want_scales, want, w, rows, columns, span, group < 0 ? 127 : 7);
    for (uint32_t r = 0; r < rows; r++) {
        struct quantise_loss loss = {0};
        uint8_t *payload = malloc(row_bytes);
        float *scales = malloc(n_groups * sizeof *scales); /* exact sizes: the sanitizer sees one byte too far */
        memset(payload, 0xa5, row_bytes);
        if (group < 0)
            quantise_row_int8(payload, scales, w + r * columns, columns, &loss);
        else
            quantise_row_int4(payload, scales, w + r * columns, columns, (uint32_t)group, &loss);
        assert_memory_equal(scales, want_scales + r * n_groups, n_groups * sizeof *scales);
        double error = 0;
        for (uint32_t i = 0; i < columns; i++) {
            int value = group < 0 ? (int8_t)payload[i] : (int)(payload[i / 2] >> (i % 2 * 4) & 15) - 8;
            if (value != want[r * columns + i])
                fail_msg("[%u, %u] group %d: column %u is %d, want %d", rows, columns, group, i, value,
                         want[r * columns + i]);
            double missed = (double)w[r * columns + i] - (double)value * (double)want_scales[r * n_groups + i / span];
            error += missed * missed;
        }
        assert_true(fabs(error - loss.error) <= 1e-9 * error);
        if (group >= 0 && columns % 2) assert_int_equal(payload[row_bytes - 1] >> 4, 0); /* the pad */
        free(payload);
        free(scales);
    }
    free(want_scales);
    free(want);
}

static void random_matrices(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 96, 127, 129, 255, 257, 513, 1000};
    static const int groups[] = {-1, 0, 16, 32, 48, 64, 96, 128, 192, 256};
    seed_state = 20240229;
    printf("seed %d\n", 20240229);
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            float *w = malloc(5 * widths[k] * sizeof *w);
            for (uint32_t i = 0; i < 5 * widths[k]; i++) w[i] = random_weight();
            memset(w + 2 * widths[k], 0, widths[k] * sizeof *w);                     /* a row of zeros */
            for (uint32_t i = 0; i < widths[k]; i++) w[3 * widths[k] + i] *= 1e-38f; /* subnormal */
            one_matrix(5, widths[k], groups[g], w);
            free(w);
        }
    }
}

static void halves_go_to_the_even_integer(void **state)
{
    (void)state;
    const float w[10] = {7, 0.5f, 1.5f, 2.5f, 3.5f, -0.5f, -1.5f, -2.5f, -7, 6.5f}; /* scale exactly 1 */
    const int want[10] = {7, 0, 2, 2, 4, 0, -2, -2, -7, 6};
    uint8_t payload[5];
    float scale;
    struct quantise_loss loss = {0};
    quantise_row_int4(payload, &scale, w, 10, 0, &loss);
    assert_true(scale == 1.0f);
    for (int i = 0; i < 10; i++) assert_int_equal((payload[i / 2] >> (i % 2 * 4) & 15) - 8, want[i]);

    float bytes[4] = {127, 126.5f, -125.5f, -127};
    uint8_t int8[4];
    quantise_row_int8(int8, &scale, bytes, 4, &loss);
    assert_int_equal((int8_t)int8[0], 127);
    assert_int_equal((int8_t)int8[1], 126);
    assert_int_equal((int8_t)int8[2], -126);
    assert_int_equal((int8_t)int8[3], -127);
}

static void zeros_have_a_scale(void **state)
{
    (void)state;
    float w[7] = {0}, scale;
    uint8_t payload[7];
    struct quantise_loss loss = {0};
    quantise_row_int4(payload, &scale, w, 7, 0, &loss);
    assert_true(scale == 1e-8f);
    assert_memory_equal(payload, "\x88\x88\x88\x08", 4);
    quantise_row_int8(payload, &scale, w, 7, &loss);
    assert_true(scale == 1e-8f);
    assert_memory_equal(payload, "\0\0\0\0\0\0\0", 7);
    assert_true(loss.error == 0 && loss.energy == 0);
}

/* The rule says to divide. Shows that multiplying with the reciprocal, which is so tempting, would be seen here. */
static void a_reciprocal_would_be_seen(void **state)
{
    (void)state;
    unsigned differences = 0;
    seed_state = 7;
    for (int k = 0; k < 200000; k++) {
        float largest = 1 + (float)(next_random() % 1000000) * 1e-6f, scale = largest / 7;
        float w = scale * ((float)(next_random() % 7) + 0.5f);
        differences += lrintf(w / scale) != lrintf(w * (1 / scale));
    }
    printf("of 200000 near-ties %u differ\n", differences);
    assert_true(differences > 100);
}

static void bad_values_are_found(void **state)
{
    (void)state;
    float w[9] = {0, -1, FLT_MAX, -FLT_MAX, FLT_MIN / 4, 3, 4, 5, 6};
    assert_int_equal(quantise_find_bad(w, 9), 9);
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 9; i++) {
        for (size_t k = 0; k < 4; k++) {
            float saved = w[i];
            w[i] = bad[k];
            assert_int_equal(quantise_find_bad(w, 9), i);
            w[i] = saved;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_matrices),      cmocka_unit_test(halves_go_to_the_even_integer),
        cmocka_unit_test(zeros_have_a_scale),   cmocka_unit_test(a_reciprocal_would_be_seen),
        cmocka_unit_test(bad_values_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
