#ifndef SUPPORT_SERVED_H
#define SUPPORT_SERVED_H
/* `weir serve` as a whole, in a process of its own: the command line, signals, the service manager's socket, the log.
 */
#include "support/temp_folder.h"
#include <stdint.h>
#include <sys/types.h>

struct served {
    struct temp_folder folder;
    pid_t pid; /* 0: it has ended */
    int notify_fd;
    uint16_t port;
    char notified[4096]; /* all that the service manager was told so far */
};

/* Words behind `serve`, up to a NULL; --port 0 and --threads 1 are added. It may not listen yet. */
void served_start(struct served *served, const char *const *words);
#define SERVED_START(served, ...) served_start(served, (const char *const[]){__VA_ARGS__, 0})

/* Waits until it listens and served->port is known. Fails the test when it ends before. */
void served_wait_listening(struct served *served);

/* Waits until the service manager was told such words. False: the process ended first. */
bool served_wait_notified(struct served *served, const char *words);

/* Waits until the log holds a text. */
void served_wait_log(struct served *served, const char *text);

char *served_log(struct served *served); /* malloc'ed */

void served_signal(struct served *served, int signal);
int served_wait_end(struct served *served); /* its exit code; 128 and the signal when one killed it */
void served_fini(struct served *served);    /* kills what still runs */

#endif
