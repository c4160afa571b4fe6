/* The peak of memory: read from the kernel's text, and it follows what is touched. */
#include "plat/peak_memory.h"
#include "support/check.h"

#include <stdlib.h>

static void the_line_is_found(void **state)
{
    (void)state;
    assert_int_equal(peak_memory_parse("Name:\tx\nVmPeak:\t  99 kB\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"),
                     1234 * 1024);
    assert_int_equal(peak_memory_parse("Name:\tVmHWM: 7\n"), 0);
    assert_int_equal(peak_memory_parse(""), 0);
}

static void it_grows_with_what_is_touched(void **state)
{
    enum { BYTES = 64 << 20, SLACK = 4 << 20 }; /* the kernel counts in batches for each processor */
    uint64_t before = peak_memory_bytes();
    (void)state;
    assert_true(before > 0);
    char *block = malloc(BYTES);
    assert_non_null(block);
    for (size_t i = 0; i < BYTES; i += 4096) ((volatile char *)block)[i] = 1;
    uint64_t after = peak_memory_bytes();
    print_message("%ju, then %ju bytes\n", (uintmax_t)before, (uintmax_t)after);
    assert_true(after + SLACK >= BYTES);
    assert_true(after + SLACK >= before);
    free(block);
    assert_true(peak_memory_bytes() + SLACK >= after); /* it is the peak */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_is_found),
        cmocka_unit_test(it_grows_with_what_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
