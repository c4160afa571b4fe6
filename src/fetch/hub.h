#ifndef FETCH_HUB_H
#define FETCH_HUB_H
/* What a model hub calls things: repositories, revisions, file lists and addresses.
 *
 * Nothing in a file list is trusted: a path that could leave its folder, a name of a blob that is no digest, a missing
 * size refuse the whole list. */
#include "base/arena.h"
#include "base/buf.h"
#include "plat/digest.h"

enum { HUB_ID_MAX = 200, HUB_REVISION_MAX = 200, HUB_COMMIT_TEXT = 41, HUB_LISTING_BYTES_MAX = 16 << 20 };

struct hub_repo {
    char id[HUB_ID_MAX]; /* "org/name" or "name" */
    char revision[HUB_REVISION_MAX];
};

/* A word such as org/name or org/name@v1; `revision` (NULL: not given) is what --revision says. Default: main. */
bool hub_parse_repo(struct hub_repo *repo, const char *word, const char *revision, struct err *err) MUST_CHECK;

bool hub_is_commit(const char *text); /* 40 lower-case hexadecimal digits */

struct hub_file {
    const char *path; /* relative, with / between its parts */
    uint64_t bytes;
    const char *blob; /* its name in a cache: 64 digits of SHA-256 for large files, else 40 of git's SHA-1 */
};

struct hub_listing {
    char commit[HUB_COMMIT_TEXT];
    struct hub_file *files; /* [n_files], by path */
    uint32_t n_files;
    struct arena arena;
};

/* The answer to hub_listing_url. `name` is for messages. */
bool hub_listing_parse(struct hub_listing *listing, struct alloc *alloc, const char *name, const char *json,
                       size_t bytes, struct err *err) MUST_CHECK;
void hub_listing_fini(struct hub_listing *listing); /* safe twice and on a zeroed listing */

/* Both replace what is in `url`. An endpoint is "https://huggingface.co", with or without a slash at its end. */
bool hub_listing_url(struct buf *url, const char *endpoint, const struct hub_repo *repo, struct err *err) MUST_CHECK;
bool hub_file_url(struct buf *url, const char *endpoint, const char *id, const char *commit, const char *path,
                  struct err *err) MUST_CHECK;

/* Which files of a list are wanted: those that match a pattern of `include` (NULL: what weir needs of a model) and none
 * of `exclude`. Patterns have commas between them; * and ? also match a slash, as the hub's own programs have it. */
struct hub_selection {
    const char *include, *exclude;
};
bool hub_selects(const struct hub_selection *selection, const char *path);

/* A pattern of `include` that matches nothing in the list, as a copy in text, or false. */
bool hub_idle_pattern(const struct hub_selection *selection, const struct hub_listing *listing, char *text,
                      size_t room);

#endif
