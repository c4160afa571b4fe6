#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *buf, struct alloc *alloc, size_t bytes_max)
{
    *buf = (struct buf){.alloc = alloc, .bytes_max = bytes_max};
}

void buf_fini(struct buf *buf)
{
    if (buf->data) alloc_put(buf->alloc, buf->data);
    buf->data = NULL;
    buf->bytes = buf->room = 0;
}

void buf_clear(struct buf *buf)
{
    buf->bytes = 0;
    if (buf->data) buf->data[0] = 0;
}

/* Makes room for `more` bytes and the NUL behind them. */
static bool make_room(struct buf *buf, size_t more, struct err *err)
{
    if (more > buf->bytes_max - buf->bytes)
        return err_set(err, ERR_BUSY, "%zu bytes more would pass the limit of %zu bytes", more, buf->bytes_max);
    size_t want = buf->bytes + more + 1;
    if (want <= buf->room) return true;
    size_t room = buf->room < 64 ? 64 : buf->room;
    while (room < want) room *= 2;
    char *data = alloc_resize(buf->alloc, buf->data, room, err);
    if (!data) return false;
    buf->data = data;
    buf->room = room;
    return true;
}

bool buf_add(struct buf *buf, const void *data, size_t bytes, struct err *err)
{
    if (!make_room(buf, bytes, err)) return false;
    if (bytes) memcpy(buf->data + buf->bytes, data, bytes);
    buf->bytes += bytes;
    buf->data[buf->bytes] = 0;
    return true;
}

bool buf_add_text(struct buf *buf, const char *text, struct err *err)
{
    return buf_add(buf, text, strlen(text), err);
}
bool buf_add_char(struct buf *buf, char c, struct err *err)
{
    return buf_add(buf, &c, 1, err);
}

bool buf_printf(struct buf *buf, struct err *err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && make_room(buf, (size_t)n, err);
    if (ok) {
        vsnprintf(buf->data + buf->bytes, (size_t)n + 1, format, again);
        buf->bytes += (size_t)n;
    }
    va_end(again);
    return ok;
}

char *buf_take(struct buf *buf)
{
    char *data = buf->data;
    buf->data = NULL;
    buf->bytes = buf->room = 0;
    return data;
}
