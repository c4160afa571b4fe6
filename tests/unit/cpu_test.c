#include "kern/kern.h"
#include "plat/cpu.h"
#include "support/temp_folder.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* A machine made of files. */
struct machine {
    struct temp_folder root;
    struct cpu_set allowed;
};

static void put(const struct machine *machine, const char *path, const char *text)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s%s", machine->root.path, path);
    for (char *at = whole + strlen(machine->root.path) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        if (mkdir(whole, 0700) != 0) assert_int_equal(errno, EEXIST);
        *at = '/';
    }
    put_file(whole, text, strlen(text));
}

static void machine_init(struct machine *machine)
{
    *machine = (struct machine){0};
    temp_folder_make(&machine->root);
}

static void machine_fini(struct machine *machine)
{
    temp_folder_remove(&machine->root);
}

static void allow(struct machine *machine, size_t first, size_t last)
{
    for (size_t cpu = first; cpu <= last; cpu++) machine->allowed.words[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

static void siblings(const struct machine *machine, size_t cpu, const char *list)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
    put(machine, path, list);
}

static unsigned count(const struct machine *machine)
{
    return cpu_threads_in(machine->root.path, &machine->allowed);
}

static void without_facts_every_processor_counts(void **state)
{
    (void)state;
    struct machine machine;
    machine_init(&machine);
    assert_int_equal(count(&machine), 1); /* nothing allowed: still one */
    allow(&machine, 3, 7);
    assert_int_equal(count(&machine), 5);
    machine_fini(&machine);
}

static void siblings_count_once(void **state)
{
    (void)state;
    struct machine machine;
    machine_init(&machine);
    /* Four cores of two threads, numbered apart; then two cores numbered in pairs; then two small cores alone. */
    static const char *const lists[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n",   "0,4\n",   "1,5\n", "2,6\n",
                                        "3,7\n", "8-9\n", "8-9\n", "10-11\n", "10-11\n", "12\n",  "13\n"};
    for (size_t cpu = 0; cpu < 14; cpu++) siblings(&machine, cpu, lists[cpu]);
    allow(&machine, 0, 13);
    assert_int_equal(count(&machine), 8);
    machine.allowed = (struct cpu_set){0};
    allow(&machine, 4, 9); /* the second threads of four cores stand for them */
    assert_int_equal(count(&machine), 5);
    machine.allowed = (struct cpu_set){0};
    allow(&machine, 9, 9);
    assert_int_equal(count(&machine), 1);
    machine_fini(&machine);
}

static void nonsense_topology_is_no_limit(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "", "\n", "x", "0-", "-", ",", "99999999999999999999", "0-99999999999999999999,x"};
    struct machine machine;
    machine_init(&machine);
    for (size_t cpu = 0; cpu < 8; cpu++) siblings(&machine, cpu, lists[cpu]);
    allow(&machine, 0, 7);
    assert_in_range(count(&machine), 1, 8);
    machine_fini(&machine);
}

static void quota_caps_and_rounds_up(void **state)
{
    (void)state;
    static const struct {
        const char *quota;
        unsigned expected;
    } cases[] = {{"max 100000\n", 8},     {"150000 100000\n", 2},
                 {"100000 100000\n", 1},  {"10000 100000\n", 1},
                 {"2000000 100000\n", 8}, {"-1 100000\n", 8},
                 {"300000 0\n", 8},       {"300000\n", 8},
                 {"rubbish\n", 8},        {"\n", 8},
                 {"300001 100000", 4},    {"9223372036854775807 1\n", 8}};
    struct machine machine;
    machine_init(&machine);
    allow(&machine, 0, 7);
    put(&machine, "/proc/self/cgroup", "0::/user.slice/run.scope\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(&machine, "/sys/fs/cgroup/user.slice/run.scope/cpu.max", cases[i].quota);
        if (count(&machine) != cases[i].expected)
            fail_msg("\"%s\" gives %u, not %u", cases[i].quota, count(&machine), cases[i].expected);
    }
    machine_fini(&machine);
}

static void an_ancestor_binds_too(void **state)
{
    (void)state;
    struct machine machine;
    machine_init(&machine);
    allow(&machine, 0, 15);
    put(&machine, "/proc/self/cgroup", "0::/a/b/c\n");
    put(&machine, "/sys/fs/cgroup/a/b/c/cpu.max", "900000 100000\n");
    put(&machine, "/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    assert_int_equal(count(&machine), 3);
    put(&machine, "/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(count(&machine), 2);
    put(&machine, "/proc/self/cgroup", "0::/not/visible/here\n"); /* as in a container: the mount's top still binds */
    assert_int_equal(count(&machine), 2);
    machine_fini(&machine);
}

static void version_1_is_read(void **state)
{
    (void)state;
    struct machine machine;
    machine_init(&machine);
    allow(&machine, 0, 15);
    put(&machine, "/proc/self/cgroup", "9:name=systemd:/\n3:cpuset:/jobs\n2:cpu,cpuacct:/jobs/7\n0::/\n");
    put(&machine, "/sys/fs/cgroup/cpu/jobs/7/cpu.cfs_quota_us", "-1\n");
    put(&machine, "/sys/fs/cgroup/cpu/jobs/7/cpu.cfs_period_us", "100000\n");
    assert_int_equal(count(&machine), 16);
    put(&machine, "/sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "420000\n");
    put(&machine, "/sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
    assert_int_equal(count(&machine), 5);
    put(&machine, "/proc/self/cgroup", "3:cpuset:/jobs\n2:cpuacct:/jobs/7\n"); /* neither names the cpu controller */
    assert_int_equal(count(&machine), 16);
    machine_fini(&machine);
}

static void features_have_the_kernels_order(void **state)
{
    (void)state;
    static const struct {
        uint32_t bit;
        const char *name;
    } expected[] = {
        {CPU_AVX2, "avx2"},
        {CPU_AVX512, "avx512"},
        {CPU_AVX512_VNNI, "avx512-vnni"},
        {CPU_AVX_VNNI, "avx-vnni"},
        {CPU_AMX_INT8, "amx-int8"},
        {CPU_NEON, "neon"},
        {CPU_NEON_DOTPROD, "neon-dotprod"},
        {CPU_NEON_I8MM, "neon-i8mm"},
    };
    unsigned n = sizeof expected / sizeof *expected;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(expected[i].bit, 1u << i);
        assert_string_equal(cpu_feature_name(i), expected[i].name);
    }
    assert_null(cpu_feature_name(n));
    assert_int_equal(cpu_mask() >> n, 0);
    if (cpu_mask() & CPU_AVX512) assert_true(cpu_mask() & CPU_AVX2);
}

static void this_machine_has_a_thread(void **state)
{
    (void)state;
    unsigned threads = cpu_threads_usable();
    printf("threads usable: %u of %ld processors\n", threads, sysconf(_SC_NPROCESSORS_CONF));
    assert_in_range(threads, 1, (unsigned)sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_facts_every_processor_counts),
        cmocka_unit_test(siblings_count_once),
        cmocka_unit_test(nonsense_topology_is_no_limit),
        cmocka_unit_test(quota_caps_and_rounds_up),
        cmocka_unit_test(an_ancestor_binds_too),
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(features_have_the_kernels_order),
        cmocka_unit_test(this_machine_has_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
