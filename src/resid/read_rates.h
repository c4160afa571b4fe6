#ifndef RESID_READ_RATES_H
#define RESID_READ_RATES_H
/* What the disk under a model gives, through the page cache and around it, measured on the model's own files. */
#include "fmt/catalogue.h"
#include "plat/reader.h"

struct read_rates {
    uint64_t buffered_bytes_per_s; /* 0: there was too little file to measure */
    uint64_t direct_bytes_per_s;   /* 0: that, or the file system has no direct reads */
    uint64_t bytes_read;
};

/* Reads pieces of the largest shard, turn by turn both ways, each piece once and first pushed out of the page cache as
 * far as the system allows. About a tenth of a gigabyte. The reader must be idle and is left with two more files. */
bool read_rates_measure(struct read_rates *rates, struct alloc *alloc, const struct catalogue *catalogue,
                        struct reader *reader, struct clock clock, struct err *err) MUST_CHECK;

#endif
