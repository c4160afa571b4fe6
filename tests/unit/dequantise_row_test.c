#include "fmt/dequantise.h"
#include "kern/kern.h"
#include "support/check.h"

#include <stdlib.h>

/* Rows outside of the kernels must have the kernels' bits: an embedding row may come from either. */
static void rows_equal_the_kernels_rows(void **state)
{
    (void)state;
    static const struct {
        enum weight_format format;
        uint32_t group;
    } formats[] = {
        {FORMAT_F32, 0},       {FORMAT_INT8_ROW, 0},      {FORMAT_INT4_ROW, 0},      {FORMAT_INT2_ROW, 0},
        {FORMAT_INT3_G64, 64}, {FORMAT_INT4_GROUPED, 16}, {FORMAT_INT4_GROUPED, 48}, {FORMAT_INT4_GROUPED, 64},
    };
    static const uint32_t widths[] = {1, 2, 3, 7, 16, 63, 64, 65, 100, 128, 200};
    struct kern kern;
    kern_select(&kern, 0);
    srand(52);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
            enum { ROWS = 5 };
            uint32_t n = widths[k], group = formats[f].group;
            enum weight_format format = formats[f].format;
            uint64_t row_bytes = format_row_bytes(format, n), n_scales = format_scales(format, ROWS, n, group);
            unsigned char *payload = malloc(ROWS * row_bytes);
            float *scales = malloc((n_scales + 1) * sizeof *scales), *got = malloc(n * 4), *want = malloc(n * 4);
            for (uint64_t i = 0; i < ROWS * row_bytes; i++) payload[i] = (unsigned char)rand();
            if (format == FORMAT_F32)
                for (uint64_t i = 0; i < ROWS * n; i++) ((float *)(void *)payload)[i] = (float)rand() / 7;
            for (uint64_t i = 0; i < n_scales; i++) scales[i] = (float)(1 + rand()) / 3e9f;
            const struct matrix matrix = {format, ROWS, n, group, payload, scales};
            unpack_fn *unpack = format == FORMAT_F32        ? kern.unpack_f32
                                : format == FORMAT_INT8_ROW ? kern.unpack_int8
                                : format == FORMAT_INT4_ROW ? kern.unpack_int4
                                : format == FORMAT_INT2_ROW ? kern.unpack_int2
                                : format == FORMAT_INT3_G64 ? kern.unpack_int3
                                                            : kern.unpack_int4_grouped;
            for (uint32_t row = 0; row < ROWS; row++) {
                dequantise_row(got, &matrix, row);
                unpack(want, payload + row * row_bytes, scales + format_scales(format, row, n, group), n, group);
                if (memcmp(got, want, n * 4) != 0) fail_msg("%s group %u, %u columns", format_name(format), group, n);
            }
            free(payload);
            free(scales);
            free(got);
            free(want);
        }
    }
}

/* Two rows of blocks and a partial block of columns; bf16 and f16 for good measure. */
static void rows_of_checkpoints(void **state)
{
    (void)state;
    enum { ROWS = 130, COLUMNS = 150 };
    static unsigned char bytes[ROWS * COLUMNS];
    static float row[COLUMNS];
    const float scales[4] = {1, 2, 4, 8};
    memset(bytes, 0x38, sizeof bytes); /* 1.0 */
    const struct matrix fp8 = {FORMAT_FP8_BLOCK, ROWS, COLUMNS, 0, bytes, scales};
    dequantise_row(row, &fp8, 127);
    assert_true(row[0] == 1 && row[127] == 1 && row[128] == 2 && row[149] == 2);
    dequantise_row(row, &fp8, 128);
    assert_true(row[0] == 4 && row[127] == 4 && row[128] == 8 && row[149] == 8);
    static const unsigned char halves[8] = {0x80, 0x3f, 0x00, 0xc0, 0x00, 0x3c, 0x00, 0xc0};
    const struct matrix bf16 = {FORMAT_BF16, 2, 2, 0, halves, NULL}, f16 = {FORMAT_F16, 2, 2, 0, halves, NULL};
    dequantise_row(row, &bf16, 0);
    assert_true(row[0] == 1 && row[1] == -2);
    dequantise_row(row, &f16, 1);
    assert_true(row[0] == 1 && row[1] == -2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_equal_the_kernels_rows),
        cmocka_unit_test(rows_of_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
