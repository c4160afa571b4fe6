#include "plat/notify.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *name, const char *words)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = name ? strlen(name) : 0;
    if (n < 2 || n >= sizeof address.sun_path || (name[0] != '/' && name[0] != '@')) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    memcpy(address.sun_path, name, n);
    if (name[0] == '@') address.sun_path[0] = 0;
    ssize_t sent = sendto(fd, words, strlen(words), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    (void)sent;
    close(fd);
}
