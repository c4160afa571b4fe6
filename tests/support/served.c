#include "support/served.h"

#include "cli/command_line.h"
#include "plat/clock.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 48, DEADLINE_MS = 60000, TICK_NS = 2000000 };

static int64_t now_ms(void)
{
    return clock_now_ns(clock_real()) / 1000000;
}

static int open_notify(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* In the child; never returns. */
static void run(const char *const *argv, const char *folder, const char *notify)
{
    char out[300], log[300], home[300], socket_path[300];
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(home, sizeof home, "HOME=%s", folder);
    snprintf(socket_path, sizeof socket_path, "NOTIFY_SOCKET=%s", notify);
    char *environment[] = {home, socket_path, NULL};
    FILE *to_out = fopen(out, "w"), *to_log = fopen(log, "w");
    if (!to_out || !to_log) _exit(99);
    int code = command_line_run((char *const *)argv, environment, to_out, to_log);
    fclose(to_out);
    fclose(to_log);
    _exit(code);
}

void served_start(struct served *served, const char *const *words)
{
    const char *argv[WORDS_MAX] = {"weir", "serve", "--port", "0", "--threads", "1"};
    unsigned n = 6;
    *served = (struct served){.notify_fd = -1};
    temp_folder_make(&served->folder);
    const char *notify = temp_path(&served->folder, "notify");
    served->notify_fd = open_notify(notify);
    for (; *words; words++) {
        assert_true(n < WORDS_MAX - 1);
        argv[n++] = *words;
    }
    fflush(NULL);
    served->pid = fork();
    assert_true(served->pid >= 0);
    if (served->pid == 0) run(argv, served->folder.path, notify);
}

/* What was sent to the service manager meanwhile; waits a little if told to. */
static void take_notified(struct served *served, int ms)
{
    struct pollfd event = {.fd = served->notify_fd, .events = POLLIN};
    while (poll(&event, 1, ms) > 0) {
        size_t used = strlen(served->notified), room = sizeof served->notified - used - 2;
        ssize_t got = recv(served->notify_fd, served->notified + used, room, 0);
        if (got > 0) memcpy(served->notified + used + got, "\n", 2);
        ms = 0;
    }
}

static bool has_ended(struct served *served)
{
    siginfo_t info = {0};
    return served->pid == 0 ||
           (waitid(P_PID, (id_t)served->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == served->pid);
}

static void fail_with_log(struct served *served, const char *what)
{
    char *log = served_log(served);
    fail_msg("%s; its log:\n%s", what, log);
    free(log);
}

void served_wait_listening(struct served *served)
{
    const char *path = temp_path(&served->folder, "out");
    for (int64_t until = now_ms() + DEADLINE_MS; now_ms() < until; clock_sleep_ns(clock_real(), TICK_NS)) {
        bool ended = has_ended(served);
        unsigned port = 0;
        if (file_exists(path)) {
            size_t bytes;
            char *text = (char *)take_file(path, &bytes);
            bool is_whole = strchr(text, '\n') && sscanf(text, "http://127.0.0.1:%u", &port) == 1;
            free(text);
            if (is_whole) {
                served->port = (uint16_t)port;
                return;
            }
        }
        if (ended) fail_with_log(served, "it ended before it listened");
    }
    fail_with_log(served, "it does not listen");
}

bool served_wait_notified(struct served *served, const char *words)
{
    for (int64_t until = now_ms() + DEADLINE_MS; now_ms() < until;) {
        bool ended = has_ended(served);
        take_notified(served, 2);
        if (strstr(served->notified, words)) return true;
        if (ended) return false;
    }
    fail_with_log(served, "the service manager is not told");
    return false;
}

char *served_log(struct served *served)
{
    size_t bytes;
    return (char *)take_file(temp_path(&served->folder, "log"), &bytes);
}

void served_wait_log(struct served *served, const char *text)
{
    for (int64_t until = now_ms() + DEADLINE_MS; now_ms() < until; clock_sleep_ns(clock_real(), TICK_NS)) {
        bool ended = has_ended(served);
        char *log = served_log(served);
        bool found = strstr(log, text) != NULL;
        free(log);
        if (found) return;
        if (ended) break;
    }
    char what[256];
    snprintf(what, sizeof what, "there is no '%s'", text);
    fail_with_log(served, what);
}

void served_signal(struct served *served, int signal)
{
    assert_true(served->pid > 0);
    assert_int_equal(kill(served->pid, signal), 0);
}

int served_wait_end(struct served *served)
{
    int status = 0;
    for (int64_t until = now_ms() + DEADLINE_MS; !has_ended(served); clock_sleep_ns(clock_real(), TICK_NS))
        if (now_ms() > until) fail_with_log(served, "it does not end");
    assert_int_equal(waitpid(served->pid, &status, 0), served->pid);
    served->pid = 0;
    take_notified(served, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void served_fini(struct served *served)
{
    if (served->pid > 0) {
        kill(served->pid, SIGKILL);
        served_wait_end(served);
    }
    if (served->notify_fd >= 0) close(served->notify_fd);
    temp_folder_remove(&served->folder);
    *served = (struct served){.notify_fd = -1};
}
