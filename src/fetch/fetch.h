#ifndef FETCH_FETCH_H
#define FETCH_FETCH_H
/* A model from a hub into the cache that hub clients share: complete, checked against the hub's own digests, and not
 * fetched twice.
 *
 * Ended at any point, the same job goes on where it was. Nothing that another program put into the cache is moved or
 * removed, but for the unfinished file of another client, which is gone on with under that client's lock. The
 * snapshot's reference is written last. One thread; prints nothing. */
#include "fetch/hub.h"
#include "plat/clock.h"
#include "plat/file.h"
#include "plat/file_write.h"

struct fetch_network {
    const char *endpoint; /* "https://huggingface.co" */
    const char *token;    /* NULL: none; goes to the endpoint and nowhere else, and appears in no message */
    const char *proxy, *no_proxy;
    const char *agent;
    bool is_offline;
    unsigned connect_s_max, stall_s_max;
};

/* How hard to try. A failure that brought bytes starts the count again. */
struct fetch_tuning {
    unsigned connections;           /* ranges at once */
    unsigned failures_max;          /* in a row, for one file */
    int64_t pause_ns, pause_ns_max; /* behind a failure: doubled each time */
    int64_t told_pause_ns_max;      /* a server may ask for a longer one, up to this; then it has refused */
    uint64_t segment_bytes;         /* of large files; each is one request */
    uint64_t save_bytes;            /* a kill loses at most so many of a file, or those of save_ns */
    int64_t save_ns;
    uint64_t reserve_bytes; /* room that must stay free on the disk */
    int64_t lock_ns_max;    /* how long to wait for another process that fetches the same */
};

struct fetch_tuning fetch_tuning_default(void);

enum fetch_state { FETCH_MISSING, FETCH_PARTIAL, FETCH_COMPLETE };

struct fetch_file {
    const struct hub_file *file;
    enum fetch_state state;
    uint64_t credit; /* bytes that are here already */
};

struct fetch_plan {
    const char *commit;
    const struct fetch_file *files; /* [n_files] */
    uint32_t n_files, n_left_out;   /* left out: in the repository, but not wanted */
    uint64_t bytes, bytes_missing;  /* each content once */
    uint64_t bytes_free;            /* on the cache's disk */
};

struct fetch_progress {
    const char *path;                      /* of a file that is under way or was just finished; NULL: none */
    bool has_finished;                     /* that file, just now */
    bool is_waiting;                       /* for another process, or because the server asked for it */
    uint64_t bytes_done, bytes;            /* of the whole job, credit included */
    double bytes_per_second, seconds_left; /* negative while unknown */
};

/* Both may be NULL. A false stops the job with ERR_CANCELLED; what is here stays. */
struct fetch_watch {
    void *context;
    bool (*planned)(void *context, const struct fetch_plan *plan);
    bool (*progress)(void *context, const struct fetch_progress *progress);
};

struct fetch_job {
    const char *cache; /* its root */
    struct hub_repo repo;
    struct hub_selection selection;
    bool only_plan; /* ends behind `planned`, with nothing written */
    struct fetch_network network;
    struct fetch_tuning tuning;
    struct fetch_watch watch;
    struct alloc *alloc;
    struct file_system fs;
    struct write_system ws;
    struct clock clock;
};

struct fetch_result {
    char commit[HUB_COMMIT_TEXT];
    char path[4096]; /* of the snapshot */
    uint32_t n_files;
    uint64_t bytes, bytes_fetched;
    bool was_offline; /* the network was not asked: what an earlier run left */
};

bool fetch_repo(const struct fetch_job *job, struct fetch_result *result, struct err *err) MUST_CHECK;

#endif
