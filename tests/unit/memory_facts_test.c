/* Machines made of a few small files: bare, containers of both versions, and broken ones. */
#include "plat/memory_facts.h"
#include "support/check.h"
#include "support/mem_files.h"

#define GIB (UINT64_C(1) << 30)
#define MEMINFO \
    "MemTotal:       33554432 kB\nMemFree:         1000000 kB\nMemAvailable:   25165824 kB\nSwapTotal: 99999999 kB\n"
#define UNLIMITED                                                                 \
    "Limit                     Soft Limit           Hard Limit           Units\n" \
    "Max data size             unlimited            unlimited            bytes\n" \
    "Max address space         unlimited            unlimited            bytes\n"

struct page {
    const char *path, *text;
};

static void look(struct memory_facts *facts, const struct page *pages)
{
    static struct mem_files files;
    struct alloc alloc = {0};
    files = (struct mem_files){0};
    for (; pages->path; pages++)
        mem_files_add(&files, pages->path, (void *)(uintptr_t)pages->text, strlen(pages->text));
    memory_facts_read(facts, &alloc, mem_files_system(&files), "/r");
    assert_int_equal(alloc.live, 0);
    assert_int_equal(files.n_open, 0);
}

static void check_least(const struct memory_facts *facts, uint64_t bytes, const char *source)
{
    const struct memory_fact *least = memory_facts_least(facts);
    assert_non_null(least);
    printf("%.2f GiB: %s\n", (double)least->bytes / (double)GIB, least->source);
    assert_int_equal(least->bytes, bytes);
    assert_non_null(strstr(least->source, source));
}

static void a_bare_machine(void **state)
{
    (void)state;
    struct memory_facts facts;
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO}, {"/r/proc/self/limits", UNLIMITED}, {0}});
    assert_int_equal(facts.physical.state, FACT_KNOWN);
    assert_int_equal(facts.physical.bytes, 32 * GIB);
    assert_int_equal(facts.cgroup.state, FACT_NO_LIMIT);
    assert_int_equal(facts.address_space.state, FACT_NO_LIMIT);
    check_least(&facts, 24 * GIB, "MemAvailable");
}

static void version_2_is_walked_up(void **state)
{
    (void)state;
    struct memory_facts facts;
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO},
                                 {"/r/proc/self/limits", UNLIMITED},
                                 {"/r/proc/self/cgroup", "0::/user.slice/app.scope\n"},
                                 {"/r/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n"},
                                 {"/r/sys/fs/cgroup/user.slice/app.scope/memory.high", "max\n"},
                                 {"/r/sys/fs/cgroup/user.slice/memory.max", "10737418240\n"},
                                 {"/r/sys/fs/cgroup/user.slice/memory.high", "8589934592\n"},
                                 {0}});
    assert_int_equal(facts.cgroup.state, FACT_KNOWN);
    check_least(&facts, 8 * GIB, "user.slice/memory.high");
}

static void what_others_use_in_the_group_counts_but_page_cache_does_not(void **state)
{
    (void)state;
    struct memory_facts facts;
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO},
                                 {"/r/proc/self/limits", UNLIMITED},
                                 {"/r/proc/self/cgroup", "0::/a\n"},
                                 {"/r/sys/fs/cgroup/a/memory.max", "8589934592\n"},
                                 {"/r/sys/fs/cgroup/a/memory.current", "6442450944\n"},
                                 {"/r/sys/fs/cgroup/a/memory.stat",
                                  "anon 1\nfile 4294967296\ninactive_file 3221225472\nactive_file 1073741824\n"},
                                 {0}});
    assert_int_equal(facts.cgroup.bytes, 8 * GIB);
    check_least(&facts, 6 * GIB, "/a/memory.max");
}

static void version_1_and_its_sentinel(void **state)
{
    (void)state;
    struct memory_facts facts;
    const char *groups = "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n";
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO},
                                 {"/r/proc/self/limits", UNLIMITED},
                                 {"/r/proc/self/cgroup", groups},
                                 {"/r/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n"},
                                 {0}});
    assert_int_equal(facts.cgroup.state, FACT_NO_LIMIT);
    check_least(&facts, 24 * GIB, "MemAvailable");

    /* A container that sees its own group as the root of the mount. */
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO},
                                 {"/r/proc/self/limits", UNLIMITED},
                                 {"/r/proc/self/cgroup", groups},
                                 {"/r/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"},
                                 {"/r/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"},
                                 {"/r/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 536870912\n"},
                                 {0}});
    assert_int_equal(facts.cgroup.bytes, 2 * GIB);
    check_least(&facts, 2 * GIB - GIB / 2, "memory/memory.limit_in_bytes");
}

static void resource_limits_count(void **state)
{
    (void)state;
    struct memory_facts facts;
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO},
                                 {"/r/proc/self/limits",
                                  "Max data size             unlimited            unlimited            bytes\n"
                                  "Max address space         4294967296           unlimited            bytes\n"},
                                 {"/r/proc/self/statm", "262144 100 50 10 0 200 0\n"},
                                 {0}});
    assert_int_equal(facts.data.state, FACT_NO_LIMIT);
    check_least(&facts, 3 * GIB, "ulimit -v");
    look(&facts, (struct page[]){{"/r/proc/meminfo", MEMINFO},
                                 {"/r/proc/self/limits", "Max data size   1073741824  1073741824  bytes\n"},
                                 {0}});
    check_least(&facts, GIB, "ulimit -d");
}

static void unknown_is_not_zero(void **state)
{
    (void)state;
    static const char *const broken[] = {"",
                                         "MemTotal:\n",
                                         "MemTotal: lots kB\nMemAvailable: -5 kB\n",
                                         "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
                                         "MemTotal: 99999999999999999999999 kB\n",
                                         "MemTotal: 18446744073709551615 kB\n"};
    struct memory_facts facts;
    look(&facts, (struct page[]){{0}});
    assert_int_equal(facts.physical.state, FACT_UNKNOWN);
    assert_non_null(strstr(facts.physical.source, "cannot be read"));
    assert_null(memory_facts_least(&facts));
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        look(&facts, (struct page[]){{"/r/proc/meminfo", broken[i]}, {0}});
        assert_int_equal(facts.physical.state, FACT_UNKNOWN);
        assert_int_equal(facts.free_now.state, FACT_UNKNOWN);
        assert_null(memory_facts_least(&facts));
    }
    /* A limit that is there but not understood is unknown, and a known one further up still counts. */
    look(&facts, (struct page[]){{"/r/proc/self/cgroup", "0::/a/b\nnonsense\n"},
                                 {"/r/sys/fs/cgroup/a/b/memory.max", "lots\n"},
                                 {0}});
    assert_int_equal(facts.cgroup.state, FACT_UNKNOWN);
    assert_non_null(strstr(facts.cgroup.source, "/a/b/memory.max"));
    look(&facts, (struct page[]){{"/r/proc/self/cgroup", "0::/a/b\n"},
                                 {"/r/sys/fs/cgroup/a/b/memory.max", "lots\n"},
                                 {"/r/sys/fs/cgroup/a/memory.max", "4096000\n"},
                                 {0}});
    assert_int_equal(facts.cgroup.bytes, 4096000);
}

static void this_machine(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct memory_facts facts;
    memory_facts_read(&facts, &alloc, file_system_real(), "");
    const struct memory_fact *least = memory_facts_least(&facts);
    if (!least) return;
    printf("here: %.2f GiB, %s\n", (double)least->bytes / (double)GIB, least->source);
    assert_true(least->bytes > 64 << 20);
    struct memory_fact now = memory_resident_now(&alloc, file_system_real(), "");
    assert_int_equal(now.state, FACT_KNOWN);
    assert_true(now.bytes > 100000);
    assert_int_equal(alloc.live, 0);
}

static void a_failed_allocation_makes_facts_unknown(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct memory_facts facts;
        memory_facts_read(&facts, &alloc, file_system_real(), "");
        assert_int_equal(alloc.live, 0);
        if (alloc.calls < k) break;
        if (k <= 2) assert_int_equal(facts.physical.state, FACT_UNKNOWN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bare_machine),
        cmocka_unit_test(version_2_is_walked_up),
        cmocka_unit_test(what_others_use_in_the_group_counts_but_page_cache_does_not),
        cmocka_unit_test(version_1_and_its_sentinel),
        cmocka_unit_test(resource_limits_count),
        cmocka_unit_test(unknown_is_not_zero),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(a_failed_allocation_makes_facts_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
