#include "fmt/format.h"

#include "base/assert.h"
#include "base/checked.h"
#include <inttypes.h>
#include <string.h>

enum {
    FP8_BLOCK = 128, /* rows and columns of one scale */
    INT3_COLUMNS = 64,
    INT3_BYTES = 24,
    E8_COLUMNS = 256,
    E8_BYTES = 98,
};

/* Geometry: `bytes` bytes hold `columns` columns, and a row is a whole number of such units. */
static const struct {
    const char *name;
    uint32_t columns, bytes;
} formats[FORMAT_COUNT] = {
    [FORMAT_F32] = {"f32", 1, 4},
    [FORMAT_F16] = {"f16", 1, 2},
    [FORMAT_BF16] = {"bf16", 1, 2},
    [FORMAT_FP8_BLOCK] = {"fp8-e4m3-b128", 1, 1},
    [FORMAT_INT8_ROW] = {"int8-row", 1, 1},
    [FORMAT_INT4_ROW] = {"int4-row", 2, 1},
    [FORMAT_INT4_GROUPED] = {"int4-grouped", 2, 1},
    [FORMAT_INT2_ROW] = {"int2-row", 4, 1},
    [FORMAT_INT3_G64] = {"int3-g64", INT3_COLUMNS, INT3_BYTES},
};

/* Formats that others write and that we know well enough to name. */
static const char *const known_elsewhere[] = {"fp8-e4m3-b128", "e8-iq3-lattice", "mxfp4", "int4-rans256-g0"};

const char *format_name(enum weight_format format)
{
    ASSERT((unsigned)format < FORMAT_COUNT);
    return formats[format].name;
}

uint64_t format_row_bytes(enum weight_format format, uint64_t columns)
{
    ASSERT((unsigned)format < FORMAT_COUNT);
    return div_up(columns, formats[format].columns) * formats[format].bytes;
}

uint64_t format_scales(enum weight_format format, uint64_t rows, uint64_t columns, uint32_t group)
{
    switch (format) {
    case FORMAT_F32:
    case FORMAT_F16:
    case FORMAT_BF16: return 0;
    case FORMAT_FP8_BLOCK: return div_up(rows, FP8_BLOCK) * div_up(columns, FP8_BLOCK);
    case FORMAT_INT8_ROW:
    case FORMAT_INT4_ROW:
    case FORMAT_INT2_ROW: return rows;
    case FORMAT_INT4_GROUPED: ASSERT(group > 0); return rows * div_up(columns, group);
    case FORMAT_INT3_G64: return rows * div_up(columns, INT3_COLUMNS);
    case FORMAT_COUNT: break;
    }
    ASSERT(false);
    return 0;
}

/* What is stored, against what it should be. */
struct stored {
    uint32_t rows, columns;
    uint64_t payload_bytes, scale_bytes;
};

static bool refuse_scales(const struct stored *s, const char *what, const char *expected, struct err *err)
{
    return err_set(err, ERR_DATA,
                   "%" PRIu64 " bytes of scales do not fit %s weights of shape [%" PRIu32 ", %" PRIu32
                   "], which have %s",
                   s->scale_bytes, what, s->rows, s->columns, expected);
}

static bool refuse_name(const char *name, struct err *err)
{
    return err_set(err, ERR_DATA, "stored as %s, which weir does not read; convert the model to int4 or int8 again",
                   name);
}

/* The finest group that fits wins, as in the program that defined these containers. */
static bool resolve_int4(const struct stored *s, enum weight_format *format, uint32_t *group, struct err *err)
{
    static const uint32_t groups[] = {16, 32, 48, 64, 96, 128, 192, 256};
    if (s->scale_bytes == UINT64_C(4) * s->rows) {
        *format = FORMAT_INT4_ROW;
        return true;
    }
    for (size_t i = 0; i < sizeof groups / sizeof *groups && groups[i] <= s->columns; i++) {
        if (s->scale_bytes != 4 * format_scales(FORMAT_INT4_GROUPED, s->rows, s->columns, groups[i])) continue;
        *format = FORMAT_INT4_GROUPED;
        *group = groups[i];
        return true;
    }
    return refuse_scales(s, "int4", "one f32 per row or per group of 16 to 256 columns", err);
}

/* Where row and block scales both fit, as in o_proj of GLM-5.2, it is int8: only a stamp could tell, and was asked. */
static bool resolve_int8(const struct stored *s, enum weight_format *format, struct err *err)
{
    uint64_t blocks = format_scales(FORMAT_FP8_BLOCK, s->rows, s->columns, 0);
    *format = FORMAT_INT8_ROW;
    if (s->scale_bytes == UINT64_C(4) * s->rows) return true;
    if (s->scale_bytes == 4 * blocks) return refuse_name("fp8-e4m3-b128", err);
    if (s->scale_bytes == blocks) return refuse_name("fp8-e4m3-b128 with one-byte scales", err);
    return refuse_scales(s, "int8", "one f32 per row", err);
}

static bool resolve_by_bytes(const struct stored *s, enum weight_format *format, uint32_t *group, struct err *err)
{
    uint64_t per_format[FORMAT_COUNT];
    for (int f = 0; f < FORMAT_COUNT; f++)
        per_format[f] = s->rows * format_row_bytes((enum weight_format)f, s->columns);
    if (s->payload_bytes == per_format[FORMAT_INT8_ROW]) return resolve_int8(s, format, err);
    if (s->payload_bytes == per_format[FORMAT_INT4_ROW]) return resolve_int4(s, format, group, err);
    if (s->payload_bytes == per_format[FORMAT_INT2_ROW]) {
        *format = FORMAT_INT2_ROW;
        return s->scale_bytes == UINT64_C(4) * s->rows || refuse_scales(s, "int2", "one f32 per row", err);
    }
    if (s->payload_bytes == per_format[FORMAT_INT3_G64]) {
        *format = FORMAT_INT3_G64;
        *group = INT3_COLUMNS;
        return s->scale_bytes == 4 * format_scales(FORMAT_INT3_G64, s->rows, s->columns, 0) ||
               refuse_scales(s, "int3-g64", "one f32 per 64 columns", err);
    }
    return err_set(err, ERR_DATA,
                   "%" PRIu64 " bytes fit no format of a [%" PRIu32 ", %" PRIu32 "] matrix (int8 has %" PRIu64
                   ", int4 %" PRIu64 ", int3-g64 %" PRIu64 ", int2 %" PRIu64 ")",
                   s->payload_bytes, s->rows, s->columns, per_format[FORMAT_INT8_ROW], per_format[FORMAT_INT4_ROW],
                   per_format[FORMAT_INT3_G64], per_format[FORMAT_INT2_ROW]);
}

bool format_is_known(const char *name)
{
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (strcmp(name, formats[f].name) == 0) return true;
    for (size_t i = 0; i < sizeof known_elsewhere / sizeof *known_elsewhere; i++)
        if (strcmp(name, known_elsewhere[i]) == 0) return true;
    return false;
}

static bool check_stamp(const char *stamp, struct err *err)
{
    for (size_t i = 0; i < sizeof known_elsewhere / sizeof *known_elsewhere; i++)
        if (strcmp(stamp, known_elsewhere[i]) == 0) return refuse_name(stamp, err);
    if (format_is_known(stamp)) return true;
    return err_set(err, ERR_DATA, "stamped as '%.60s', which is no format that weir knows", stamp);
}

bool format_resolve(enum weight_format *format, uint32_t *group, uint32_t rows, uint32_t columns,
                    uint64_t payload_bytes, uint64_t scale_bytes, const char *stamp, struct err *err)
{
    const struct stored stored = {rows, columns, payload_bytes, scale_bytes};
    *group = 0;
    if (stamp && !check_stamp(stamp, err)) return false;
    if (scale_bytes == 4 && payload_bytes == rows * div_up(columns, E8_COLUMNS) * E8_BYTES)
        return refuse_name("e8-iq3-lattice", err); /* also where another format would fit: neither can be trusted */
    if (!resolve_by_bytes(&stored, format, group, err)) return false;
    if (!stamp || strcmp(stamp, format_name(*format)) == 0) return true;
    return err_set(err, ERR_DATA, "stamped as %s, but its sizes say %s", stamp, format_name(*format));
}
