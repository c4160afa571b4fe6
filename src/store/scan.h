#ifndef STORE_SCAN_H
#define STORE_SCAN_H
/* Finds model folders below some roots and tells the registry what each holds, from headers alone.
 *
 * A model folder has a config.json and at least one *.safetensors. Links to folders are not followed, hidden folders
 * are not entered. What is registered but is no longer there is removed. Ended at any point, the next scan ends in the
 * same state. One thread. */
#include "plat/file.h"
#include "store/registry.h"

/* All may be NULL. A false stops the scan with ERR_CANCELLED. */
struct scan_watch {
    void *context;
    bool (*found)(void *context, const struct registry_model *model, bool is_new);
    bool (*passed_over)(void *context, const char *path, const char *reason);
    bool (*gone)(void *context, const char *path);
};

struct scan_job {
    struct registry *registry;
    const char *hub_cache;    /* looked through when it is there; NULL: none */
    const char *const *roots; /* [n_roots] to be remembered; each must be a folder */
    size_t n_roots;
    uint32_t n_folders_max; /* to look through; 0: the usual limit */
    struct scan_watch watch;
    struct alloc *alloc;
    struct file_system fs;
};

struct scan_result {
    uint32_t n_models, n_new, n_gone, n_passed_over;
};

/* Looks through the hub cache, the roots, and the roots of earlier scans. */
bool scan_all(const struct scan_job *job, struct scan_result *result, struct err *err) MUST_CHECK;

/* One folder, which is a model: for what was just fetched. */
bool scan_one(const struct scan_job *job, const char *path, struct err *err) MUST_CHECK;

#endif
