#include "run/engine_link.h"

#include "base/assert.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

bool link_send(int fd, enum link_kind kind, uint32_t job, const struct link_part *parts, size_t n)
{
    struct link_head head = {.kind = kind, .job = job};
    struct iovec list[LINK_PARTS_MAX + 1] = {{.iov_base = &head, .iov_len = sizeof head}};
    ASSERT(n <= LINK_PARTS_MAX);
    for (size_t i = 0; i < n; i++) {
        list[i + 1] = (struct iovec){.iov_base = (void *)(uintptr_t)parts[i].data, .iov_len = parts[i].bytes};
        head.bytes += parts[i].bytes;
    }
    size_t left = sizeof head + head.bytes;
    struct msghdr message = {.msg_iov = list, .msg_iovlen = n + 1};
    while (left > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        left -= (size_t)sent;
        while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= (ssize_t)message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen == 0) break;
        message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
        message.msg_iov->iov_len -= (size_t)sent;
    }
    return true;
}

static bool read_all(int fd, void *out, size_t bytes)
{
    char *at = out;
    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool link_read(int fd, struct link_head *head, struct buf *payload)
{
    char block[4096];
    struct err err;
    buf_clear(payload);
    if (!read_all(fd, head, sizeof *head) || head->kind >= LINK_KINDS || head->bytes > LINK_BYTES_MAX) return false;
    for (uint64_t left = head->bytes; left > 0;) {
        size_t n = left < sizeof block ? (size_t)left : sizeof block;
        if (!read_all(fd, block, n) || !buf_add(payload, block, n, &err)) return false;
        left -= n;
    }
    return true;
}

bool link_take(const struct buf *payload, void *out, size_t bytes)
{
    if (payload->bytes != bytes) return false;
    if (bytes) memcpy(out, payload->data, bytes);
    return true;
}
