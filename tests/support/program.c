#include "support/program.h"

#include "cli/command_line.h"
#include "support/check.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned find(const struct program *p, const char *name)
{
    size_t n = strlen(name);
    unsigned i = 0;
    while (i < p->n_variables && (strncmp(p->environment[i], name, n) != 0 || p->environment[i][n] != '=')) i++;
    return i;
}

void program_set(struct program *p, const char *name, const char *value)
{
    unsigned i = find(p, name);
    size_t room = strlen(name) + strlen(value) + 2;
    char *text = malloc(room);
    assert_non_null(text);
    snprintf(text, room, "%s=%s", name, value);
    if (i == p->n_variables) {
        assert_true(i < PROGRAM_VARIABLES_MAX);
        p->n_variables++;
    } else {
        free(p->environment[i]);
    }
    p->environment[i] = text;
}

void program_fini(struct program *p)
{
    for (unsigned i = 0; i < p->n_variables; i++) free(p->environment[i]);
    free(p->out);
    free(p->log);
    *p = (struct program){0};
}

static void make_argv(const char *argv[PROGRAM_WORDS_MAX], const char *const *words)
{
    unsigned n = 0;
    argv[n++] = "weir";
    for (; *words; words++) {
        assert_true(n < PROGRAM_WORDS_MAX - 1);
        argv[n++] = *words;
    }
    argv[n] = NULL;
}

int program_run(struct program *p, const char *const *words)
{
    const char *argv[PROGRAM_WORDS_MAX];
    size_t n_out, n_log;
    make_argv(argv, words);
    free(p->out);
    free(p->log);
    FILE *out = open_memstream(&p->out, &n_out), *log = open_memstream(&p->log, &n_log);
    assert_non_null(out);
    assert_non_null(log);
    p->code = command_line_run((char *const *)argv, p->environment, out, log);
    fclose(out);
    fclose(log);
    return p->code;
}

void program_expect(const struct program *p, int code, const char *out, const char *log)
{
    if (p->code == code && strstr(p->out, out) && strstr(p->log, log)) return;
    fail_msg("exit code %d (wanted %d)\nout: %s\nwanted: %s\nlog: %s\nwanted: %s", p->code, code, p->out, out, p->log,
             log);
}

/* A child that stops at the beginning and end of each system call. */
static pid_t start_traced(const struct program *p, const char *const *words)
{
    const char *argv[PROGRAM_WORDS_MAX];
    int status;
    make_argv(argv, words);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *nothing = fopen("/dev/null", "w");
        if (!nothing || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(99);
        raise(SIGSTOP);
        _exit(command_line_run((char *const *)argv, p->environment, nothing, nothing));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)), 0);
    return child;
}

/* Lets the child run until it has made `most` calls, then kills it. Returns how many it made. */
static unsigned run_traced(pid_t child, unsigned most, bool *was_killed)
{
    int status, passed_on = 0;
    unsigned n_stops = 0;
    for (;;) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, (void *)(intptr_t)passed_on) != 0)
            fail_msg("ptrace: %s", strerror(errno));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) || WIFSIGNALED(status)) break;
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        passed_on = is_call ? 0 : WSTOPSIG(status);
        n_stops += is_call;
        if ((n_stops + 1) / 2 == most) {
            kill(child, SIGKILL);
            while (waitpid(child, &status, 0) == child && !WIFEXITED(status) && !WIFSIGNALED(status)) continue;
            break;
        }
    }
    *was_killed = WIFSIGNALED(status);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return (n_stops + 1) / 2;
}

bool program_run_killed(const struct program *p, const char *const *words, unsigned k)
{
    bool was_killed;
    assert_true(k > 0);
    run_traced(start_traced(p, words), k, &was_killed);
    return was_killed;
}

unsigned program_count_calls(const struct program *p, const char *const *words)
{
    bool was_killed;
    unsigned n = run_traced(start_traced(p, words), UINT_MAX, &was_killed);
    assert_false(was_killed);
    return n;
}
