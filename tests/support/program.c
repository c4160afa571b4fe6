#include "support/program.h"

#include "cli/commands.h"
#include "support/check.h"
#include <signal.h>
#include <stdlib.h>
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
    p->code = commands_run((char *const *)argv, p->environment, out, log);
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

bool program_run_killed(const struct program *p, const char *const *words, unsigned after_us)
{
    const char *argv[PROGRAM_WORDS_MAX];
    int status;
    make_argv(argv, words);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *nothing = fopen("/dev/null", "w");
        _exit(nothing ? commands_run((char *const *)argv, p->environment, nothing, nothing) : 99);
    }
    usleep(after_us);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}
