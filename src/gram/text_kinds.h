#ifndef GRAM_TEXT_KINDS_H
#define GRAM_TEXT_KINDS_H
/* Kinds of text: coarse enough to be kept for every place in a vocabulary and for every state of an automaton, fine
 * enough that what strings and patterns usually allow is a union of them.
 *
 * They answer, with one comparison, whether an automaton takes everything that a part of the vocabulary holds, which
 * would otherwise be found out byte by byte. Values only. */
#include <stdint.h>

enum text_kind {
    KIND_A_F,
    KIND_G_Z,
    KIND_UPPER_A_F,
    KIND_UPPER_G_Z,
    KIND_DIGIT,
    KIND_SPACE,
    KIND_HYPHEN,
    KIND_UNDERSCORE,
    KIND_DOT,
    KIND_COMMA,
    KIND_OTHER_MARK, /* the rest of what is printable in ASCII */
    KIND_QUOTE,
    KIND_BACKSLASH,
    KIND_CHARACTER, /* beyond ASCII, whole */
    KIND_BROKEN,    /* controls, and bytes that are no whole character: nothing is ever said about these */
    TEXT_KINDS
};

/* Of a byte by itself; those from 0x80 on are broken. */
enum text_kind text_kind_of(uint8_t byte);

/* The well-formed sequences of UTF-8 beyond ASCII: a lead byte, a second one, and `more` of 0x80 to 0xBF. */
struct text_sequence {
    uint8_t lead_low, lead_high, second_low, second_high, more;
};
enum { TEXT_SEQUENCES = 8 };
extern const struct text_sequence text_sequences[TEXT_SEQUENCES];

#endif
