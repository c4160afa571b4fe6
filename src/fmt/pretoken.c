#include "fmt/pretoken.h"

#include "base/assert.h"
#include "fmt/unicode.h"
#include <string.h>

/* The alternatives of the pattern, in order. The first that matches at a position wins; each is greedy.
 *
 *  1  (?i:'s|'t|'re|'ve|'m|'ll|'d)
 *  2  [^\r\n\p{L}\p{N}]?\p{L}+
 *  3  \p{N}{1,3}, or \p{N}
 *  4  ?[^\s\p{L}\p{N}]+[\r\n]*     with an optional U+0020 in front
 *  5  \s*[\r\n]+
 *  6  \s+(?!\S)
 *  7  \s+
 *
 * The class of the first code point and of the second decide between 1 to 4; what is left is a run of spaces. */
#define BEFORE_NUMBERS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define BEHIND_NUMBERS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    uint32_t digits_max;
} families[] = {
    [PRETOKEN_GLM] = {BEFORE_NUMBERS "\\p{N}{1,3}" BEHIND_NUMBERS, 3},
    [PRETOKEN_QWEN] = {BEFORE_NUMBERS "\\p{N}" BEHIND_NUMBERS, 1},
};
#define N_FAMILIES (sizeof families / sizeof *families)

bool pretoken_family_find(const char *pattern, size_t bytes, enum pretoken_family *family)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (bytes != strlen(families[i].pattern) || memcmp(pattern, families[i].pattern, bytes) != 0) continue;
        *family = (enum pretoken_family)i;
        return true;
    }
    return false;
}

const char *pretoken_pattern(enum pretoken_family family)
{
    return families[family].pattern;
}

/* A code point of text that is known to be valid, or the end of the text: bytes 0, class END. */
#define END (-1)
struct point {
    uint32_t code_point, bytes;
    int class;
};

static inline struct point point_at(const unsigned char *at, const unsigned char *end)
{
    if (at == end) return (struct point){.class = END};
    uint32_t a = at[0];
    struct point point = {a, 1, 0};
    if (a >= 0xf0)
        point = (struct point){(a & 7) << 18 | (at[1] & 63u) << 12 | (at[2] & 63u) << 6 | (at[3] & 63u), 4, 0};
    else if (a >= 0xe0)
        point = (struct point){(a & 15) << 12 | (at[1] & 63u) << 6 | (at[2] & 63u), 3, 0};
    else if (a >= 0x80)
        point = (struct point){(a & 31) << 6 | (at[1] & 63u), 2, 0};
    point.class = (int)unicode_class(point.code_point);
    return point;
}

static bool is_newline(uint32_t code_point)
{
    return code_point == '\r' || code_point == '\n';
}

/* Each of these returns the end of the longest run that begins at `at`. */
static const unsigned char *run_of(int class, const unsigned char *at, const unsigned char *end)
{
    for (;;) {
        struct point point = point_at(at, end);
        if (point.class != class) return at;
        at += point.bytes;
    }
}

static const unsigned char *digits(const unsigned char *at, const unsigned char *end, uint32_t n_max)
{
    for (uint32_t n = 0; n < n_max; n++) {
        struct point point = point_at(at, end);
        if (point.class != UNICODE_NUMBER) break;
        at += point.bytes;
    }
    return at;
}

static const unsigned char *others(const unsigned char *at, const unsigned char *end)
{
    at = run_of(UNICODE_OTHER, at, end);
    while (at < end && is_newline(*at)) at++;
    return at;
}

/* Alternative 1 at an apostrophe: the bytes it takes, or 0. In any letter case; U+017F, the long s, is an s too, and
 * nothing else outside ASCII folds into these letters. */
static size_t contraction(const unsigned char *at, const unsigned char *end)
{
    size_t left = (size_t)(end - at);
    if (left < 2) return 0;
    unsigned char a = at[1] | 0x20, b = left > 2 ? at[2] | 0x20 : 0;
    if (at[1] < 0x80) {
        if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
        if ((a == 'r' || a == 'v') && b == 'e') return 3;
        return a == 'l' && b == 'l' ? 3 : 0;
    }
    return left > 2 && at[1] == 0xc5 && at[2] == 0xbf ? 3 : 0;
}

/* Alternatives 5, 6 and 7, on a run of spaces that nothing in front of them took. */
static const unsigned char *spaces(const unsigned char *begin, const unsigned char *end)
{
    const unsigned char *at = begin, *last = begin, *behind_newline = NULL;
    for (;;) {
        struct point point = point_at(at, end);
        if (point.class != UNICODE_SPACE) break;
        last = at;
        at += point.bytes;
        if (is_newline(point.code_point)) behind_newline = at;
    }
    if (behind_newline) return behind_newline;
    if (at == end || last == begin) return at;
    return last; /* the last space goes with the text behind it */
}

size_t pretoken_next(enum pretoken_family family, const char *text, size_t bytes)
{
    ASSERT(bytes > 0);
    const unsigned char *begin = (const unsigned char *)text, *end = begin + bytes, *stop;
    struct point first = point_at(begin, end);
    const unsigned char *behind = begin + first.bytes;

    if (first.class == UNICODE_LETTER) return (size_t)(run_of(UNICODE_LETTER, behind, end) - begin);
    if (first.class == UNICODE_NUMBER) return (size_t)(digits(begin, end, families[family].digits_max) - begin);
    if (first.code_point == '\'') {
        size_t taken = contraction(begin, end);
        if (taken) return taken;
    }

    struct point second = point_at(behind, end);
    if (second.class == UNICODE_LETTER && !is_newline(first.code_point))
        stop = run_of(UNICODE_LETTER, behind + second.bytes, end);
    else if (first.class == UNICODE_OTHER || (first.code_point == ' ' && second.class == UNICODE_OTHER))
        stop = others(behind, end);
    else
        stop = spaces(begin, end);
    return (size_t)(stop - begin);
}
