#include "resid/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Header, counts, checksum; all little endian. */
enum { HEADER_BYTES = 56, CHECK_BYTES = 8, VERSION = 1 };
#define TEXT_BYTES_MAX (UINT64_C(64) << 20)
static const char magic[8] = "WEIRUSE1";

static uint64_t n_counts(const struct usage *u)
{
    return (uint64_t)u->n_layers * u->n_experts;
}

bool usage_init(struct usage *u, struct alloc *alloc, uint32_t n_layers, uint32_t n_experts, const uint8_t identity[32],
                struct err *err)
{
    *u = (struct usage){.alloc = alloc, .n_layers = n_layers, .n_experts = n_experts};
    memcpy(u->identity, identity, sizeof u->identity);
    u->counts = alloc_get_array(alloc, n_counts(u), sizeof *u->counts, err);
    return u->counts != NULL;
}

void usage_fini(struct usage *u)
{
    if (u->alloc) alloc_put(u->alloc, u->counts);
    *u = (struct usage){0};
}

static void put(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t take(const uint8_t *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

static uint64_t file_bytes(const struct usage *u)
{
    return HEADER_BYTES + 4 * n_counts(u) + CHECK_BYTES;
}

static void make_header(const struct usage *u, uint8_t out[HEADER_BYTES])
{
    memcpy(out, magic, sizeof magic);
    put(out + 8, VERSION, 4);
    put(out + 12, u->n_layers, 4);
    put(out + 16, u->n_experts, 4);
    put(out + 20, u->n_passes, 4);
    memcpy(out + 24, u->identity, sizeof u->identity);
}

bool usage_write(const struct usage *u, struct write_system ws, const char *path, struct err *err)
{
    uint64_t bytes = file_bytes(u);
    uint8_t *data = alloc_get(u->alloc, bytes, err);
    if (!data) return false;
    make_header(u, data);
    for (uint64_t i = 0; i < n_counts(u); i++) put(data + HEADER_BYTES + 4 * i, u->counts[i], 4);
    put(data + bytes - CHECK_BYTES, XXH64(data, bytes - CHECK_BYTES, 0), CHECK_BYTES);
    bool ok = file_write_all(u->alloc, ws, path, data, bytes, err);
    alloc_put(u->alloc, data);
    return ok;
}

static bool understand(struct usage *u, const uint8_t *data, size_t bytes, const char *path, struct err *err)
{
    uint8_t header[HEADER_BYTES];
    u->n_passes = bytes >= HEADER_BYTES ? (uint32_t)take(data + 20, 4) : 0;
    make_header(u, header);
    if (bytes < HEADER_BYTES || memcmp(data, header, HEADER_BYTES) != 0)
        return err_set(err, ERR_DATA, "%s: not the usage history of this model", path);
    if (bytes != file_bytes(u) || take(data + bytes - CHECK_BYTES, CHECK_BYTES) != XXH64(data, bytes - CHECK_BYTES, 0))
        return err_set(err, ERR_DATA, "%s: the usage history is damaged", path);
    for (uint64_t i = 0; i < n_counts(u); i++) u->counts[i] = (uint32_t)take(data + HEADER_BYTES + 4 * i, 4);
    return true;
}

bool usage_read(struct usage *u, struct file_system fs, const char *path, struct err *err)
{
    size_t bytes;
    memset(u->counts, 0, n_counts(u) * sizeof *u->counts);
    if (!file_present(fs, path)) return true;
    char *data = file_read_all(u->alloc, fs, path, file_bytes(u), &bytes, err);
    if (!data) return false;
    bool ok = understand(u, (const uint8_t *)data, bytes, path, err);
    alloc_put(u->alloc, data);
    return ok;
}

/* --- the other engine's text --- */

enum { COLI_VERSION = 1 };
#define COLI_MARK INT64_C(3815245270) /* FNV-1a of "glm_moe_dsa" */

/* Three whole numbers and nothing else. */
static bool read_line(const char *line, int64_t out[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;
        errno = 0;
        out[i] = strtoll(line, &end, 10);
        if (end == line || errno || (i < 2 && *end != ' ')) return false;
        line = end;
    }
    return line[strspn(line, " \r")] == '\0';
}

static bool import_line(struct usage *u, const int64_t v[3], const bool *has_experts, const char *path, struct err *err)
{
    if (v[0] == -1 && (v[1] != u->n_layers - 1 || v[2] != u->n_experts))
        return err_set(err, ERR_DATA, "%s: for a model of %" PRId64 " layers with %" PRId64 " experts", path, v[1],
                       v[2]);
    if (v[0] == -2 && v[1] > COLI_VERSION)
        return err_set(err, ERR_DATA, "%s: version %" PRId64 " of the format, known is %d", path, v[1], COLI_VERSION);
    if (v[0] == -2 && v[2] != COLI_MARK) return err_set(err, ERR_DATA, "%s: written for another kind of model", path);
    if (v[0] < 0) return true;
    if (v[0] >= u->n_layers || v[1] < 0 || v[1] >= u->n_experts || v[2] < 0 || v[2] > UINT32_MAX)
        return err_set(err, ERR_DATA, "%s: layer %" PRId64 ", expert %" PRId64 ", count %" PRId64 " cannot be", path,
                       v[0], v[1], v[2]);
    if (has_experts[v[0]]) u->counts[v[0] * u->n_experts + v[1]] = (uint32_t)v[2];
    return true;
}

bool usage_import(struct usage *u, struct file_system fs, const char *path, const bool *has_experts, struct err *err)
{
    size_t bytes;
    char *text = file_read_all(u->alloc, fs, path, TEXT_BYTES_MAX, &bytes, err);
    if (!text) return false;
    memset(u->counts, 0, n_counts(u) * sizeof *u->counts);
    bool ok = true;
    for (char *line = text; ok && line < text + bytes;) {
        int64_t values[3];
        char *end = line + strcspn(line, "\n");
        *end = '\0';
        if (*line && !read_line(line, values))
            ok = err_set(err, ERR_DATA, "%s: byte %td: not three numbers", path, line - text);
        else if (*line)
            ok = import_line(u, values, has_experts, path, err);
        line = end + 1;
    }
    if (!ok) memset(u->counts, 0, n_counts(u) * sizeof *u->counts);
    /* The text does not tell; an expert is asked for once per pass at most, so it were at least so many. */
    u->n_passes = 0;
    for (uint64_t i = 0; i < n_counts(u); i++)
        if (u->counts[i] > u->n_passes) u->n_passes = u->counts[i];
    alloc_put(u->alloc, text);
    return ok;
}

/* --- policies --- */

void usage_seed(const struct usage *u, struct policy *policy)
{
    for (uint32_t key = 0; key < n_counts(u); key++)
        if (u->counts[key] > 0) policy_seed(policy, key, u->counts[key]);
    policy_seed_passes(policy, u->n_passes);
}

void usage_take(struct usage *u, const struct policy *policy)
{
    for (uint32_t key = 0; key < n_counts(u); key++) u->counts[key] = policy_touches(policy, key);
    u->n_passes = policy_passes(policy);
}

/* A heap of the best so far with the least of them on top: small beside what it is chosen from. */
static void sink(const struct usage *u, uint32_t *keys, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t child = 2 * i + 1, key = keys[i];
        if (child >= n) return;
        if (child + 1 < n && u->counts[keys[child + 1]] < u->counts[keys[child]]) child++;
        if (u->counts[keys[child]] >= u->counts[key]) return;
        keys[i] = keys[child];
        keys[child] = key;
        i = child;
    }
}

uint32_t usage_top(const struct usage *u, uint32_t *keys, uint32_t n)
{
    uint32_t n_kept = 0;
    for (uint32_t key = 0; key < n_counts(u); key++) {
        if (u->counts[key] == 0) continue;
        if (n_kept < n) {
            keys[n_kept++] = key;
            for (uint32_t i = n_kept / 2; n_kept == n && i-- > 0;) sink(u, keys, n, i);
        } else if (n > 0 && u->counts[key] > u->counts[keys[0]]) {
            keys[0] = key;
            sink(u, keys, n, 0);
        }
    }
    for (uint32_t i = n_kept / 2; n_kept < n && i-- > 0;) sink(u, keys, n_kept, i);
    for (uint32_t left = n_kept; left > 1;) { /* the least goes to the end, again and again */
        uint32_t least = keys[0];
        keys[0] = keys[--left];
        keys[left] = least;
        sink(u, keys, left, 0);
    }
    return n_kept;
}
