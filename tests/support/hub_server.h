#ifndef SUPPORT_HUB_SERVER_H
#define SUPPORT_HUB_SERVER_H
/* A model hub on 127.0.0.1, in a process of its own, that behaves as badly as it is told to.
 *
 * It answers the list of files and the files, over two ports: the hub, and another host to which it may redirect. What
 * a test sets in `script` and reads from it is memory that both processes share; set it while nothing is asked. A fork
 * of the test is safe at any time, because the threads are all in the server. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { HUB_FILES_MAX = 16, HUB_LISTING_MAX = 1 << 16 };

struct hub_server_file {
    const char *path;
    const unsigned char *data; /* good for as long as the server */
    uint64_t bytes;
    bool is_large; /* listed with its SHA-256, not as a git blob */
    char sha1[65], sha256[65];
};

struct hub_script {
    char listing[HUB_LISTING_MAX]; /* the answer to the list request */
    char token[64];                /* asked for when not empty: 401 without */
    bool redirects;                /* files lie on the other port */
    bool redirects_in_circles;
    bool ignores_ranges;  /* 200 and everything */
    bool refuses_ranges;  /* 416 */
    bool strays;          /* another range than the one asked for, honestly labelled */
    bool stalls;          /* sends half of the body and then nothing */
    bool lies_about_size; /* Content-Range tells one byte more */
    uint64_t cut_after;   /* bytes of a body behind which the connection breaks */
    _Atomic int n_cuts;   /* so many times */
    unsigned file_status, list_status, retry_after_s;
    _Atomic int n_file_status, n_list_status; /* so many answers have that status */
    _Atomic int n_wrong;                      /* so many bodies have a wrong byte at their end */
    uint64_t kill_at;                         /* when so many bytes of bodies were sent, the victim is killed */
    pid_t victim;
    unsigned pause_us; /* before each piece of a body */

    _Atomic int n_connections;   /* now; not reset */
    _Atomic uint64_t bytes_sent; /* of files */
    _Atomic unsigned n_lists, n_files, n_ranges, n_tokens_at_hub, n_tokens_elsewhere, n_elsewhere;
};

struct hub_server {
    pid_t pid;
    uint16_t port, other_port;
    char endpoint[64];
    struct hub_script *script;
    struct hub_server_file files[HUB_FILES_MAX];
    unsigned n_files;
};

/* Digests and listing are made from the files: path, data, bytes and is_large are given. Stops the test on failure. */
void hub_server_start(struct hub_server *server, const struct hub_server_file *files, unsigned n_files);
void hub_server_stop(struct hub_server *server);

/* Back to good behaviour, counters at zero, the listing as made from the first n files. Waits until the server is done
 * with every connection of before, which the test has closed. */
void hub_server_reset(struct hub_server *server, unsigned n_files);

extern const char hub_server_commit[]; /* of the listing that hub_server_reset makes */
#endif
