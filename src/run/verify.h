#ifndef RUN_VERIFY_H
#define RUN_VERIFY_H
/* Reads every byte of a model folder once and says what is wrong with it: checksums where they are known, scales that
 * are not finite and positive, numbers that are not finite, bytes that cannot be read, shards that lack.
 *
 * A checksum is known from the blob that a file is a link to in a hub cache, or from the conversion record that lies in
 * the folder. Every file is looked at on its own, so that one damaged file does not hide another.
 *
 * Stopped at any point, the next run goes on behind the last finished file, as long as the files are the same (device,
 * inode, size, time of change). After a run that found problems, the next one reads only what had them or has changed;
 * after one that found none, all. One thread; prints nothing. */
#include "base/arena.h"
#include "plat/clock.h"
#include "plat/file.h"
#include "plat/file_write.h"

enum verify_sum { VERIFY_SUM_UNKNOWN, VERIFY_SUM_RIGHT, VERIFY_SUM_WRONG };

struct verify_problem {
    const char *tensor; /* "": of the file as a whole */
    const char *text;
    struct verify_problem *next;
};

struct verify_file {
    const char *name;
    uint64_t bytes;
    struct file_identity identity;
    enum verify_sum sum;
    bool was_read_before; /* by an earlier run that was stopped, or that found problems elsewhere */
    uint32_t n_problems;  /* more may have been found than are kept */
    struct verify_problem *problems;
    struct verify_problem **last;
};

struct verify_report {
    struct verify_file *files; /* [n_files], by name */
    uint32_t n_files, n_bad_files, n_sums_right;
    uint64_t bytes, bytes_read; /* of all files; in this run */
    char model_problem[1024];   /* why the folder as a whole cannot be opened, or what it lacks; else empty */
    struct alloc *alloc;
    struct arena arena;
};

struct verify_progress {
    const char *file;
    uint64_t bytes_done, bytes;
    double bytes_per_second, seconds_left; /* negative while unknown */
};

struct verify_job {
    const char *dir;
    const char *state_folder; /* where what is done is remembered; NULL: nowhere */
    void *context;
    bool (*progress)(void *context, const struct verify_progress *progress); /* may be NULL; false: ERR_CANCELLED */
    uint64_t block_bytes;                                                    /* read at once; 0: 4 MiB */
    struct alloc *alloc;
    struct file_system fs;
    struct write_system ws;
    struct clock clock;
};

/* False: it could not be done (the folder cannot be listed, memory ran out, cancelled). What was found to be wrong is
 * in the report, which is the caller's to give back when the result is true. */
bool verify_folder(const struct verify_job *job, struct verify_report *report, struct err *err) MUST_CHECK;
void verify_report_fini(struct verify_report *report); /* safe twice and on a zeroed report */

static inline bool verify_is_clean(const struct verify_report *report)
{
    return report->n_bad_files == 0 && !report->model_problem[0];
}

#endif
