#ifndef CONVERT_RECORD_H
#define CONVERT_RECORD_H
/* What a container was made from, with which options, and the digest of each of its files: a JSON text.
 *
 * While the work goes on it is the manifest .weir-convert.json, at the end the record weir-conversion.json, which is
 * part of the container. Both are the same text, one line per fact; the manifest just has fewer outputs. It holds
 * nothing about the machine or the time.
 *
 * The text is never parsed as JSON: it is made anew from the job at hand and compared line by line with what lies in
 * the folder, so the first line that differs is what differs. Only the digests of finished outputs are taken from it.
 */
#include "base/buf.h"
#include "convert/convert_plan.h"
#include "plat/digest.h"
#include "convert/quantise.h"

#define CONVERT_MANIFEST_NAME ".weir-convert.json"
#define CONVERT_RECORD_NAME "weir-conversion.json"

/* The small files that go along with the main pass. */
enum { CONVERT_FILES = 5 };
struct convert_file {
    const char *name;
    bool exists;
    uint64_t bytes;
    char sha256[DIGEST_TEXT];
};

/* What is known of an output once it is made. */
struct convert_made {
    char sha256[DIGEST_TEXT];
    double loss_max; /* of its matrices: relative error of the worst, and which that is; "" when it has none */
    char loss_tensor[200];
};

struct convert_record {
    const struct convert_plan *plan;
    struct convert_file files[CONVERT_FILES];
    struct buf head;           /* everything in front of the first output */
    struct convert_made *made; /* [n_outputs]; an empty sha256: not made yet */
    struct alloc *alloc;
};

/* Reads samples of all source shards and the small files whole. */
bool convert_record_init(struct convert_record *record, struct alloc *alloc, struct file_system fs,
                         const struct convert_plan *plan, const struct catalogue *catalogue, const char *source,
                         struct err *err) MUST_CHECK;
void convert_record_fini(struct convert_record *record);

/* Takes the digests from an earlier run's text, or tells what differs. `path` is for messages. */
bool convert_record_resume(struct convert_record *record, const char *path, const char *text,
                           struct err *err) MUST_CHECK;

bool convert_record_print(const struct convert_record *record, struct buf *text, struct err *err) MUST_CHECK;

#endif
