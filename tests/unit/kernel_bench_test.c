/* The benchmark of kernels covers the list, and gives everything back when memory runs out. */
#include "run/kernel_bench.h"

#include "kern/kern.h"
#include "plat/cpu.h"
#include "support/check.h"

static const struct kernel_figure *find(const struct kernel_bench_result *r, const char *op, const char *isa)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->figures[i].op, op) == 0 && strcmp(r->figures[i].isa, isa) == 0) return &r->figures[i];
    return NULL;
}

static void every_chosen_kernel_is_measured(void **state)
{
    (void)state;
    static const char *const chosen[] = {"axpy", "layernorm", "transposed_int4"};
    const struct kern_entry *entries;
    size_t n = kern_entries(&entries), n_found = 0;
    for (size_t k = 0; k < sizeof chosen / sizeof *chosen; k++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct kernel_bench_result result;
        const struct kernel_bench_choice choice = {.cpu = cpu_mask(), .only = chosen[k], .n_threads = 2, .runs = 2};
        assert_true(kernel_bench_run(&result, &alloc, &choice, &err));
        assert_true(result.read_bytes_per_s > 0);
        for (size_t i = 0; i < n; i++) {
            bool wanted = strstr(entries[i].op, chosen[k]) && (choice.cpu & entries[i].needs) == entries[i].needs;
            bool is_peak = strncmp(entries[i].op, "peak_", 5) == 0;
            const struct kernel_figure *f = find(&result, entries[i].op, entries[i].isa);
            if (is_peak) continue;
            assert_int_equal(wanted, f != NULL);
            if (!f) continue;
            n_found++;
            assert_true(f->ns > 0);
            assert_true(f->ns_min <= f->ns);
            assert_true(f->ns <= f->ns_max);
            assert_true(f->bytes > 0);
        }
        kernel_bench_fini(&result, &alloc);
        assert_int_equal(alloc.live, 0);
    }
    print_message("%zu kernels measured\n", n_found);
    assert_true(n_found >= 4);
}

static void nothing_is_lost_when_memory_runs_out(void **state)
{
    (void)state;
    const struct kernel_bench_choice choice = {.cpu = 0, .only = "rope", .n_threads = 2, .runs = 1};
    bool ok = false;
    uint64_t k = 1;
    for (; !ok; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct kernel_bench_result result;
        assert_true(k < 100);
        ok = kernel_bench_run(&result, &alloc, &choice, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        kernel_bench_fini(&result, &alloc);
        assert_int_equal(alloc.live, 0);
    }
    print_message("%d failures of an allocation\n", (int)k - 2);
    assert_true(k > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chosen_kernel_is_measured),
        cmocka_unit_test(nothing_is_lost_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
