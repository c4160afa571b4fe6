#include "base/units.h"

#include "base/checked.h"
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Reads digits, optionally a point and at most nine digits more, then a name from the list (letter case is ignored). */
static bool parse(const char *text, const struct unit *units, size_t n_units, uint64_t *out)
{
    uint64_t whole = 0, part = 0, part_scale = 1;
    if (*text < '0' || *text > '9') return false;
    for (; *text >= '0' && *text <= '9'; text++)
        if (!checked_mul(&whole, whole, 10) || !checked_add(&whole, whole, (uint64_t)(*text - '0'))) return false;
    if (*text == '.') {
        text++;
        if (*text < '0' || *text > '9') return false;
        for (; *text >= '0' && *text <= '9'; text++) {
            if (part_scale >= 1000000000) return false;
            part = part * 10 + (uint64_t)(*text - '0');
            part_scale *= 10;
        }
    }
    for (size_t i = 0; i < n_units; i++) {
        if (strcasecmp(text, units[i].name) != 0) continue;
        uint64_t factor = units[i].factor, total, more;
        if (factor == 1 && part != 0) return false; /* half a byte */
        /* factor = quotient * scale + rest: neither product below can leave 64 bits */
        more = factor / part_scale * part + factor % part_scale * part / part_scale;
        if (!checked_mul(&total, whole, factor) || !checked_add(&total, total, more)) return false;
        *out = total;
        return true;
    }
    return false;
}

#define KIB (UINT64_C(1) << 10)

bool units_parse_bytes(const char *text, uint64_t *bytes)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"K", KIB},
        {"KiB", KIB},
        {"KB", 1000},
        {"M", KIB * KIB},
        {"MiB", KIB * KIB},
        {"MB", 1000000},
        {"G", KIB * KIB * KIB},
        {"GiB", KIB * KIB * KIB},
        {"GB", 1000000000},
        {"T", KIB * KIB * KIB * KIB},
        {"TiB", KIB * KIB * KIB * KIB},
        {"TB", UINT64_C(1000000000000)},
    };
    return parse(text, units, sizeof units / sizeof *units, bytes);
}

bool units_parse_seconds(const char *text, uint64_t *seconds)
{
    static const struct unit units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    return parse(text, units, sizeof units / sizeof *units, seconds);
}

const char *units_format_bytes(char text[UNITS_TEXT_MAX], uint64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < KIB) {
        snprintf(text, UNITS_TEXT_MAX, "%" PRIu64 " B", bytes);
        return text;
    }
    double value = (double)bytes / (double)KIB;
    size_t i = 0;
    while (value >= 1023.95 &&
           i + 1 < sizeof names / sizeof *names) { /* what would print as 1024.0 is 1.0 of the next */
        value /= (double)KIB;
        i++;
    }
    snprintf(text, UNITS_TEXT_MAX, "%.1f %s", value, names[i]);
    return text;
}
