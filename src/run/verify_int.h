#ifndef RUN_VERIFY_INT_H
#define RUN_VERIFY_INT_H
/* For the files of verify only. */
#include "plat/digest.h"
#include "run/verify.h"

enum { VERIFY_PROBLEMS_MAX = 20, VERIFY_PATH_MAX = 4096 }; /* problems: kept of one file */

/* What a file should be. */
struct verify_expectation {
    char digest[DIGEST_TEXT]; /* "": not known; 64 digits: SHA-256; 40: git's SHA-1 */
    uint64_t bytes;           /* UINT64_MAX: not known */
    const char *source;       /* who says so, for messages */
};

struct verify_expectations;

bool verify_expectations_read(struct verify_expectations **expectations, const struct verify_job *job,
                              struct err *err) MUST_CHECK;
void verify_expectations_free(struct verify_expectations *expectations);
void verify_expect(const struct verify_expectations *expectations, const char *name, struct verify_expectation *out);

/* Names that the record has, by number; NULL behind the last. */
const char *verify_expected_name(const struct verify_expectations *expectations, uint32_t number);

bool verify_add_problem(struct verify_report *report, struct verify_file *file, const char *tensor, const char *text,
                        struct err *err) MUST_CHECK;

/* Fills sum and problems of one file. `progress` is told of bytes as they are read. */
struct verify_reader {
    const struct verify_job *job;
    struct verify_report *report;
    void *block;
    uint64_t block_bytes;
    void *context;
    bool (*progress)(void *context, uint64_t bytes, struct err *err);
};
bool verify_read_file(const struct verify_reader *reader, struct verify_file *file,
                      const struct verify_expectation *expectation, struct err *err) MUST_CHECK;

/* What an earlier run found, for files that are still the same; and keeping it. only_good: without files that have
 * problems. */
bool verify_state_load(const struct verify_job *job, struct verify_report *report, struct err *err) MUST_CHECK;
bool verify_state_save(const struct verify_job *job, const struct verify_report *report, const bool *is_done,
                       bool only_good, struct err *err) MUST_CHECK;
bool verify_state_remove(const struct verify_job *job, struct err *err) MUST_CHECK;

#endif
