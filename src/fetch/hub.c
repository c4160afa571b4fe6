#include "fetch/hub.h"

#include "fmt/json_doc.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 100000, PATH_MAX_BYTES = 1024, PART_BYTES_MAX = 255 };
#define ARENA_BYTES_MAX (UINT64_C(256) << 20)
#define LARGEST_FILE (UINT64_C(1) << 50)

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#define HEX_DIGITS "0123456789abcdef"

/* --- repositories --- */

static bool is_name(const char *text, size_t bytes)
{
    if (bytes == 0 || bytes > 96 || text[0] == '.' || text[0] == '-') return false;
    for (size_t i = 0; i < bytes; i++)
        if (!memchr(LETTERS "._-", text[i], sizeof LETTERS "._-" - 1)) return false;
    return true;
}

/* The two marks that would make a cache folder's name mean something else. */
static bool is_ambiguous(const char *id)
{
    return strstr(id, "--") || strstr(id, "..");
}

/* A revision becomes a path under refs/, so it is held to what git allows and a bit less. */
static bool is_revision(const char *text)
{
    if (strspn(text, LETTERS "._-/+") != strlen(text)) return false;
    if (text[0] == '/' || text[0] == '-' || !text[0] || text[strlen(text) - 1] == '/') return false;
    return text[0] != '.' && !strstr(text, "..") && !strstr(text, "//") && !strstr(text, "/.");
}

bool hub_parse_repo(struct hub_repo *repo, const char *word, const char *revision, struct err *err)
{
    *repo = (struct hub_repo){0};
    const char *at = strchr(word, '@');
    size_t n = at ? (size_t)(at - word) : strlen(word);
    if (at && revision)
        return err_set(err, ERR_USER, "'%.200s' names a revision and --revision another; give one of them", word);
    if (at) revision = at + 1;
    if (!revision) revision = "main";
    const char *slash = memchr(word, '/', n);
    size_t first = slash ? (size_t)(slash - word) : n;
    bool ok = n < sizeof repo->id && is_name(word, first) && (!slash || is_name(slash + 1, n - first - 1));
    if (ok) memcpy(repo->id, word, n);
    if (!ok || is_ambiguous(repo->id))
        return err_set(err, ERR_USER, "'%.200s' is not the name of a repository, such as org/name or org/name@revision",
                       word);
    if (strlen(revision) >= sizeof repo->revision || !is_revision(revision))
        return err_set(err, ERR_USER, "'%.200s' is not a revision; give a branch, a tag or a commit", revision);
    snprintf(repo->revision, sizeof repo->revision, "%s", revision);
    return true;
}

bool hub_is_commit(const char *text)
{
    return strlen(text) == 40 && strspn(text, HEX_DIGITS) == 40;
}

/* --- the list of files --- */

/* Whether a path stays inside the folder that it is put in, on every system. */
static bool is_inside(const char *path, size_t bytes)
{
    if (bytes == 0 || bytes > PATH_MAX_BYTES || strlen(path) != bytes) return false;
    for (const char *part = path;;) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > PART_BYTES_MAX) return false;
        if (part[0] == '.' && (n == 1 || (n == 2 && part[1] == '.'))) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < 0x20 || part[i] == 0x7F || part[i] == '\\') return false;
        if (!part[n]) return true;
        part += n + 1;
    }
}

/* A path with its control characters made visible, for messages. */
static void show_path(char *out, size_t room, const char *path)
{
    snprintf(out, room, "%s", path);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
}

static const char *text_at(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, key, &value)) return NULL;
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

static bool size_at(struct json_object *object, uint64_t *bytes)
{
    struct json_object *value = NULL;
    if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, "size", &value))
        return false;
    if (!json_object_is_type(value, json_type_int)) return false;
    int64_t n = json_object_get_int64(value);
    *bytes = (uint64_t)n;
    return n >= 0 && (uint64_t)n <= LARGEST_FILE;
}

/* Blob and size: of a large file those of what its pointer points to. */
static bool read_content(struct hub_file *file, struct json_object *entry, struct arena *arena, const char *name,
                         const char *shown, struct err *err)
{
    struct json_object *lfs = NULL;
    json_object_object_get_ex(entry, "lfs", &lfs);
    size_t digits = lfs ? 64 : 40;
    const char *blob = lfs ? text_at(lfs, "sha256") : text_at(entry, "blobId");
    if (lfs && !blob) blob = text_at(lfs, "oid");
    if (!blob || strlen(blob) != digits || strspn(blob, HEX_DIGITS) != digits)
        return err_set(err, ERR_DATA,
                       "%s: the hub's list gives no digest for '%s'; is this endpoint a complete mirror?", name, shown);
    if (!size_at(lfs ? lfs : entry, &file->bytes))
        return err_set(err, ERR_DATA, "%s: the hub's list gives no size for '%s'; is this endpoint a complete mirror?",
                       name, shown);
    file->blob = arena_text(arena, blob, digits, err);
    return file->blob;
}

static bool read_file(struct hub_file *file, struct json_object *entry, struct arena *arena, const char *name,
                      struct err *err)
{
    char shown[200];
    struct json_object *path = NULL;
    if (!json_object_is_type(entry, json_type_object) || !json_object_object_get_ex(entry, "rfilename", &path) ||
        !json_object_is_type(path, json_type_string))
        return err_set(err, ERR_DATA,
                       "%s: the hub's list has an entry without a file name; is this endpoint a complete mirror?",
                       name);
    const char *text = json_object_get_string(path);
    size_t bytes = (size_t)json_object_get_string_len(path);
    show_path(shown, sizeof shown, text);
    if (!is_inside(text, bytes))
        return err_set(err, ERR_DATA,
                       "%s: the hub's list has a file named '%s', which could be written outside of its folder; "
                       "nothing was fetched, do not trust this repository",
                       name, shown);
    file->path = arena_text(arena, text, bytes, err);
    return file->path && read_content(file, entry, arena, name, shown, err);
}

static int compare_files(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static bool read_files(struct hub_listing *l, struct json_object *siblings, const char *name, struct err *err)
{
    size_t n = json_object_array_length(siblings);
    if (n == 0 || n > FILES_MAX)
        return err_set(err, ERR_DATA,
                       "%s: the hub lists %zu files, and 1 to %d can be handled; is this the repository you mean?",
                       name, n, FILES_MAX);
    l->files = arena_get_array(&l->arena, n, sizeof *l->files, err);
    if (!l->files) return false;
    for (size_t i = 0; i < n; i++)
        if (!read_file(&l->files[l->n_files++], json_object_array_get_idx(siblings, i), &l->arena, name, err))
            return false;
    qsort(l->files, l->n_files, sizeof *l->files, compare_files);
    for (uint32_t i = 1; i < l->n_files; i++)
        if (strcmp(l->files[i - 1].path, l->files[i].path) == 0)
            return err_set(err, ERR_DATA, "%s: the hub lists '%s' twice; is this endpoint a complete mirror?", name,
                           l->files[i].path);
    return true;
}

bool hub_listing_parse(struct hub_listing *listing, struct alloc *alloc, const char *name, const char *json,
                       size_t bytes, struct err *err)
{
    struct json_object *doc = NULL, *siblings = NULL;
    *listing = (struct hub_listing){0};
    arena_init(&listing->arena, alloc, ARENA_BYTES_MAX);
    if (!json_doc_parse(&doc, alloc, &json_rules_file, name, json, bytes, err)) goto fail;
    const char *commit = text_at(doc, "sha");
    if (!commit || !hub_is_commit(commit) || !json_object_object_get_ex(doc, "siblings", &siblings) ||
        !json_object_is_type(siblings, json_type_array)) {
        err_set(err, ERR_DATA, "%s: the answer is not a list of files; is this the endpoint of a model hub?", name);
        goto fail;
    }
    memcpy(listing->commit, commit, HUB_COMMIT_TEXT);
    if (!read_files(listing, siblings, name, err)) goto fail;
    json_object_put(doc);
    return true;
fail:
    json_object_put(doc);
    hub_listing_fini(listing);
    return false;
}

void hub_listing_fini(struct hub_listing *listing)
{
    arena_fini(&listing->arena);
    *listing = (struct hub_listing){0};
}

/* --- addresses --- */

/* Everything but letters, digits, -._~ and the characters of `also` as %XX. */
static bool add_escaped(struct buf *url, const char *text, const char *also, struct err *err)
{
    for (; *text; text++) {
        bool is_plain = strchr(LETTERS "-._~", *text) || strchr(also, *text);
        if (!(is_plain ? buf_add_char(url, *text, err) : buf_printf(url, err, "%%%02X", (unsigned char)*text)))
            return false;
    }
    return true;
}

static bool add_endpoint(struct buf *url, const char *endpoint, struct err *err)
{
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/') n--;
    buf_clear(url);
    return buf_add(url, endpoint, n, err);
}

bool hub_listing_url(struct buf *url, const char *endpoint, const struct hub_repo *repo, struct err *err)
{
    return add_endpoint(url, endpoint, err) && buf_printf(url, err, "/api/models/%s/revision/", repo->id) &&
           add_escaped(url, repo->revision, "", err) && buf_add_text(url, "?blobs=true", err);
}

bool hub_file_url(struct buf *url, const char *endpoint, const char *id, const char *commit, const char *path,
                  struct err *err)
{
    return add_endpoint(url, endpoint, err) && buf_printf(url, err, "/%s/resolve/%s/", id, commit) &&
           add_escaped(url, path, "/", err);
}
