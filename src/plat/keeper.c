#include "plat/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct keeper {
    struct alloc *alloc;
    int fd; /* to the keeper's process */
    pid_t pid;
};

/* One byte with a descriptor on its back. */
static bool send_fd(int fd, int passed)
{
    char byte = 'S';
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &passed, sizeof passed);
    ssize_t n;
    do n = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* -1: the owner is gone. */
static int take_fd(int fd)
{
    char byte;
    int passed = -1;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t n;
    do n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    const struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&passed, CMSG_DATA(c), sizeof passed);
    return passed;
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

/* True in a child, with *child_fd its stream; false when the owner is gone. A fork that fails looks like a child that
 * ended at once, with code 255. */
static bool keep(int fd, int *child_fd)
{
    for (int passed; (passed = take_fd(fd)) >= 0;) {
        pid_t pid = fork();
        if (pid == 0) {
            close(fd);
            *child_fd = passed;
            return true;
        }
        close(passed);
        int status = pid > 0 ? wait_for(pid) : 255 << 8;
        if (send(fd, &status, sizeof status, MSG_NOSIGNAL) != (ssize_t)sizeof status) break;
    }
    return false;
}

bool keeper_start(struct keeper **keeper, struct alloc *alloc, enum keeper_role *role, int *fd, struct err *err)
{
    int ends[2];
    struct keeper *k = alloc_get(alloc, sizeof *k, err);
    if (!k) return false;
    k->alloc = alloc;
    *keeper = NULL;
    *role = KEEPER_OWNER;
    *fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        err_set(err, ERR_IO, "cannot make a pair of sockets: %s", strerror(errno));
        goto fail;
    }
    k->fd = ends[0];
    k->pid = fork();
    if (k->pid < 0) {
        err_set(err, ERR_FAILED, "cannot make a process: %s", strerror(errno));
        close(ends[0]);
        close(ends[1]);
        goto fail;
    }
    if (k->pid == 0) {
        close(ends[0]);
        *role = keep(ends[1], fd) ? KEEPER_CHILD : KEEPER_OVER;
        if (*role == KEEPER_OVER) close(ends[1]);
        alloc_put(alloc, k);
        return true;
    }
    close(ends[1]);
    *keeper = k;
    return true;
fail:
    alloc_put(alloc, k);
    return false;
}

bool keeper_spawn(struct keeper *keeper, int *fd, struct err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return err_set(err, ERR_IO, "cannot make a pair of sockets: %s", strerror(errno));
    bool ok = send_fd(keeper->fd, ends[1]);
    close(ends[1]);
    *fd = ends[0];
    if (ok) return true;
    close(ends[0]);
    *fd = -1;
    return err_set(err, ERR_FAILED, "the process that makes processes is gone");
}

void keeper_wait(struct keeper *keeper, char words[KEEPER_WORDS])
{
    int status;
    ssize_t n;
    do n = recv(keeper->fd, &status, sizeof status, MSG_WAITALL);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof status)
        snprintf(words, KEEPER_WORDS, "ended, nobody knows how");
    else if (WIFSIGNALED(status))
        snprintf(words, KEEPER_WORDS, "was killed by signal %d (%.60s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(words, KEEPER_WORDS, "ended with code %d", WEXITSTATUS(status));
}

void keeper_free(struct keeper *keeper)
{
    if (!keeper) return;
    close(keeper->fd);
    wait_for(keeper->pid);
    alloc_put(keeper->alloc, keeper);
}
