#ifndef BASE_BUF_H
#define BASE_BUF_H
/* Bytes that grow, up to a ceiling given at birth. Always followed by a NUL that is not counted.
 * buf_fini is safe twice and on a zeroed buf. Owned by one thread. */
#include "base/alloc.h"

struct buf {
    struct alloc *alloc;
    char *data; /* [bytes] and a NUL; NULL while nothing was added */
    size_t bytes, room;
    size_t bytes_max;
};

void buf_init(struct buf *buf, struct alloc *alloc, size_t bytes_max);
void buf_fini(struct buf *buf);
void buf_clear(struct buf *buf);

bool buf_add(struct buf *buf, const void *data, size_t bytes, struct err *err) MUST_CHECK;
bool buf_add_text(struct buf *buf, const char *text, struct err *err) MUST_CHECK;
bool buf_add_char(struct buf *buf, char c, struct err *err) MUST_CHECK;
bool buf_printf(struct buf *buf, struct err *err, const char *format, ...) PRINTF_LIKE(3, 4) MUST_CHECK;

/* The bytes change hands: give them back with alloc_put. The buf is empty afterwards. NULL when nothing was added. */
char *buf_take(struct buf *buf);

#endif
