#include "support/small_disk.h"

#include "support/check.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

static void tell_kernel(const char *path, const char *text)
{
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    ssize_t n = write(descriptor, text, strlen(text));
    (void)n; /* without it the mount below fails, and that is told */
    close(descriptor);
}

/* Whoever is not root becomes it in a user namespace, where mounting is allowed. */
static bool enter_namespace(void)
{
    char text[64];
    uid_t user = geteuid();
    gid_t group = getegid();
    if (user == 0) return unshare(CLONE_NEWNS) == 0;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    tell_kernel("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %u 1", (unsigned)user);
    tell_kernel("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "0 %u 1", (unsigned)group);
    tell_kernel("/proc/self/gid_map", text);
    return true;
}

bool small_disk_mount(const char *folder, uint64_t bytes)
{
    char size[64];
    snprintf(size, sizeof size, "size=%" PRIu64, bytes);
    return enter_namespace() && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("small", folder, "tmpfs", 0, size) == 0;
}

void small_disk_resize(const char *folder, uint64_t bytes)
{
    char size[64];
    snprintf(size, sizeof size, "size=%" PRIu64, bytes);
    if (mount("small", folder, "tmpfs", MS_REMOUNT, size) != 0) fail_msg("%s: %s", folder, strerror(errno));
}
