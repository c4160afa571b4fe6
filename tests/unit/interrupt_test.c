/* Which Ctrl-C ends the program, in children that send it to themselves. */
#include "cli/interrupt.h"
#include "support/check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const atomic_bool *flag;

static void watch(void)
{
    flag = interrupt_watch();
}
static void watch_all(void)
{
    flag = interrupt_watch_all();
}

/* So many signals in a child that has made this call before. Returns what became of the child. */
static int status_after(void (*call)(void), int n_signals)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        flag = NULL;
        call();
        for (int i = 0; i < n_signals; i++) raise(SIGINT);
        _exit(flag && *flag ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_end(void (*call)(void), int n_signals)
{
    int status = status_after(call, n_signals);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

static void expect_flag(void (*call)(void), int n_signals, int want)
{
    int status = status_after(call, n_signals);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

static void the_second_one_ends_a_command(void **state)
{
    (void)state;
    expect_flag(watch, 0, 0);
    expect_flag(watch, 1, 1);
    expect_end(watch, 2);
}

static void none_ends_a_conversation(void **state)
{
    (void)state;
    expect_flag(watch_all, 0, 0);
    expect_flag(watch_all, 1, 1);
    expect_flag(watch_all, 9, 1);
    expect_flag(interrupt_ignore, 9, 0);
}

static void after_it_everything_is_as_before(void **state)
{
    (void)state;
    expect_end(interrupt_unwatch, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_one_ends_a_command),
        cmocka_unit_test(none_ends_a_conversation),
        cmocka_unit_test(after_it_everything_is_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
