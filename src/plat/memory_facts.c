#include "plat/memory_facts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 16, PATH_MAX_HERE = 1024, STATM_MAX = 200 };
#define STATM "/proc/self/statm"
#define SENTINEL (UINT64_C(1) << 60) /* version 1 says "no limit" with a number just below 2^63 */

struct look {
    struct alloc *alloc;
    struct file_system fs;
    const char *root;
};

/* A whole small file as text, or NULL. Files of /proc do not know their size, so this reads until the end. */
static char *read_text(const struct look *look, const char *path)
{
    char full[PATH_MAX_HERE];
    struct file file;
    size_t used = 0;
    if (snprintf(full, sizeof full, "%s%s", look->root, path) >= (int)sizeof full) return NULL;
    if (!file_open(&file, look->alloc, look->fs, full, NULL)) return NULL;
    char *text = alloc_get(look->alloc, TEXT_MAX + 1, NULL);
    while (text && used < TEXT_MAX) {
        ssize_t got = look->fs.ops->pread(look->fs.context, file.descriptor, text + used, TEXT_MAX - used, (off_t)used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    file_close(&file);
    return text;
}

/* Digits at the beginning of text, after blanks. */
static bool parse_number(const char *text, uint64_t *number)
{
    uint64_t n = 0;
    text += strspn(text, " \t");
    if (*text < '0' || *text > '9') return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n)) return false;
    }
    *number = n;
    return true;
}

/* The number behind a key at the beginning of a line. */
static bool find_number(const char *text, const char *key, uint64_t *number)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, key, n) == 0) return parse_number(line + n, number);
    return false;
}

static struct memory_fact known(uint64_t bytes, const char *source)
{
    struct memory_fact fact = {.state = FACT_KNOWN, .bytes = bytes};
    snprintf(fact.source, sizeof fact.source, "%.199s", source);
    return fact;
}

static struct memory_fact not_known(enum fact_state state, const char *source)
{
    struct memory_fact fact = {.state = state};
    snprintf(fact.source, sizeof fact.source, "%.199s", source);
    return fact;
}

static struct memory_fact meminfo_line(const char *text, const char *key, const char *source)
{
    uint64_t kib;
    if (!text) return not_known(FACT_UNKNOWN, "/proc/meminfo cannot be read");
    if (!find_number(text, key, &kib) || kib == 0 || kib > UINT64_MAX / 1024)
        return not_known(FACT_UNKNOWN, "/proc/meminfo is not understood");
    return known(kib * 1024, source);
}

static void read_meminfo(struct memory_facts *facts, const struct look *look)
{
    char *text = read_text(look, "/proc/meminfo");
    facts->physical = meminfo_line(text, "MemTotal:", "MemTotal of /proc/meminfo");
    facts->free_now = meminfo_line(text, "MemAvailable:", "MemAvailable of /proc/meminfo");
    alloc_put(look->alloc, text);
}

/* Keeps the tighter of two facts. What is known beats what is not; a limit that is not understood stays visible. */
static void tighten(struct memory_fact *fact, const struct memory_fact *other)
{
    if (other->state == FACT_NO_LIMIT) return;
    if (fact->state == FACT_KNOWN && (other->state == FACT_UNKNOWN || other->bytes >= fact->bytes)) return;
    *fact = *other;
}

/* One file with one limit: a number, "max", or version 1's sentinel. Missing says nothing. */
static struct memory_fact limit_file(const struct look *look, const char *folder, const char *name)
{
    char path[PATH_MAX_HERE];
    struct memory_fact fact;
    uint64_t bytes;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return not_known(FACT_UNKNOWN, "the path of a control group is too long");
    char *text = read_text(look, path);
    if (!text)
        fact = not_known(FACT_NO_LIMIT, "");
    else if (strncmp(text, "max", 3) == 0)
        fact = not_known(FACT_NO_LIMIT, path);
    else if (!parse_number(text, &bytes))
        fact = not_known(FACT_UNKNOWN, path);
    else if (bytes >= SENTINEL)
        fact = not_known(FACT_NO_LIMIT, path);
    else
        fact = known(bytes, path);
    alloc_put(look->alloc, text);
    return fact;
}

struct cgroup_names {
    const char *limit, *high, *usage, *cache_active, *cache_inactive;
};
static const struct cgroup_names version_1 = {"memory.limit_in_bytes", NULL, "memory.usage_in_bytes",
                                              "total_active_file ", "total_inactive_file "};
static const struct cgroup_names version_2 = {"memory.max", "memory.high", "memory.current", "active_file ",
                                              "inactive_file "};

/* What a group with this limit has left: usage counts, but page cache of files can go. */
static struct memory_fact left_of(const struct look *look, const char *folder, const struct cgroup_names *names,
                                  const struct memory_fact *limit)
{
    char path[PATH_MAX_HERE];
    struct memory_fact usage = limit_file(look, folder, names->usage);
    uint64_t active = 0, inactive = 0;
    if (usage.state != FACT_KNOWN) return not_known(FACT_NO_LIMIT, "");
    snprintf(path, sizeof path, "%.900s/memory.stat", folder);
    char *stat = read_text(look, path);
    if (stat) {
        (void)find_number(stat, names->cache_active, &active);
        (void)find_number(stat, names->cache_inactive, &inactive);
    }
    alloc_put(look->alloc, stat);
    uint64_t used = usage.bytes > active + inactive ? usage.bytes - active - inactive : 0;
    return known(limit->bytes > used ? limit->bytes - used : 0, limit->source);
}

static void read_group(struct memory_facts *facts, const struct look *look, const char *folder,
                       const struct cgroup_names *names)
{
    struct memory_fact limit = limit_file(look, folder, names->limit);
    if (names->high) {
        struct memory_fact high = limit_file(look, folder, names->high);
        tighten(&limit, &high);
    }
    tighten(&facts->cgroup, &limit);
    if (limit.state != FACT_KNOWN) return;
    struct memory_fact left = left_of(look, folder, names, &limit);
    tighten(&facts->cgroup_free, &left);
}

/* From the process's own group up to the mount. A group that is not to be seen from here (a container sees its own as
 * the root) is passed over, and its visible parents count. */
static void walk_up(struct memory_facts *facts, const struct look *look, const char *mount, const char *group,
                    const struct cgroup_names *names)
{
    char folder[PATH_MAX_HERE];
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) return;
    size_t floor = strlen(mount), n = strlen(folder);
    for (;;) {
        while (n > floor && folder[n - 1] == '/') folder[--n] = 0;
        read_group(facts, look, folder, names);
        if (n <= floor) break;
        while (n > floor && folder[n - 1] != '/') folder[--n] = 0;
    }
}

static bool has_controller(const char *list, size_t n, const char *name)
{
    size_t want = strlen(name);
    for (size_t i = 0; i + want <= n; i++) {
        bool starts = i == 0 || list[i - 1] == ',', ends = i + want == n || list[i + want] == ',';
        if (starts && ends && strncmp(list + i, name, want) == 0) return true;
    }
    return false;
}

/* Lines of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; version 2 is ID 0 without controllers. */
static void read_cgroups(struct memory_facts *facts, const struct look *look)
{
    char *text = read_text(look, "/proc/self/cgroup"), *next;
    facts->cgroup = not_known(FACT_NO_LIMIT, "no control group limits memory");
    facts->cgroup_free = facts->cgroup;
    for (char *line = text; line && *line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end) *end = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        size_t n = (size_t)(path++ - ++controllers);
        if (n == 0) {
            walk_up(facts, look, "/sys/fs/cgroup", path, &version_2);
            walk_up(facts, look, "/sys/fs/cgroup/unified", path, &version_2);
        } else if (has_controller(controllers, n, "memory")) {
            walk_up(facts, look, "/sys/fs/cgroup/memory", path, &version_1);
        }
    }
    alloc_put(look->alloc, text);
}

static struct memory_fact limit_line(const char *text, const char *key, uint64_t used, const char *source)
{
    uint64_t bytes;
    const char *line = text ? strstr(text, key) : NULL;
    if (!line) return not_known(FACT_UNKNOWN, "/proc/self/limits cannot be read");
    line += strlen(key);
    line += strspn(line, " ");
    if (strncmp(line, "unlimited", 9) == 0) return not_known(FACT_NO_LIMIT, source);
    if (!parse_number(line, &bytes)) return not_known(FACT_UNKNOWN, "/proc/self/limits is not understood");
    return known(bytes > used ? bytes - used : 0, source);
}

/* Fields of /proc/self/statm, in pages: size, resident, shared, text, lib, data. Zero where it cannot be read. */
static void read_statm(const struct look *look, uint64_t fields[6])
{
    char *text = read_text(look, STATM);
    const char *at = text;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < 6; i++) {
        fields[i] = 0;
        if (!at || !parse_number(at, &fields[i]) || fields[i] > UINT64_MAX / page_bytes) fields[i] = 0;
        fields[i] *= page_bytes;
        if (at) at = strchr(at, ' ');
        if (at) at++;
    }
    alloc_put(look->alloc, text);
}

static void read_limits(struct memory_facts *facts, const struct look *look)
{
    uint64_t statm[6];
    read_statm(look, statm);
    char *text = read_text(look, "/proc/self/limits");
    facts->address_space =
        limit_line(text, "Max address space", statm[0], "RLIMIT_AS (ulimit -v), less what is mapped");
    facts->data = limit_line(text, "Max data size", statm[5], "RLIMIT_DATA (ulimit -d), less what is used");
    alloc_put(look->alloc, text);
}

void memory_facts_read(struct memory_facts *facts, struct alloc *alloc, struct file_system fs, const char *root)
{
    struct look look = {alloc, fs, root};
    *facts = (struct memory_facts){0};
    read_meminfo(facts, &look);
    read_cgroups(facts, &look);
    read_limits(facts, &look);
}

const struct memory_fact *memory_facts_least(const struct memory_facts *facts)
{
    const struct memory_fact *all[] = {&facts->physical,    &facts->free_now,      &facts->cgroup,
                                       &facts->cgroup_free, &facts->address_space, &facts->data};
    const struct memory_fact *least = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->state == FACT_KNOWN && (!least || all[i]->bytes < least->bytes)) least = all[i];
    return least;
}

struct memory_fact memory_resident_from(const struct file *statm)
{
    char text[STATM_MAX + 1] = "";
    uint64_t pages, page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    ssize_t got = statm->path ? statm->fs.ops->pread(statm->fs.context, statm->descriptor, text, STATM_MAX, 0) : -1;
    const char *second = got > 0 ? strchr(text, ' ') : NULL;
    if (!second || !parse_number(second, &pages) || pages == 0 || pages > UINT64_MAX / page_bytes)
        return not_known(FACT_UNKNOWN, STATM " cannot be read");
    return known(pages * page_bytes, STATM);
}

struct memory_fact memory_resident_now(struct alloc *alloc, struct file_system fs, const char *root)
{
    char path[PATH_MAX_HERE];
    struct file statm = {0};
    if (snprintf(path, sizeof path, "%s" STATM, root) < (int)sizeof path && !file_open(&statm, alloc, fs, path, NULL))
        statm = (struct file){0};
    struct memory_fact held = memory_resident_from(&statm);
    file_close(&statm);
    return held;
}
