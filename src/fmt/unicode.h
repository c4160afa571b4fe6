#ifndef FMT_UNICODE_H
#define FMT_UNICODE_H
/* What the split patterns of tokenizers ask about a code point: letter, number, space or none of these.
 *
 * Unicode 16.0, the version of the reference library, whatever the system's libraries know: token ids must not change
 * with the distribution. Letters are category L, numbers category N, spaces the property White_Space. The table is
 * generated from scripts/unicode_ranges.txt by scripts/make_unicode_table.py. Pure; any thread. */
#include <stdint.h>

enum unicode_class { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

#define UNICODE_END 0x110000 /* one more than the last code point */
#define UNICODE_BLOCK 128    /* code points in a block of the table */

extern const unsigned char unicode_index[UNICODE_END / UNICODE_BLOCK];
extern const unsigned char unicode_blocks[][UNICODE_BLOCK / 4]; /* four code points in a byte, the first lowest */

/* code_point < UNICODE_END. */
static inline enum unicode_class unicode_class(uint32_t code_point)
{
    const unsigned char *block = unicode_blocks[unicode_index[code_point / UNICODE_BLOCK]];
    uint32_t in_block = code_point % UNICODE_BLOCK;
    return (enum unicode_class)(block[in_block / 4] >> 2 * (in_block % 4) & 3);
}

#endif
