#include "plat/cpu.h"

#include "base/assert.h"
#include "base/checked.h"
#include "base/err.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* Bits in the order of kern/kern.h. */
enum feature { AVX2, AVX512, AVX512_VNNI, AVX_VNNI, AMX_INT8, NEON, NEON_DOTPROD, NEON_I8MM, FEATURES };

const char *cpu_feature_name(unsigned bit)
{
    static const char *const names[FEATURES] = {
        "avx2", "avx512", "avx512-vnni", "avx-vnni", "amx-int8", "neon", "neon-dotprod", "neon-i8mm",
    };
    return bit < FEATURES ? names[bit] : NULL;
}

#if defined(__x86_64__)

static bool has(uint32_t word, unsigned bit)
{
    return word >> bit & 1;
}

/* The register states that the operating system saves: bits of XCR0. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t cpu_mask(void)
{
    enum { YMM_STATES = 0x6, ZMM_STATES = 0xe6, TILE_STATES = 0x60000 };
    uint32_t a1, b1, c1, d1, a7 = 0, b7 = 0, c7 = 0, d7 = 0, sub_a = 0, sub_b = 0, sub_c = 0, sub_d = 0;
    if (!__get_cpuid(1, &a1, &b1, &c1, &d1)) return 0;
    if (!has(c1, 27)) return 0; /* OSXSAVE: without it xgetbv faults, and no wide register may be used */
    if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return 0;
    if (a7 >= 1) __get_cpuid_count(7, 1, &sub_a, &sub_b, &sub_c, &sub_d);
    uint64_t states = saved_states();

    bool ymm = (states & YMM_STATES) == YMM_STATES;
    bool zmm = (states & ZMM_STATES) == ZMM_STATES;
    bool tiles = (states & TILE_STATES) == TILE_STATES; /* a thread must still ask the kernel before its first use */
    bool avx2 = ymm && has(b7, 5) && has(c1, 12) && has(c1, 29);
    bool avx512 = avx2 && zmm && has(b7, 16) && has(b7, 17) && has(b7, 30) && has(b7, 31);
    return (uint32_t)avx2 << AVX2 | (uint32_t)avx512 << AVX512 | (uint32_t)(avx512 && has(c7, 11)) << AVX512_VNNI |
           (uint32_t)(avx2 && has(sub_a, 4)) << AVX_VNNI | (uint32_t)(tiles && has(d7, 24) && has(d7, 25)) << AMX_INT8;
}

#elif defined(__aarch64__)

uint32_t cpu_mask(void)
{
    /* Bits of the auxiliary vector, fixed by the kernel's interface: ASIMD and ASIMDDP in the first word, I8MM in the
     * second. */
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    return (uint32_t)(first >> 1 & 1) << NEON | (uint32_t)(first >> 20 & 1) << NEON_DOTPROD |
           (uint32_t)(second >> 13 & 1) << NEON_I8MM;
}

#else

uint32_t cpu_mask(void)
{
    return 0;
}

#endif

/* Files of /proc and /sys tell no size, so plat/file.h cannot read them. True when something was read; `text` is cut at
 * its size and always ends with a NUL. */
static bool read_text(char *text, size_t size, const char *path_format, ...) PRINTF_LIKE(3, 4);
static bool read_text(char *text, size_t size, const char *path_format, ...)
{
    char path[4096];
    va_list arguments;
    va_start(arguments, path_format);
    int length = vsnprintf(path, sizeof path, path_format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    if (descriptor < 0) return false;
    while (used + 1 < size) {
        ssize_t got = read(descriptor, text + used, size - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(descriptor);
    text[used] = '\0';
    return used > 0;
}

static bool contains(const struct cpu_set *set, size_t cpu)
{
    return cpu < CPU_SET_WORDS * 64 && (set->words[cpu / 64] >> (cpu % 64) & 1);
}

/* Whether `list` ("0,64" or "0-1") names a processor below `cpu` that is allowed too: then that one stands for the
 * core. A list that makes no sense names none. */
static bool has_earlier_sibling(const char *list, size_t cpu, const struct cpu_set *allowed)
{
    const char *at = list;
    while (*at >= '0' && *at <= '9') {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < cpu; i++)
            if (contains(allowed, i)) return true;
        if (*end != ',') return false;
        at = end + 1;
    }
    return false;
}

static unsigned count_cores(const char *root, const struct cpu_set *allowed)
{
    unsigned cores = 0;
    for (size_t cpu = 0; cpu < CPU_SET_WORDS * 64; cpu++) {
        if (!contains(allowed, cpu)) continue;
        char list[1024];
        bool told =
            read_text(list, sizeof list, "%s/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", root, cpu);
        if (told && has_earlier_sibling(list, cpu, allowed)) continue;
        cores++;
    }
    return cores;
}

/* Processors' worth of time, rounded up, or UINT32_MAX for "no limit", from "max 100000", "150000 100000" and the like.
 */
static unsigned quota_of(const char *quota, const char *period)
{
    char *end;
    long long time = strtoll(quota, &end, 10);
    if (end == quota || time <= 0) return UINT32_MAX; /* "max", or -1 in version 1 */
    long long length = strtoll(period, NULL, 10);
    if (length <= 0) return UINT32_MAX;
    uint64_t whole = div_up((uint64_t)time, (uint64_t)length);
    return whole < UINT32_MAX ? (unsigned)whole : UINT32_MAX;
}

static unsigned quota_v2(const char *folder)
{
    char text[128];
    if (!read_text(text, sizeof text, "%s/cpu.max", folder)) return UINT32_MAX;
    const char *space = strchr(text, ' ');
    return space ? quota_of(text, space + 1) : UINT32_MAX;
}

static unsigned quota_v1(const char *folder)
{
    char quota[64], period[64];
    if (!read_text(quota, sizeof quota, "%s/cpu.cfs_quota_us", folder)) return UINT32_MAX;
    if (!read_text(period, sizeof period, "%s/cpu.cfs_period_us", folder)) return UINT32_MAX;
    return quota_of(quota, period);
}

/* The smallest quota from `group` up to the top of the hierarchy mounted at `mount`. A limit of any ancestor binds; and
 * in a container the path often names a folder that is not visible, so missing ones are passed over. */
static unsigned quota_up(const char *mount, const char *group, unsigned quota_in(const char *folder))
{
    char folder[4096];
    unsigned least = UINT32_MAX;
    int length = snprintf(folder, sizeof folder, "%s%s", mount, strcmp(group, "/") == 0 ? "" : group);
    if (length < 0 || (size_t)length >= sizeof folder) return UINT32_MAX;
    while (true) {
        unsigned quota = quota_in(folder);
        if (quota < least) least = quota;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(mount)) return least;
        *slash = '\0';
    }
}

/* Whether the comma-separated `list` has `name` in it. */
static bool lists(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
    }
    return false;
}

static unsigned cgroup_quota(const char *root)
{
    char mount[2048], text[8192];
    unsigned least = UINT32_MAX;
    if (!read_text(text, sizeof text, "%s/proc/self/cgroup", root)) return least;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        /* hierarchy:controllers:path, where version 2 is hierarchy 0 without controllers */
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        controllers++;
        unsigned quota = UINT32_MAX;
        if (*controllers == '\0') {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            quota = quota_up(mount, group, quota_v2);
        } else if (lists(controllers, "cpu")) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
            quota = quota_up(mount, group, quota_v1);
        }
        if (quota < least) least = quota;
    }
    return least;
}

unsigned cpu_threads_in(const char *root, const struct cpu_set *allowed)
{
    unsigned cores = count_cores(root, allowed);
    unsigned quota = cgroup_quota(root);
    unsigned usable = quota < cores ? quota : cores;
    return usable > 0 ? usable : 1;
}

unsigned cpu_threads_usable(void)
{
    struct cpu_set allowed = {0};
    static_assert(sizeof allowed >= sizeof(cpu_set_t), "as many processors as the C library knows");
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)allowed.words) != 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        for (long i = 0; i < online && i < CPU_SET_WORDS * 64; i++) allowed.words[i / 64] |= UINT64_C(1) << (i % 64);
    }
    return cpu_threads_in("", &allowed);
}
