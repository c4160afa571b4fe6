#include "fmt/catalogue.h"

#include "fmt/catalogue_int.h"
#include "fmt/json_scan.h"
#include "fmt/safetensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_MAX = 6, FILE_NAME_MAX = 256, INDEX_BYTES_MAX = 64 << 20, PATH_BYTES_MAX = 4096, SHARD_NUMBERS_MAX = 512 };

/* The shards that seem to be missing: the first few by name, the others only as "more". */
struct missing {
    char names[NAMED_MAX][FILE_NAME_MAX];
    uint32_t n;
    bool has_more;
};

static void missing_add(struct missing *missing, const char *name)
{
    for (uint32_t i = 0; i < missing->n; i++)
        if (strcmp(missing->names[i], name) == 0) return;
    missing->has_more |= missing->n == NAMED_MAX;
    if (missing->n < NAMED_MAX) snprintf(missing->names[missing->n++], FILE_NAME_MAX, "%s", name);
}

static bool has_shard(const struct catalogue *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_shards; i++)
        if (strcmp(c->shards[i].name, name) == 0) return true;
    return false;
}

/* --- what the index says --- */

static bool scan_map(struct json_scan *scan, const struct catalogue *c, const char *tensor, struct missing *missing,
                     char home[FILE_NAME_MAX], struct err *err)
{
    bool first = true, more;
    if (!json_scan_mark(scan, '{', err)) return false;
    for (;;) {
        char name[SAFETENSORS_NAME_MAX], file[FILE_NAME_MAX];
        if (!json_scan_next(scan, '}', &first, &more, err)) return false;
        if (!more) return true;
        if (!json_scan_key(scan, name, sizeof name, err)) return false;
        if (!json_scan_string(scan, file, sizeof file, NULL, err)) return false;
        if (strcmp(name, tensor) == 0) memcpy(home, file, sizeof file);
        if (!has_shard(c, file)) missing_add(missing, file);
    }
}

static bool scan_index(struct json_scan *scan, const struct catalogue *c, const char *tensor, struct missing *missing,
                       char home[FILE_NAME_MAX], struct err *err)
{
    bool first = true, more;
    if (!json_scan_mark(scan, '{', err)) return false;
    for (;;) {
        char key[SAFETENSORS_NAME_MAX];
        if (!json_scan_next(scan, '}', &first, &more, err)) return false;
        if (!more) return json_scan_end(scan, err);
        if (!json_scan_key(scan, key, sizeof key, err)) return false;
        bool is_map = strcmp(key, "weight_map") == 0;
        if (is_map && !scan_map(scan, c, tensor, missing, home, err)) return false;
        if (!is_map && !json_scan_skip(scan, err)) return false;
    }
}

/* An index that cannot be read tells nothing: it is not part of the model. */
static void by_index(const struct catalogue *c, const char *tensor, struct missing *missing, char home[FILE_NAME_MAX])
{
    char path[PATH_BYTES_MAX];
    size_t bytes;
    struct json_scan scan;
    struct alloc *alloc = c->memory->alloc;
    if (snprintf(path, sizeof path, "%s/model.safetensors.index.json", c->dir) >= (int)sizeof path) return;
    if (!file_present(c->memory->fs, path)) return;
    char *text = file_read_all(alloc, c->memory->fs, path, INDEX_BYTES_MAX, &bytes, NULL);
    if (!text) return;
    struct missing found = {0};
    if (json_scan_init(&scan, path, text, bytes, 0, NULL) && scan_index(&scan, c, tensor, &found, home, NULL))
        *missing = found;
    else
        home[0] = 0;
    alloc_put(alloc, text);
}

/* --- what the names say --- */

/* "NAME-00003-of-00004.safetensors": its parts. */
struct part_name {
    char stem[FILE_NAME_MAX];
    int width;
    uint32_t number, of;
};

static bool read_part_name(const char *name, struct part_name *out)
{
    const char *of = strstr(name, "-of-");
    if (!of || strlen(name) >= FILE_NAME_MAX) return false;
    const char *digits = of;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
    if (digits == of || of - digits > 9) return false;
    size_t more = strspn(of + 4, "0123456789");
    if (more == 0 || more > 9 || strcmp(of + 4 + more, ".safetensors") != 0) return false;
    out->width = (int)(of - digits);
    out->number = (uint32_t)strtoul(digits, NULL, 10);
    out->of = (uint32_t)strtoul(of + 4, NULL, 10);
    memcpy(out->stem, name, (size_t)(digits - name));
    out->stem[digits - name] = 0;
    return true;
}

static void by_part_names(const struct catalogue *c, struct missing *missing)
{
    for (uint32_t i = 0; i < c->n_shards; i++) {
        struct part_name part;
        if (!read_part_name(c->shards[i].name, &part)) continue;
        for (uint32_t k = 1; k <= part.of && k <= SHARD_NUMBERS_MAX; k++) {
            char name[FILE_NAME_MAX + 64];
            snprintf(name, sizeof name, "%s%0*" PRIu32 "-of-%0*" PRIu32 ".safetensors", part.stem, part.width, k,
                     part.width, part.of);
            if (!has_shard(c, name)) missing_add(missing, name);
        }
        return; /* the others say the same */
    }
}

/* The nearest number below `number` in the same family, or false. */
static bool number_before(const struct catalogue *c, const char *name, size_t prefix_bytes, uint32_t number,
                          uint32_t *before)
{
    bool found = false;
    for (uint32_t i = 0; i < c->n_shards; i++) {
        size_t other_bytes;
        uint32_t other;
        const char *that = c->shards[i].name;
        if (!catalogue_numbered(that, &other_bytes, &other) || other_bytes != prefix_bytes || other >= number) continue;
        if (strncmp(that, name, prefix_bytes) != 0 || (found && other <= *before)) continue;
        *before = other;
        found = true;
    }
    return found;
}

/* Gaps below the highest number of each family. Whether a family begins at 0 or at 1 is nowhere written: 0 is counted
 * as missing only when 1 is missing too. */
static void by_gaps(const struct catalogue *c, struct missing *missing)
{
    for (uint32_t i = 0; i < c->n_shards; i++) {
        size_t prefix_bytes;
        uint32_t number, before = 0;
        const char *name = c->shards[i].name;
        if (!catalogue_numbered(name, &prefix_bytes, &number)) continue;
        uint32_t from = number == 1 ? 1 : 0;
        if (number_before(c, name, prefix_bytes, number, &before)) from = before + 1;
        int width = (int)strspn(name + prefix_bytes, "0123456789");
        for (uint32_t k = from; k < number && k - from <= SHARD_NUMBERS_MAX; k++) {
            char gap[FILE_NAME_MAX];
            snprintf(gap, sizeof gap, "%.*s%0*" PRIu32 ".safetensors", (int)prefix_bytes, name, width, k);
            missing_add(missing, gap);
        }
    }
}

/* Numbers without a gap can still lack their beginning and their end. */
static void explain_edges(const struct catalogue *c, char *text, size_t room)
{
    const char *first = NULL, *last = NULL;
    for (uint32_t i = 0; i < c->n_shards; i++) {
        size_t prefix_bytes;
        uint32_t number;
        if (!catalogue_numbered(c->shards[i].name, &prefix_bytes, &number) || prefix_bytes != strlen("out-")) continue;
        if (!first && number > 0) first = c->shards[i].name;
        if (!first) first = "";
        last = c->shards[i].name;
    }
    if (first && first[0])
        snprintf(text, room, "; a missing shard comes before %s or after %s", first, last);
    else if (last)
        snprintf(text, room, "; a missing shard comes after %s", last);
}

bool catalogue_explain_missing(const struct catalogue *catalogue, const char *tensor, char *text, size_t room)
{
    struct missing missing = {0};
    char home[FILE_NAME_MAX] = {0};
    text[0] = 0;
    by_index(catalogue, tensor, &missing, home);
    if (missing.n == 0) by_part_names(catalogue, &missing);
    if (missing.n == 0) by_gaps(catalogue, &missing);
    if (missing.n == 0) {
        explain_edges(catalogue, text, room);
        return false;
    }

    bool has_home = home[0] && !has_shard(catalogue, home);
    size_t used = 0;
    if (has_home)
        used = (size_t)snprintf(text, room, "; it belongs into %s, which is missing", home);
    else
        used = (size_t)snprintf(text, room, "; missing shards:");
    const char *comma = has_home ? ", as are " : " ";
    for (uint32_t i = 0; i < missing.n && used < room; i++) {
        if (has_home && strcmp(missing.names[i], home) == 0) continue;
        used += (size_t)snprintf(text + used, room - used, "%s%s", comma, missing.names[i]);
        comma = ", ";
    }
    if (missing.has_more && used < room) snprintf(text + used, room - used, " and more");
    return true;
}
