#ifndef STORE_REGISTRY_H
#define STORE_REGISTRY_H
/* Which models this user has, and where: a small database in weir's own data folder.
 *
 * What it says was true when the folder was last scanned; nothing else depends on it, so it can be deleted and made
 * anew. Several processes may use it at once. One thread for each struct registry. */
#include "base/alloc.h"

struct registry;

struct registry_model {
    const char *path;     /* absolute, no links inside; what tells models apart */
    const char *name;     /* "org/name" in a hub cache, else the folder's own */
    const char *revision; /* a commit in a hub cache, else "" */
    bool is_current;      /* false: in a hub cache, and its reference `main` names another commit */
    uint64_t bytes;       /* of its shards */
    const char *formats;  /* "int4-row, int8-row, f32" */
    bool has_dsa, has_mtp;
    const char *identity; /* SHA-256 over config and headers, 64 digits */
};

/* FOLDER/registry.db. may_create false: when there is none, *registry is NULL, which the other functions take as an
 * empty one. A database that was written by a newer weir, or is damaged, is ERR_DATA. */
bool registry_open(struct registry **registry, struct alloc *alloc, const char *folder, bool may_create,
                   struct err *err) MUST_CHECK;
void registry_close(struct registry *registry); /* NULL is fine */

/* Replaces what was known of this path. *is_new: nothing was. */
bool registry_put(struct registry *registry, const struct registry_model *model, bool *is_new,
                  struct err *err) MUST_CHECK;
bool registry_remove(struct registry *registry, const char *path, bool *was_there, struct err *err) MUST_CHECK;

/* All models, by name, then path. The model is good during the call; a false ends it early, which is no failure. The
 * callback must not change the registry. */
typedef bool registry_see(void *context, const struct registry_model *model);
bool registry_each(struct registry *registry, registry_see *see, void *context, struct err *err) MUST_CHECK;

/* Folders to look for models in, besides the hub cache. */
bool registry_add_root(struct registry *registry, const char *path, struct err *err) MUST_CHECK;
bool registry_remove_root(struct registry *registry, const char *path, struct err *err) MUST_CHECK;
typedef bool registry_see_root(void *context, const char *path);
bool registry_each_root(struct registry *registry, registry_see_root *see, void *context, struct err *err) MUST_CHECK;

#endif
