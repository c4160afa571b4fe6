#include "support/random_text.h"

#include "base/utf8.h"
#include <string.h>

/* splitmix64 */
uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t random_below(struct random *random, uint32_t end)
{
    return (uint32_t)(random_next(random) % end);
}

uint32_t random_code_point(struct random *random)
{
    uint32_t ends[] = {0x80, 0x800, 0x10000, 0x20000, 0x110000, 0x110000};
    for (;;) {
        uint32_t code = random_below(random, ends[random_below(random, 6)]);
        if (code < 0xD800 || code > 0xDFFF) return code;
    }
}

static const char *const fragments[] = {
    "a",       "Z",        "the",
    " the",    "ing",      " ",
    "  ",      "\n",       "\r\n",
    "\r",      "\t",       "\v",
    "1",       "23",       "4567",
    ".",       ",",        "!?",
    "'",       "'s",       "'T",
    "'lL",     "'re",      "'VE",
    "'\u017f", "'x",       "-",
    "_",       "<",        ">",
    "|",       "/",        "\u00a0",
    "\u3000",  "\u2028",   "\xc2\x85",
    "\u2019",  "\u0301",   "\u00e9",
    "\u4f60",  "\u200b",   "\u00bd",
    "\u0663",  "\u2167",   "<|user|>",
    "<think>", "</think",  "[gMASK]",
    "<sop",    "/nothink", "<|endoftext|>",
};

size_t random_text(struct random *random, char *out, size_t room)
{
    size_t n = 0, want = random_below(random, (uint32_t)room);
    while (n < want && room - n >= 32) {
        uint32_t repeats = random_below(random, 8) == 0 ? 1 + random_below(random, 12) : 1;
        if (random_below(random, 4) == 0) {
            n += utf8_put(out + n, random_code_point(random));
            continue;
        }
        const char *fragment = fragments[random_below(random, sizeof fragments / sizeof *fragments)];
        for (; repeats > 0 && room - n >= 32; repeats--) {
            memcpy(out + n, fragment, strlen(fragment));
            n += strlen(fragment);
        }
    }
    return n;
}
