#include "gram/text_kinds.h"

const struct text_sequence text_sequences[TEXT_SEQUENCES] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
    {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2}, {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
};

enum text_kind text_kind_of(uint8_t byte)
{
    if (byte < 0x20 || byte > 0x7E) return KIND_BROKEN;
    if (byte >= 'a' && byte <= 'z') return byte <= 'f' ? KIND_A_F : KIND_G_Z;
    if (byte >= 'A' && byte <= 'Z') return byte <= 'F' ? KIND_UPPER_A_F : KIND_UPPER_G_Z;
    if (byte >= '0' && byte <= '9') return KIND_DIGIT;
    switch (byte) {
    case ' ': return KIND_SPACE;
    case '-': return KIND_HYPHEN;
    case '_': return KIND_UNDERSCORE;
    case '.': return KIND_DOT;
    case ',': return KIND_COMMA;
    case '"': return KIND_QUOTE;
    case '\\': return KIND_BACKSLASH;
    default: return KIND_OTHER_MARK;
    }
}
