#ifndef FETCH_DOWNLOADS_H
#define FETCH_DOWNLOADS_H
/* Many blobs over a few connections, until all are complete.
 *
 * A connection takes the first missing segment of the first blob that has one, so blobs finish in order while none of
 * the connections idles at the end of one. A blob that another process holds is passed over and asked for again. */
#include "fetch/blob.h"
#include "fetch/fetch.h"
#include "fetch/http.h"

struct downloads {
    const struct fetch_job *job;
    struct http *http;
    const char *commit;
    struct blob *blobs; /* [n_blobs] */
    uint32_t n_blobs;
    uint64_t bytes; /* of all blobs */
};

bool downloads_run(const struct downloads *downloads, struct err *err) MUST_CHECK;

#endif
