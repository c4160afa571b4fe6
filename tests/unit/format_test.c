#include "fmt/format.h"
#include "support/check.h"

static const struct {
    uint32_t rows, columns;
    uint64_t payload, scales;
    const char *stamp;
    enum weight_format format; /* FORMAT_COUNT: refused */
    uint32_t group;
    const char *says;
} cases[] = {
    /* GLM-5.2's shapes */
    {2048, 6144, 2048 * 6144, 4 * 2048, NULL, FORMAT_INT8_ROW, 0, NULL},
    {2048, 6144, 2048 * 3072, 4 * 2048, NULL, FORMAT_INT4_ROW, 0, NULL},
    {2048, 6144, 2048 * 3072, 4 * 2048 * 96, NULL, FORMAT_INT4_GROUPED, 64, NULL},
    {2048, 6144, 2048 * 3072, 4 * 2048 * 48, NULL, FORMAT_INT4_GROUPED, 128, NULL},
    {2048, 6144, 2048 * 3072, 4 * 2048 * 384, NULL, FORMAT_INT4_GROUPED, 16, NULL},
    {28672, 512, 28672 * 256, 4 * 28672 * 2, NULL, FORMAT_INT4_GROUPED, 256, NULL},
    {2048, 6144, 2048 * 1536, 4 * 2048, NULL, FORMAT_INT2_ROW, 0, NULL},
    {2048, 6144, 2048 * 96 * 24, 4 * 2048 * 96, NULL, FORMAT_INT3_G64, 64, NULL},
    {6144, 16384, 6144u * 16384u, 4 * 6144, NULL, FORMAT_INT8_ROW, 0, NULL}, /* o_proj: FP8 blocks are as many */
    {6144, 16384, 6144u * 16384u, 4 * 6144, "int8-row", FORMAT_INT8_ROW, 0, NULL},
    {6144, 16384, 6144u * 16384u, 4 * 6144, "fp8-e4m3-b128", FORMAT_COUNT, 0,
     "fp8-e4m3-b128, which weir does not read"},

    /* refused by name */
    {2048, 6144, 2048 * 6144, 4 * 16 * 48, NULL, FORMAT_COUNT, 0, "fp8-e4m3-b128, which"},
    {2048, 6144, 2048 * 6144, 16 * 48, NULL, FORMAT_COUNT, 0, "one-byte scales"},
    {2048, 6144, 2048 * 24 * 98, 4, NULL, FORMAT_COUNT, 0, "e8-iq3-lattice"},
    {1, 98, 98, 4, NULL, FORMAT_COUNT, 0, "e8-iq3-lattice"},
    {1, 196, 98, 4, NULL, FORMAT_COUNT, 0, "e8-iq3-lattice"},
    {2048, 6144, 777, 4 * 2048, "int4-rans256-g0", FORMAT_COUNT, 0, "int4-rans256-g0"},
    {2048, 6144, 2048 * 3072, 4 * 2048, "mxfp4", FORMAT_COUNT, 0, "mxfp4"},

    /* sizes that fit nothing */
    {2048, 6144, 2048 * 6144 - 1, 4 * 2048, NULL, FORMAT_COUNT, 0, "fit no format of a [2048, 6144] matrix"},
    {2048, 6144, 2048 * 6144, 4 * 2048 + 4, NULL, FORMAT_COUNT, 0, "do not fit int8"},
    {2048, 6144, 2048 * 6144, 2 * 2048, NULL, FORMAT_COUNT, 0, "do not fit int8"}, /* F16 scales */
    {2048, 6144, 2048 * 3072, 4 * 2048 * 7, NULL, FORMAT_COUNT, 0, "do not fit int4"},
    {2048, 6144, 2048 * 1536, 4 * 2047, NULL, FORMAT_COUNT, 0, "do not fit int2"},
    {2048, 6144, 2048 * 96 * 24, 4 * 2048, NULL, FORMAT_COUNT, 0, "do not fit int3-g64"},
    {2048, 6144, 0, 0, NULL, FORMAT_COUNT, 0, "fit no format"},

    /* stamps */
    {2048, 6144, 2048 * 3072, 4 * 2048, "int4-row", FORMAT_INT4_ROW, 0, NULL},
    {2048, 6144, 2048 * 3072, 4 * 2048, "int8-row", FORMAT_COUNT, 0, "stamped as int8-row, but its sizes say int4-row"},
    {2048, 6144, 2048 * 3072, 4 * 2048, "int5", FORMAT_COUNT, 0, "no format that weir knows"},

    /* odd and small widths: the finest group wins, a group as wide as the row is the row */
    {5, 7, 5 * 4, 4 * 5, NULL, FORMAT_INT4_ROW, 0, NULL},
    {5, 7, 5 * 2, 4 * 5, NULL, FORMAT_INT2_ROW, 0, NULL},
    {5, 96, 5 * 48, 4 * 5 * 2, NULL, FORMAT_INT4_GROUPED, 48, NULL},
    {5, 64, 5 * 32, 4 * 5, NULL, FORMAT_INT4_ROW, 0, NULL},
    {5, 100, 5 * 50, 4 * 5 * 7, NULL, FORMAT_INT4_GROUPED, 16, NULL},
    {3, 48, 3 * 24, 4 * 3, NULL, FORMAT_INT4_ROW, 0, NULL},
};

static void formats_follow_from_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum weight_format format = FORMAT_COUNT;
        uint32_t group = 99;
        struct err err = {0};
        bool ok = format_resolve(&format, &group, cases[i].rows, cases[i].columns, cases[i].payload, cases[i].scales,
                                 cases[i].stamp, &err);
        if (ok != (cases[i].format != FORMAT_COUNT)) fail_msg("case %zu: %s", i, ok ? format_name(format) : err.text);
        if (!ok && !strstr(err.text, cases[i].says)) fail_msg("case %zu: %s", i, err.text);
        if (ok && (format != cases[i].format || group != cases[i].group))
            fail_msg("case %zu: %s, group %u", i, format_name(format), group);
    }
}

/* Section "sizes" of the container's description. */
static void geometry_gives_the_published_sizes(void **state)
{
    (void)state;
    const uint64_t shapes[3][2] = {{2048, 6144}, {2048, 6144}, {6144, 2048}};
    uint64_t row4 = 0, group64 = 0, row8 = 0, fp8 = 0;
    for (int p = 0; p < 3; p++) {
        uint64_t o = shapes[p][0], i = shapes[p][1];
        row4 += o * format_row_bytes(FORMAT_INT4_ROW, i) + 4 * format_scales(FORMAT_INT4_ROW, o, i, 0);
        group64 += o * format_row_bytes(FORMAT_INT4_GROUPED, i) + 4 * format_scales(FORMAT_INT4_GROUPED, o, i, 64);
        row8 += o * format_row_bytes(FORMAT_INT8_ROW, i) + 4 * format_scales(FORMAT_INT8_ROW, o, i, 0);
        fp8 += o * format_row_bytes(FORMAT_FP8_BLOCK, i) + 4 * format_scales(FORMAT_FP8_BLOCK, o, i, 0);
    }
    assert_int_equal(row4, 18915328);
    assert_int_equal(group64, 21233664);
    assert_int_equal(row8, 37789696);
    assert_int_equal(fp8, 37757952);
    assert_int_equal(format_scales(FORMAT_FP8_BLOCK, 576, 6144, 0), 5 * 48);
    assert_int_equal(format_row_bytes(FORMAT_INT3_G64, 65), 48);
    assert_int_equal(format_row_bytes(FORMAT_INT4_ROW, 7), 4);
    assert_int_equal(format_row_bytes(FORMAT_F32, 7), 28);
    assert_int_equal(format_scales(FORMAT_BF16, 7, 7, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_follow_from_sizes),
        cmocka_unit_test(geometry_gives_the_published_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
