#ifndef FETCH_SEGMENTS_H
#define FETCH_SEGMENTS_H
/* Which bytes of a file are here already: the file is cut into segments of one size, and each fills from its beginning.
 *
 * Values and one array. A segment is taken while somebody fills it. The text form is what lies beside a partial file;
 * it may tell of less than there is, never of more. */
#include "base/buf.h"

struct segments {
    struct alloc *alloc;
    uint64_t bytes, segment_bytes;
    uint64_t *done;    /* [n] bytes of each segment */
    uint8_t *is_taken; /* [n] */
    uint32_t n;        /* 0 for an empty file */
    uint64_t bytes_done;
};

bool segments_init(struct segments *segments, struct alloc *alloc, uint64_t bytes, uint64_t segment_bytes,
                   struct err *err) MUST_CHECK;
void segments_fini(struct segments *segments); /* safe twice and on a zeroed one */

/* Back to nothing, as one segment over the whole file: for a server that does not serve ranges. */
void segments_restart(struct segments *segments);

/* The bytes from the beginning up to `bytes` are here. */
void segments_credit(struct segments *segments, uint64_t bytes);

/* Takes the first segment that is neither full nor taken; false: there is none. */
bool segments_take(struct segments *segments, uint32_t *segment);
void segments_untake(struct segments *segments, uint32_t segment);

uint64_t segments_offset(const struct segments *segments, uint32_t segment); /* of its next missing byte */
uint64_t segments_missing(const struct segments *segments, uint32_t segment);
void segments_advance(struct segments *segments, uint32_t segment, uint64_t bytes);

uint64_t segments_prefix(const struct segments *segments); /* bytes from the beginning without a hole */
uint64_t segments_extent(const struct segments *segments); /* end of the last byte that is here */

bool segments_print(const struct segments *segments, struct buf *text, struct err *err) MUST_CHECK;

/* False: the text is not, or not whole, what segments_print writes for a file of so many bytes (then nothing is there
 * to give back), or memory ran out (then err says so). */
bool segments_parse(struct segments *segments, struct alloc *alloc, uint64_t bytes, const char *text,
                    struct err *err) MUST_CHECK;

#endif
