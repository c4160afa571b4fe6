#include "cli/doctor.h"

#include "base/units.h"
#include "kern/kern.h"
#include "plat/cpu.h"
#include "plat/reader.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 14, PATH_BYTES_MAX = 1024, IO_THREADS = 2, FILES_USUAL = 512 };

/* A small file of /proc or /sys, which do not know their size, into text[TEXT_BYTES_MAX]; "" when it cannot be read. */
static void read_text(char *text, struct alloc *alloc, struct file_system fs, const char *root, const char *path)
{
    char full[PATH_BYTES_MAX];
    struct file file;
    size_t used = 0;
    text[0] = 0;
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return;
    if (!file_open(&file, alloc, fs, full, NULL)) return;
    while (used < TEXT_BYTES_MAX - 1) {
        ssize_t got = fs.ops->pread(fs.context, file.descriptor, text + used, TEXT_BYTES_MAX - 1 - used, (off_t)used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    text[used] = 0;
    file_close(&file);
}

/* The number behind a key at the beginning of a line. */
static struct memory_fact number_behind(const char *text, const char *key, uint64_t unit)
{
    struct memory_fact fact = {.state = FACT_UNKNOWN};
    const char *line = strstr(text, key);
    if (!line) return fact;
    line += strlen(key);
    line += strspn(line, " ");
    if (strncmp(line, "unlimited", 9) == 0) fact.state = FACT_NO_LIMIT;
    if (*line < '0' || *line > '9') return fact;
    fact.state = FACT_KNOWN;
    fact.bytes = strtoull(line, NULL, 10) * unit;
    return fact;
}

/* "always [madvise] never": the word in brackets. */
static void take_choice(char *out, size_t room, const char *text)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    out[0] = 0;
    if (close) snprintf(out, room, "%.*s", (int)(close - open - 1), open + 1);
}

static bool look_at_device(struct machine_facts *facts, struct alloc *alloc, struct err *err)
{
    const struct reader_settings settings = {.depth = 1, .requests_max = 1, .files_max = 1};
    struct reader *reader;
    if (!reader_new_real(&reader, alloc, &settings, IO_THREADS, err)) return false;
    snprintf(facts->device, sizeof facts->device, "%s", reader_device(reader));
    snprintf(facts->why_not_uring, sizeof facts->why_not_uring, "%s", reader_why_not_uring(reader));
    reader_free(reader);
    return true;
}

bool machine_look(struct machine_facts *facts, struct alloc *alloc, struct file_system fs, const char *root,
                  struct err *err)
{
    char text[TEXT_BYTES_MAX];
    *facts = (struct machine_facts){.cpu_mask = cpu_mask(), .n_threads = cpu_threads_usable()};
    memory_facts_read(&facts->memory, alloc, fs, root);
    read_text(text, alloc, fs, root, "/proc/meminfo");
    facts->swap = number_behind(text, "SwapTotal:", 1024);
    facts->swap_free = number_behind(text, "SwapFree:", 1024);
    if (facts->swap.state == FACT_KNOWN && facts->swap.bytes == 0) facts->swap.state = FACT_NO_LIMIT;
    read_text(text, alloc, fs, root, "/proc/self/limits");
    facts->lock_limit = number_behind(text, "Max locked memory", 1);
    facts->files_limit = number_behind(text, "Max open files", 1);
    read_text(text, alloc, fs, root, "/sys/kernel/mm/transparent_hugepage/enabled");
    take_choice(facts->huge_pages, sizeof facts->huge_pages, text);
    read_text(text, alloc, fs, root, "/proc/sys/vm/overcommit_memory");
    facts->is_commit_strict = text[0] == '2';
    return look_at_device(facts, alloc, err);
}

static void judge_processor(const struct machine_facts *facts, struct findings *findings)
{
    const char *kernels = facts->cpu_mask & CPU_AVX512 ? "AVX-512" : facts->cpu_mask & CPU_AVX2 ? "AVX2" : NULL;
    if (kernels) {
        findings_add(findings, SEVERITY_OK, "processor", "its %s kernels are used", kernels);
    } else {
        struct finding *f =
            findings_add(findings, SEVERITY_WARNING, "processor",
                         "no kernels for its instruction sets: portable code computes, many times slower");
        finding_advise(f, "use a processor with AVX2; in a virtual machine, pass the host's processor through; do not "
                          "rule it out with --cpu-mask");
    }
    struct finding *f =
        findings_add(findings, facts->n_threads > 1 ? SEVERITY_OK : SEVERITY_WARNING, "threads",
                     "%u physical core%s may be used", facts->n_threads, facts->n_threads == 1 ? "" : "s");
    if (facts->n_threads == 1)
        finding_advise(f, "give the process more cores: affinity (taskset) and cgroup quota count");
}

static void add_limit(struct findings *findings, const char *what, const struct memory_fact *fact)
{
    char bytes[UNITS_TEXT_MAX];
    if (fact->state == FACT_KNOWN)
        findings_add(findings, SEVERITY_NOTE, "memory", "%s: %s (%s)", what, units_format_bytes(bytes, fact->bytes),
                     fact->source);
    else if (fact->state == FACT_UNKNOWN)
        findings_add(findings, SEVERITY_NOTE, "memory", "%s: unknown (%s)", what, fact->source);
}

static void judge_memory(const struct machine_facts *facts, struct findings *findings)
{
    char bytes[UNITS_TEXT_MAX], free_bytes[UNITS_TEXT_MAX];
    const struct memory_fact *least = memory_facts_least(&facts->memory);
    if (least) {
        findings_add(findings, SEVERITY_OK, "memory", "%s may be counted on (%s)",
                     units_format_bytes(bytes, least->bytes), least->source);
    } else {
        struct finding *f = findings_add(findings, SEVERITY_WARNING, "memory", "how much there is cannot be found out");
        finding_advise(f, "state it with --ram-budget");
    }
    add_limit(findings, "control group", &facts->memory.cgroup);
    add_limit(findings, "address space", &facts->memory.address_space);
    add_limit(findings, "data", &facts->memory.data);
    if (facts->is_commit_strict) {
        struct finding *f =
            findings_add(findings, SEVERITY_WARNING, "memory",
                         "vm.overcommit_memory is 2: address space counts like memory, and is refused early");
        finding_advise(f, "sysctl vm.overcommit_memory=0, or a smaller --ram-budget");
    }
    if (facts->swap.state == FACT_KNOWN && facts->swap_free.state == FACT_KNOWN) {
        uint64_t used = facts->swap.bytes > facts->swap_free.bytes ? facts->swap.bytes - facts->swap_free.bytes : 0;
        bool is_busy = used > facts->memory.physical.bytes / 10;
        struct finding *f = findings_add(
            findings, is_busy ? SEVERITY_WARNING : SEVERITY_OK, "swap", "%s, %s in use; it is not counted on",
            units_format_bytes(bytes, facts->swap.bytes), units_format_bytes(free_bytes, used));
        if (is_busy)
            finding_advise(f, "other programs need more memory than there is: end some before the model starts");
    } else {
        findings_add(findings, SEVERITY_OK, "swap",
                     facts->swap.state == FACT_NO_LIMIT ? "none, and none is needed" : "unknown");
    }
}

static void judge_pages(const struct machine_facts *facts, struct findings *findings)
{
    bool is_off = strcmp(facts->huge_pages, "never") == 0;
    struct finding *f = findings_add(findings,
                                     is_off               ? SEVERITY_WARNING
                                     : *facts->huge_pages ? SEVERITY_OK
                                                          : SEVERITY_NOTE,
                                     "huge pages", "transparent huge pages: %s",
                                     *facts->huge_pages ? facts->huge_pages : "unknown here");
    if (is_off) finding_advise(f, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)");
}

static void judge_limits(const struct machine_facts *facts, struct findings *findings)
{
    char bytes[UNITS_TEXT_MAX];
    const struct memory_fact *files = &facts->files_limit, *locked = &facts->lock_limit;
    if (files->state == FACT_KNOWN && files->bytes < FILES_USUAL) {
        struct finding *f =
            findings_add(findings, SEVERITY_WARNING, "open files",
                         "at most %" PRIu64 "; a large container has over a hundred files, each of which "
                         "may be open twice",
                         files->bytes);
        finding_advise(f, "ulimit -n 4096 (in a unit file: LimitNOFILE=4096)");
    } else if (files->state == FACT_KNOWN) {
        findings_add(findings, SEVERITY_OK, "open files", "at most %" PRIu64, files->bytes);
    } else {
        findings_add(findings, SEVERITY_OK, "open files", files->state == FACT_NO_LIMIT ? "no limit" : "limit unknown");
    }
    findings_add(findings, SEVERITY_OK, "locked memory", "at most %s; weir locks none",
                 locked->state == FACT_KNOWN      ? units_format_bytes(bytes, locked->bytes)
                 : locked->state == FACT_NO_LIMIT ? "as much as there is"
                                                  : "an unknown amount");
}

static void judge_device(const struct machine_facts *facts, struct findings *findings)
{
    if (!*facts->why_not_uring) {
        findings_add(findings, SEVERITY_OK, "reads", "through %s", facts->device);
        return;
    }
    struct finding *f = findings_add(findings, SEVERITY_NOTE, "reads", "through %s; io_uring is not to be had: %s",
                                     facts->device, facts->why_not_uring);
    finding_advise(
        f, "sysctl kernel.io_uring_disabled=0; in a container, allow the io_uring calls in its seccomp profile; "
           "threads read nearly as fast, with more work for the processor");
}

void machine_judge(const struct machine_facts *facts, struct findings *findings)
{
    judge_processor(facts, findings);
    judge_memory(facts, findings);
    judge_pages(facts, findings);
    judge_limits(facts, findings);
    judge_device(facts, findings);
}
