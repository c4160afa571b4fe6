#ifndef ARM64_CMOCKA_H
#define ARM64_CMOCKA_H
/* As much of cmocka as the tests of kernels use, for a processor whose library may not be installed. The first failed
 * assertion ends the program. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

static inline void assertion(bool holds, const char *what, const char *file, int line)
{
    if (holds) return;
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    exit(1);
}

static inline int run_tests(const struct CMUnitTest *tests, size_t n)
{
    void *state = NULL;
    for (size_t i = 0; i < n; i++) {
        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout);
        tests[i].run(&state);
        printf("[       OK ] %s\n", tests[i].name);
    }
    return n == 0;
}

#define assert_true(condition) assertion(condition, #condition, __FILE__, __LINE__)
#define assert_false(condition) assert_true(!(condition))
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_ptr_not_equal(a, b) assert_true((a) != (b))
#define assert_int_equal(a, b) assert_true((a) == (b))
#define assert_memory_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) == 0)
#define print_message(...) ((void)printf(__VA_ARGS__))
#define print_error(...) ((void)fprintf(stderr, __VA_ARGS__))
#define fail_msg(...) (print_error(__VA_ARGS__), exit(1))
#define cmocka_unit_test(function)           \
    {                                        \
        .name = #function, .run = (function) \
    }
#define cmocka_run_group_tests(tests, setup, teardown) run_tests(tests, sizeof(tests) / sizeof *(tests))

#endif
