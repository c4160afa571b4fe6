#ifndef RESID_SHARD_FILES_H
#define RESID_SHARD_FILES_H
/* The shards of a catalogue, made known to a reader. */
#include "fmt/catalogue.h"
#include "plat/reader.h"

/* ids [n_shards], to be given back with alloc_put; NULL on failure. */
uint32_t *shard_files_add(struct alloc *alloc, struct reader *reader, const struct catalogue *catalogue,
                          enum reader_direct direct, struct err *err) MUST_CHECK;

#endif
