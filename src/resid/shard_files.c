#include "resid/shard_files.h"

uint32_t *shard_files_add(struct alloc *alloc, struct reader *reader, const struct catalogue *catalogue,
                          enum reader_direct direct, struct err *err)
{
    uint32_t *ids = alloc_get_array(alloc, catalogue->n_shards, sizeof *ids, err);
    if (!ids) return NULL;
    for (uint32_t i = 0; i < catalogue->n_shards; i++)
        if (!reader_add_file(reader, &catalogue->shards[i].file, direct, &ids[i], err)) goto fail;
    return ids;
fail:
    alloc_put(alloc, ids);
    return NULL;
}
