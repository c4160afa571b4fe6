/* What doctor says about machines and storage made of plain facts, and how its findings become an exit code. */
#include "cli/doctor.h"
#include "kern/kern.h"
#include "support/check.h"
#include "support/mem_files.h"

#include <stdlib.h>

#define GIB (UINT64_C(1) << 30)

static struct findings findings;

static struct memory_fact known(uint64_t bytes)
{
    struct memory_fact fact = {.state = FACT_KNOWN, .bytes = bytes, .source = "a test"};
    return fact;
}

static struct machine_facts good_machine(void)
{
    struct machine_facts facts = {
        .cpu_mask = CPU_AVX2,
        .n_threads = 8,
        .memory = {.physical = known(32 * GIB), .free_now = known(28 * GIB), .cgroup = {.state = FACT_NO_LIMIT}},
        .swap = {.state = FACT_NO_LIMIT},
        .files_limit = known(4096),
        .lock_limit = known(8 << 20),
        .huge_pages = "madvise",
        .device = "io_uring",
    };
    facts.memory.address_space.state = facts.memory.data.state = FACT_NO_LIMIT;
    return facts;
}

static const struct finding *find(enum severity severity, const char *subject)
{
    for (size_t i = 0; i < findings.n; i++)
        if (findings.of[i].severity == severity && strcmp(findings.of[i].subject, subject) == 0) return &findings.of[i];
    return NULL;
}

static void judge(const struct machine_facts *facts)
{
    findings = (struct findings){0};
    machine_judge(facts, &findings);
    findings_print(&findings, stdout);
}

/* Changing one fact of a good machine gives exactly one warning, of this subject, with advice. */
static void expect_warning(const struct machine_facts *facts, const char *subject)
{
    judge(facts);
    const struct finding *finding = find(SEVERITY_WARNING, subject);
    assert_non_null(finding);
    assert_true(*finding->advice);
    assert_int_equal(findings_count(&findings, SEVERITY_WARNING), 1);
    assert_int_equal(findings_exit_code(&findings), EXIT_CODE_FAILED);
}

static void a_good_machine_has_nothing_to_change(void **state)
{
    (void)state;
    struct machine_facts facts = good_machine();
    judge(&facts);
    assert_int_equal(findings_count(&findings, SEVERITY_OK), findings.n);
    assert_int_equal(findings_exit_code(&findings), EXIT_CODE_DONE);
    assert_non_null(strstr(find(SEVERITY_OK, "memory")->text, "28.0 GiB"));
    assert_non_null(strstr(find(SEVERITY_OK, "processor")->text, "AVX2"));
}

static void each_lack_is_one_warning_with_advice(void **state)
{
    (void)state;
    struct machine_facts facts = good_machine();
    facts.cpu_mask = 0;
    expect_warning(&facts, "processor");
    facts = good_machine();
    facts.n_threads = 1;
    expect_warning(&facts, "threads");
    facts = good_machine();
    facts.memory.physical.state = facts.memory.free_now.state = FACT_UNKNOWN;
    expect_warning(&facts, "memory");
    facts = good_machine();
    facts.is_commit_strict = true;
    expect_warning(&facts, "memory");
    facts = good_machine();
    facts.swap = known(16 * GIB);
    facts.swap_free = known(8 * GIB);
    expect_warning(&facts, "swap");
    facts.swap_free = known(16 * GIB);
    judge(&facts);
    assert_non_null(find(SEVERITY_OK, "swap"));
    facts = good_machine();
    snprintf(facts.huge_pages, sizeof facts.huge_pages, "never");
    expect_warning(&facts, "huge pages");
    facts = good_machine();
    facts.files_limit = known(256);
    expect_warning(&facts, "open files");
}

/* It is so in most containers, and threads read nearly as fast. */
static void reading_through_threads_is_good_enough(void **state)
{
    (void)state;
    struct machine_facts facts = good_machine();
    snprintf(facts.device, sizeof facts.device, "threads");
    snprintf(facts.why_not_uring, sizeof facts.why_not_uring, "a sysctl forbids it");
    judge(&facts);
    assert_non_null(find(SEVERITY_NOTE, "reads"));
    assert_non_null(strstr(find(SEVERITY_NOTE, "reads")->text, "a sysctl forbids it"));
    assert_true(*find(SEVERITY_NOTE, "reads")->advice);
    assert_int_equal(findings_exit_code(&findings), EXIT_CODE_DONE);
}

static void a_limit_is_named_with_its_source(void **state)
{
    (void)state;
    struct machine_facts facts = good_machine();
    facts.memory.cgroup = facts.memory.cgroup_free = known(8 * GIB);
    snprintf(facts.memory.cgroup.source, sizeof facts.memory.cgroup.source, "/sys/fs/cgroup/a/memory.max");
    judge(&facts);
    assert_non_null(strstr(find(SEVERITY_NOTE, "memory")->text, "8.0 GiB (/sys/fs/cgroup/a/memory.max)"));
    assert_non_null(strstr(find(SEVERITY_OK, "memory")->text, "8.0 GiB"));
}

static void facts_are_read_from_small_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text;
    } pages[] = {
        {"/r/proc/meminfo",
         "MemTotal: 33554432 kB\nMemAvailable: 25165824 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"},
        {"/r/proc/self/limits",
         "Limit     Soft Limit  Hard Limit  Units\nMax locked memory   8388608   8388608   bytes\n"
         "Max open files      1024      4096      files\n"},
        {"/r/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"},
        {"/r/proc/sys/vm/overcommit_memory", "2\n"},
    };
    struct mem_files files = {0};
    struct alloc alloc = {0};
    struct machine_facts facts;
    struct err err = {0};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        mem_files_add(&files, pages[i].path, (void *)(uintptr_t)pages[i].text, strlen(pages[i].text));
    assert_true(machine_look(&facts, &alloc, mem_files_system(&files), "/r", &err));
    assert_int_equal(facts.swap.bytes, 2 << 20);
    assert_int_equal(facts.swap_free.bytes, 1 << 20);
    assert_int_equal(facts.lock_limit.bytes, 8 << 20);
    assert_int_equal(facts.files_limit.bytes, 1024);
    assert_string_equal(facts.huge_pages, "never");
    assert_true(facts.is_commit_strict);
    assert_true(*facts.device);
    assert_true(facts.n_threads > 0);

    /* A machine that tells nothing: unknown, and never a limit of zero. */
    files = (struct mem_files){0};
    assert_true(machine_look(&facts, &alloc, mem_files_system(&files), "/r", &err));
    assert_int_equal(facts.swap.state, FACT_UNKNOWN);
    assert_int_equal(facts.files_limit.state, FACT_UNKNOWN);
    assert_string_equal(facts.huge_pages, "");
    assert_false(facts.is_commit_strict);
    assert_int_equal(alloc.live, 0);
    assert_int_equal(files.n_open, 0);

    uint64_t n = 1;
    for (;; n++) { /* every allocation fails once */
        struct alloc poor = {.fail_at = n};
        struct err why = {0};
        bool ok = machine_look(&facts, &poor, mem_files_system(&files), "/r", &why);
        assert_int_equal(poor.live, 0);
        if (atomic_load(&poor.calls) < n) break;
        if (!ok) assert_int_equal(why.kind, ERR_NOMEM);
    }
    print_message("%d allocations failed one by one\n", (int)n - 1);
    assert_true(n > 3);
}

static void storage_is_judged_by_kind_and_rate(void **state)
{
    (void)state;
    static const struct {
        struct storage_facts facts;
        enum severity severity;
        const char *text;
    } cases[] = {
        {{0xEF53, 0, GIB, true}, SEVERITY_OK, "ext4 on a disk without a head"},
        {{0xEF53, -1, GIB, true}, SEVERITY_OK, "ext4"},
        {{0xEF53, 1, 200 << 20, true}, SEVERITY_WARNING, "rotates"},
        {{0xEF53, 1, 2 * GIB, true}, SEVERITY_NOTE, "rotates"},
        {{0x6969, -1, GIB, false}, SEVERITY_WARNING, "NFS"},
        {{0x01021997, -1, GIB, false}, SEVERITY_WARNING, "9p"},
        {{0x12345, 0, GIB, true}, SEVERITY_OK, "file system 0x12345"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        findings = (struct findings){0};
        storage_judge(&cases[i].facts, &findings);
        const struct finding *finding = find(cases[i].severity, "storage");
        print_message("%s: %s\n", cases[i].text, findings.of[0].text);
        assert_non_null(finding);
        assert_non_null(strstr(finding ? finding->text : "", cases[i].text));
        assert_int_equal(cases[i].severity == SEVERITY_WARNING, finding && *finding->advice);
        assert_non_null(find(SEVERITY_OK, "disk"));
    }
}

static void expect_json(const char *wanted)
{
    struct alloc alloc = {0};
    struct err err = {0};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_true(findings_print_json(&findings, &alloc, out, &err));
    fclose(out);
    assert_string_equal(text, wanted);
    free(text);
    assert_int_equal(alloc.live, 0);
}

#define KNOWN "{\"severity\":\"note\",\"subject\":\"good\",\"text\":\"to know\",\"advice\":\"\"}"
#define WARNED "{\"severity\":\"warning\",\"subject\":\"a\",\"text\":\"b\",\"advice\":\"\"}"

static void warnings_and_the_first_problem_decide_the_exit_code(void **state)
{
    (void)state;
    struct err fit = {0}, data = {0};
    err_set(&fit, ERR_FIT, "does \"not\" fit");
    err_set(&data, ERR_DATA, "is damaged");
    findings = (struct findings){0};
    findings_add(&findings, SEVERITY_NOTE, "good", "to know");
    assert_int_equal(findings_exit_code(&findings), EXIT_CODE_DONE);
    expect_json("{\"ok\":true,\"findings\":[" KNOWN "]}\n");
    findings_add(&findings, SEVERITY_WARNING, "a", "b");
    assert_int_equal(findings_exit_code(&findings), EXIT_CODE_FAILED);
    expect_json("{\"ok\":false,\"findings\":[" KNOWN "," WARNED "]}\n");
    finding_advise(findings_add_error(&findings, "plan", &fit), "do %d", 1);
    findings_add_error(&findings, "files", &data);
    assert_int_equal(findings_exit_code(&findings), EXIT_CODE_FIT);
    expect_json("{\"ok\":false,\"findings\":[" KNOWN "," WARNED ","
                "{\"severity\":\"problem\",\"subject\":\"plan\",\"text\":\"does \\\"not\\\" fit\","
                "\"advice\":\"do 1\"},"
                "{\"severity\":\"problem\",\"subject\":\"files\",\"text\":\"is damaged\",\"advice\":\"\"}]}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_machine_has_nothing_to_change),
        cmocka_unit_test(each_lack_is_one_warning_with_advice),
        cmocka_unit_test(reading_through_threads_is_good_enough),
        cmocka_unit_test(a_limit_is_named_with_its_source),
        cmocka_unit_test(facts_are_read_from_small_files),
        cmocka_unit_test(storage_is_judged_by_kind_and_rate),
        cmocka_unit_test(warnings_and_the_first_problem_decide_the_exit_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
