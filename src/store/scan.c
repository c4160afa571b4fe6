#include "store/scan.h"

#include "base/arena.h"
#include "base/assert.h"
#include "fmt/inventory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES_MAX = 4096, DEPTH_MAX = 8, FOLDERS_MAX = 200000, FORMATS_TEXT = 256 };
#define TEXTS_BYTES_MAX (UINT64_C(64) << 20)
#define SUFFIX ".safetensors"

struct scan {
    const struct scan_job *job;
    struct scan_result *result;
    uint32_t n_folders;
};

struct path {
    char text[PATH_BYTES_MAX];
};

static bool stopped(struct err *err)
{
    return err_set(err, ERR_CANCELLED, "stopped before all was looked through");
}

static bool pass_over(struct scan *s, const char *path, const char *reason, struct err *err)
{
    const struct scan_watch *watch = &s->job->watch;
    bool was_there;
    s->result->n_passed_over++;
    if (!registry_remove(s->job->registry, path, &was_there, err)) return false;
    return !watch->passed_over || watch->passed_over(watch->context, path, reason) || stopped(err);
}

/* --- what a folder holds --- */

struct description {
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct registry_model model;
    char name[512], revision[64], formats[FORMATS_TEXT], identity[65];
};

static void add_format(uint64_t bytes[FORMAT_COUNT], const struct weight_source *source)
{
    if (source->payload) bytes[source->format] += weight_source_bytes(source);
}

/* The names of all formats that occur, that of the most bytes first. */
static void name_formats(char text[FORMATS_TEXT], const struct inventory *v)
{
    uint64_t bytes[FORMAT_COUNT] = {0};
    size_t used = 0;
    for (int r = 0; r < MODEL_ROLE_COUNT; r++) add_format(bytes, &v->model[r]);
    for (uint32_t l = 0; l <= v->config->n_layers; l++) {
        for (int r = 0; r < ROLE_COUNT; r++) add_format(bytes, &v->layers[l].role[r]);
        for (uint32_t e = 0; v->layers[l].experts && e < v->config->n_experts; e++)
            for (int p = 0; p < EXPERT_PARTS; p++) add_format(bytes, &v->layers[l].experts[e][p]);
    }
    text[0] = 0;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        int most = 0;
        for (int f = 1; f < FORMAT_COUNT; f++)
            if (bytes[f] > bytes[most]) most = f;
        if (bytes[most] == 0) return;
        used += (size_t)snprintf(text + used, FORMATS_TEXT - used, "%s%s", used ? ", " : "",
                                 format_name((enum weight_format)most));
        bytes[most] = 0;
    }
}

/* ".../models--ORG--NAME/snapshots/COMMIT": a snapshot in a hub cache. Other folders have their own name. */
static void name_model(struct description *d, struct file_system fs, struct alloc *alloc, const char *path)
{
    static const char front[] = "models--";
    struct path part, ref;
    snprintf(part.text, sizeof part.text, "%s", path);
    char *commit = strrchr(part.text, '/');
    *commit++ = 0;
    snprintf(d->name, sizeof d->name, "%.500s", *commit ? commit : "/");
    d->model.is_current = true;
    char *snapshots = strrchr(part.text, '/');
    if (!snapshots || strcmp(snapshots, "/snapshots") != 0) return;
    *snapshots = 0;
    char *repo = strrchr(part.text, '/');
    if (!repo || strncmp(repo + 1, front, sizeof front - 1) != 0) return;
    repo += sizeof front;
    char *between = strstr(repo, "--");
    snprintf(d->name, sizeof d->name, "%.*s%s%.250s", between ? (int)(between - repo) : 250, repo, between ? "/" : "",
             between ? between + 2 : "");
    snprintf(d->revision, sizeof d->revision, "%.63s", commit);

    struct err ignored = {0}; /* no main: every snapshot is as current as any other */
    size_t bytes;
    if (snprintf(ref.text, sizeof ref.text, "%s/refs/main", part.text) >= (int)sizeof ref.text) return;
    char *text = file_read_all(alloc, fs, ref.text, PATH_BYTES_MAX, &bytes, &ignored);
    if (!text) return;
    text[strcspn(text, " \r\n")] = 0;
    d->model.is_current = strcmp(text, commit) == 0;
    alloc_put(alloc, text);
}

static bool describe(struct description *d, const struct scan_job *job, const char *path, struct err *err)
{
    if (!config_read(&d->config, job->alloc, job->fs, path, err) ||
        !catalogue_open(&d->catalogue, job->alloc, job->fs, path, err) ||
        !inventory_build(&d->inventory, job->alloc, &d->config, &d->catalogue, err))
        return false;
    name_model(d, job->fs, job->alloc, path);
    name_formats(d->formats, &d->inventory);
    for (int i = 0; i < 32; i++) snprintf(d->identity + 2 * i, 3, "%02x", d->catalogue.identity[i]);
    struct registry_model *m = &d->model;
    m->path = path;
    m->name = d->name;
    m->revision = d->revision;
    m->formats = d->formats;
    m->identity = d->identity;
    m->has_dsa = d->inventory.dsa == CAPABILITY_PRESENT;
    m->has_mtp = d->inventory.mtp == CAPABILITY_PRESENT;
    for (uint32_t i = 0; i < d->catalogue.n_shards; i++) m->bytes += d->catalogue.shards[i].file.identity.bytes;
    return true;
}

/* Not a model for weir, or a damaged one, is passed over; only our own troubles end the scan. */
static bool register_folder(struct scan *s, const char *path, struct err *err)
{
    const struct scan_watch *watch = &s->job->watch;
    struct err why = {0};
    bool is_new;
    struct description *d = alloc_get(s->job->alloc, sizeof *d, err);
    if (!d) return false;
    bool ok = true, is_model = describe(d, s->job, path, &why);
    if (is_model) {
        ok = registry_put(s->job->registry, &d->model, &is_new, err);
        if (ok) s->result->n_new += is_new;
        if (ok && watch->found && !watch->found(watch->context, &d->model, is_new)) ok = stopped(err);
    }
    inventory_fini(&d->inventory);
    catalogue_close(&d->catalogue);
    alloc_put(s->job->alloc, d);
    if (is_model) return ok;
    if (why.kind == ERR_NOMEM) {
        *err = why;
        return false;
    }
    return pass_over(s, path, why.text, err);
}

/* --- the walk --- */

/* Texts that are kept. */
struct names {
    struct alloc *alloc;
    struct arena arena;
    const char **items;
    uint32_t n, room;
    struct err err; /* for callbacks, which have no other place for it */
};

static void names_init(struct names *names, struct alloc *alloc)
{
    *names = (struct names){.alloc = alloc};
    arena_init(&names->arena, alloc, TEXTS_BYTES_MAX);
}

static void names_fini(struct names *names)
{
    alloc_put(names->alloc, names->items);
    arena_fini(&names->arena);
}

static bool names_add(struct names *names, const char *text, struct err *err)
{
    if (names->n == names->room) {
        uint32_t room = names->room ? 2 * names->room : 16;
        const char **more = alloc_resize(names->alloc, names->items, room * sizeof *more, err);
        if (!more) return false;
        names->items = more;
        names->room = room;
    }
    const char *copy = arena_text(&names->arena, text, strlen(text), err);
    if (copy) names->items[names->n++] = copy;
    return copy;
}

/* What one folder has of interest: whether it is a model, and its folders. */
struct entries {
    struct names folders;
    bool has_config, has_shards;
};

static bool is_folder(int parent, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type == DT_DIR;
    return fstatat(parent, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool take_entry(struct entries *e, DIR *dir, const struct dirent *entry, struct err *err)
{
    const char *name = entry->d_name;
    size_t n = strlen(name), suffix = strlen(SUFFIX);
    if (name[0] == '.') return true;
    if (is_folder(dirfd(dir), entry)) return names_add(&e->folders, name, err);
    e->has_config |= strcmp(name, "config.json") == 0;
    e->has_shards |= n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* False with err untouched: it cannot be read, errno tells why. */
static bool list_entries(struct entries *e, const char *path, struct err *err)
{
    bool ok = true;
    DIR *dir = opendir(path);
    if (!dir) return false;
    for (struct dirent *entry; ok && (entry = readdir(dir));) ok = take_entry(e, dir, entry, err);
    closedir(dir);
    const struct names *folders = &e->folders;
    if (ok && folders->n > 0) qsort(folders->items, folders->n, sizeof *folders->items, compare_names);
    return ok;
}

static bool walk(struct scan *s, const char *path, unsigned depth, struct err *err);

static bool walk_into(struct scan *s, const char *path, const char *name, unsigned depth, struct err *err)
{
    struct path *inner = alloc_get(s->job->alloc, sizeof *inner, err);
    if (!inner) return false;
    const char *between = path[1] ? "/" : ""; /* "/" is its own end */
    bool fits = snprintf(inner->text, sizeof inner->text, "%s%s%s", path, between, name) < (int)sizeof inner->text;
    bool ok = !fits || walk(s, inner->text, depth + 1, err); /* deeper than paths can be: nobody's model */
    alloc_put(s->job->alloc, inner);
    return ok;
}

static bool walk(struct scan *s, const char *path, unsigned depth, struct err *err)
{
    struct entries e = {0};
    struct err why = {0};
    uint32_t most = s->job->n_folders_max ? s->job->n_folders_max : FOLDERS_MAX;
    if (++s->n_folders > most)
        return err_set(err, ERR_USER, "%s: more than %" PRIu32 " folders to look through; scan smaller ones", path,
                       most);
    names_init(&e.folders, s->job->alloc);
    bool ok = list_entries(&e, path, &why);
    if (!ok && why.kind) {
        *err = why;
    } else if (!ok) {
        ok = pass_over(s, path, strerror(errno), err);
    } else {
        if (e.has_config && e.has_shards) ok = register_folder(s, path, err);
        for (uint32_t i = 0; ok && depth < DEPTH_MAX && i < e.folders.n; i++)
            ok = walk_into(s, path, e.folders.items[i], depth, err);
    }
    names_fini(&e.folders);
    return ok;
}

/* --- roots, and what is gone --- */

static bool is_a_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Absolute and without links, so that a folder is known by one name. */
static bool make_absolute(struct path *out, const char *path, struct err *err)
{
    static_assert(PATH_BYTES_MAX >= PATH_MAX, "realpath writes up to PATH_MAX bytes");
    if (!is_a_folder(path))
        return err_set(err, ERR_USER, "%s: there is no such folder; give one that holds models", path);
    return realpath(path, out->text) ||
           err_set(err, ERR_IO, "%s: cannot be followed to its end: %s", path, strerror(errno));
}

static bool keep_root(void *context, const char *path)
{
    struct names *names = context;
    return names_add(names, path, &names->err);
}

/* What is left of a model without its shards, or without its config.json, is none. */
static bool keep_gone(void *context, const struct registry_model *model)
{
    struct names *names = context;
    struct entries e = {0};
    names_init(&e.folders, names->alloc);
    bool is_listed = list_entries(&e, model->path, &names->err);
    names_fini(&e.folders);
    if (names->err.kind) return false;
    return (is_listed && e.has_config && e.has_shards) || names_add(names, model->path, &names->err);
}

static bool tell_gone(struct scan *s, const char *path, struct err *err)
{
    const struct scan_watch *watch = &s->job->watch;
    return !watch->gone || watch->gone(watch->context, path) || stopped(err);
}

static bool walk_roots(struct scan *s, const struct names *roots, struct err *err)
{
    struct registry *registry = s->job->registry;
    for (uint32_t i = 0; i < roots->n; i++) {
        const char *root = roots->items[i];
        bool is_there = is_a_folder(root);
        if (is_there && !walk(s, root, 0, err)) return false;
        if (!is_there && (!registry_remove_root(registry, root, err) || !tell_gone(s, root, err))) return false;
    }
    return true;
}

static bool drop_gone(struct scan *s, const struct names *gone, struct err *err)
{
    for (uint32_t i = 0; i < gone->n; i++) {
        bool was_there;
        if (!registry_remove(s->job->registry, gone->items[i], &was_there, err)) return false;
        s->result->n_gone += was_there;
        if (!tell_gone(s, gone->items[i], err)) return false;
    }
    return true;
}

static bool count_model(void *context, const struct registry_model *model)
{
    (void)model;
    ++*(uint32_t *)context;
    return true;
}

static bool scan_with(struct scan *s, struct names *roots, struct names *gone, struct err *err)
{
    const struct scan_job *job = s->job;
    struct path root;
    for (size_t i = 0; i < job->n_roots; i++)
        if (!make_absolute(&root, job->roots[i], err) || !registry_add_root(job->registry, root.text, err))
            return false;
    if (job->hub_cache && is_a_folder(job->hub_cache) &&
        (!make_absolute(&root, job->hub_cache, err) || !walk(s, root.text, 0, err)))
        return false;
    if (!registry_each_root(job->registry, keep_root, roots, err)) return false;
    if (!roots->err.kind && !walk_roots(s, roots, err)) return false;
    if (!registry_each(job->registry, keep_gone, gone, err)) return false;
    const struct err *why = roots->err.kind ? &roots->err : &gone->err;
    if (why->kind) {
        *err = *why;
        return false;
    }
    return drop_gone(s, gone, err) && registry_each(job->registry, count_model, &s->result->n_models, err);
}

bool scan_all(const struct scan_job *job, struct scan_result *result, struct err *err)
{
    struct scan s = {.job = job, .result = result};
    struct names roots, gone;
    *result = (struct scan_result){0};
    names_init(&roots, job->alloc);
    names_init(&gone, job->alloc);
    bool ok = scan_with(&s, &roots, &gone, err);
    names_fini(&roots);
    names_fini(&gone);
    return ok;
}

bool scan_one(const struct scan_job *job, const char *path, struct err *err)
{
    struct scan_result result = {0};
    struct scan s = {.job = job, .result = &result};
    struct path absolute;
    return make_absolute(&absolute, path, err) && register_folder(&s, absolute.text, err);
}
