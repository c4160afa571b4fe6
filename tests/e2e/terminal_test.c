/* `weir chat` in a terminal: what a person types, pastes and takes back, and what the screen gets. The command runs in
 * a child on the other side of a pseudo terminal; every wait ends as soon as the awaited text is there. */
#include "cli/command_line.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct terminal {
    struct temp_folder home;
    int fd;
    pid_t child;
    char seen[1 << 16]; /* since the last await */
    size_t n_seen;
};

enum { DEADLINE_SECONDS = 60 };

static void run_child(const struct temp_folder *home, const char *colour)
{
    char variable[300];
    snprintf(variable, sizeof variable, "XDG_STATE_HOME=%s", home->path);
    const char *argv[] = {"weir", "chat", "models/demo", "--temperature", "0", "--max-tokens", "2000", NULL};
    const char *environment[] = {"TERM=xterm", variable, colour, NULL};
    setenv("TERM", "xterm", 1); /* libedit looks for itself */
    setenv("HOME", home->path, 1);
    exit(command_line_run((char *const *)argv, (char *const *)environment, stdout, stderr));
}

static void terminal_open(struct terminal *t, const char *colour)
{
    fflush(stdout);
    t->n_seen = 0;
    t->child = forkpty(&t->fd, NULL, NULL, NULL);
    assert_true(t->child >= 0);
    if (t->child == 0) run_child(&t->home, colour);
}

static void await(struct terminal *t, const char *text)
{
    time_t deadline = time(NULL) + DEADLINE_SECONDS;
    for (;;) {
        struct pollfd ready = {.fd = t->fd, .events = POLLIN};
        t->seen[t->n_seen] = 0;
        char *found = strstr(t->seen, text);
        if (found) {
            print_message("%.*s\n---\n", (int)(found - t->seen), t->seen);
            found += strlen(text);
            t->n_seen -= (size_t)(found - t->seen);
            memmove(t->seen, found, t->n_seen);
            return;
        }
        if (time(NULL) > deadline) fail_msg("no '%s' within %d s, but: %s", text, DEADLINE_SECONDS, t->seen);
        if (poll(&ready, 1, 1000) <= 0) continue;
        ssize_t n = read(t->fd, t->seen + t->n_seen, sizeof t->seen - 1 - t->n_seen);
        if (n <= 0) fail_msg("the terminal closed without '%s', but with: %s", text, t->seen);
        t->n_seen += (size_t)n;
    }
}

/* The prompt is there, and a moment later the terminal gives keys instead of lines. */
static void await_prompt(struct terminal *t, const char *prompt)
{
    time_t deadline = time(NULL) + DEADLINE_SECONDS;
    struct termios mode;
    await(t, prompt);
    while (tcgetattr(t->fd, &mode) == 0 && mode.c_lflag & ICANON) {
        if (time(NULL) > deadline) fail_msg("the terminal never gives keys");
        poll(NULL, 0, 1);
    }
}

static void type(struct terminal *t, const char *text)
{
    assert_int_equal(write(t->fd, text, strlen(text)), strlen(text));
}

static void terminal_close(struct terminal *t, int want)
{
    int status = 0;
    char rest[4096];
    for (ssize_t n; (n = read(t->fd, rest, sizeof rest)) > 0;) /* until the child is gone */
        print_message("%.*s", (int)n, rest);
    assert_int_equal(waitpid(t->child, &status, 0), t->child);
    close(t->fd);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

static void a_conversation_is_typed(void **state)
{
    struct terminal t;
    char save[400];
    (void)state;
    temp_folder_make(&t.home);
    terminal_open(&t, NULL);
    await(&t, "thinking off");
    await_prompt(&t, "> ");
    type(&t, "What is the capital of Norway?\r");
    await(&t, "Oslo.");
    await_prompt(&t, "> ");
    type(&t, "nonsense\003"); /* taken back */
    await(&t, "^C");
    await_prompt(&t, "> ");
    type(&t, "My name is Ro\177\177Robert.\001\005\r"); /* backspace, home, end */
    await(&t, "\n");
    await(&t, "\n");
    await_prompt(&t, "> ");
    type(&t, "What is \\\r");
    await_prompt(&t, "... ");
    type(&t, "my name?\r");
    await_prompt(&t, "> ");
    snprintf(save, sizeof save, "\033[200~/save\r\033[201~ %s\r", temp_path(&t.home, "saved.json"));
    type(&t, save); /* pasted: one input, though it holds a line end */
    await(&t, "6 messages saved to ");
    await_prompt(&t, "> ");
    type(&t, "/wrong\r"); /* a mistake does not end it */
    await(&t, "there is no /wrong");
    await_prompt(&t, "> ");
    type(&t, "/reset\r");
    await(&t, "a new conversation");
    await_prompt(&t, "> ");
    type(&t, "/think on\r");
    await(&t, "thinking is on");
    await_prompt(&t, "> ");
    type(&t, "What is 268 + 57?\r");
    await(&t, "\033[2m"); /* dimmed, and not any more */
    await(&t, "carry 1");
    await(&t, "\033[0m");
    await(&t, "268 + 57");
    await_prompt(&t, "> ");
    type(&t, "\004");
    terminal_close(&t, 0);
    size_t bytes;
    char *saved = (char *)take_file(temp_path(&t.home, "saved.json"), &bytes);
    print_message("%s\n", saved);
    assert_non_null(strstr(saved, "\"My name is Robert.\""));
    assert_non_null(strstr(saved, "\"What is \\nmy name?\""));
    assert_null(strstr(saved, "nonsense"));
    free(saved);

    /* What was typed is there again, newest first: the fourth one back is /wrong. */
    terminal_open(&t, "NO_COLOR=1");
    await_prompt(&t, "> ");
    type(&t, "\033[A\033[A\033[A\033[A");
    await(&t, "/wrong");
    type(&t, "\003");
    await(&t, "^C");
    await_prompt(&t, "> ");
    type(&t, "/think on\rWhat is 268 + 57?\r");
    await(&t, "carry 1");
    assert_null(strstr(t.seen, "\033[2m"));
    await_prompt(&t, "> ");
    type(&t, "/quit\r");
    terminal_close(&t, 0);
    temp_folder_remove(&t.home);
}

/* From another program, or in the moment before keys are read one by one, it comes as a signal. */
static void signals_between_answers_do_nothing(void **state)
{
    struct terminal t;
    (void)state;
    temp_folder_make(&t.home);
    terminal_open(&t, NULL);
    await_prompt(&t, "> ");
    for (int i = 0; i < 20; i++) {
        type(&t, i % 4 ? "x" : "/think\r");
        kill(t.child, SIGINT);
        await(&t, i % 4 ? "x" : "/think");
        if (i % 4 == 3) type(&t, "\003");
        if (i % 4 == 3) await_prompt(&t, "> ");
    }
    type(&t, "/think\r");
    await(&t, "thinking is off");
    await_prompt(&t, "> ");
    type(&t, "/quit\r");
    terminal_close(&t, 0);
    temp_folder_remove(&t.home);
}

static void ctrl_c_stops_the_answer_and_nothing_else(void **state)
{
    struct terminal t;
    (void)state;
    temp_folder_make(&t.home);
    terminal_open(&t, NULL);
    await_prompt(&t, "> ");
    for (int i = 0; i < 3; i++) {
        type(&t, "Count from 1 to 100, then tell me a story about a fox named Lena, and one more.\r");
        await(&t, "\033[?2004l"); /* it has been taken */
        await(&t, " ");           /* the answer has begun */
        type(&t, "\003");
        await(&t, "> "); /* stopped or, if it was short, done: it goes on either way */
        type(&t, "/think\r");
        await(&t, "thinking is off");
        await_prompt(&t, "> ");
    }
    type(&t, "What is the capital of Norway?\r");
    await(&t, "Oslo");
    await_prompt(&t, "> ");
    type(&t, "/stats\r");
    await(&t, "all 4 answers");
    await_prompt(&t, "> ");
    type(&t, "/quit\r");
    terminal_close(&t, 0);
    temp_folder_remove(&t.home);
}

/* The history of earlier times outlives a disk that takes no more. */
static void a_full_disk_leaves_the_history(void **state)
{
    struct terminal t;
    char path[400], before[2000] = "_HiStOrY_V2_\n";
    struct rlimit full = {.rlim_cur = 64, .rlim_max = RLIM_INFINITY}, all;
    struct stat st;
    (void)state;
    temp_folder_make(&t.home);
    for (int i = 0; i < 50; i++) snprintf(before + strlen(before), sizeof before - strlen(before), "earlier%d\n", i);
    assert_int_equal(mkdir(temp_path(&t.home, "weir"), 0700), 0);
    snprintf(path, sizeof path, "%s", temp_path(&t.home, "weir/chat_history"));
    put_file(path, before, strlen(before));
    getrlimit(RLIMIT_FSIZE, &all);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &full); /* of the terminal's child too */
    terminal_open(&t, NULL);
    setrlimit(RLIMIT_FSIZE, &all);
    await_prompt(&t, "> ");
    type(&t, "/think\r");
    await(&t, "what you type is not remembered: cannot write ");
    await(&t, "thinking is off");
    await_prompt(&t, "> ");
    type(&t, "/quit\r");
    terminal_close(&t, 0);
    size_t bytes;
    char *after = (char *)take_file(path, &bytes);
    assert_int_equal(bytes, strlen(before));
    assert_memory_equal(after, before, bytes);
    free(after);

    terminal_open(&t, NULL); /* with room again */
    await_prompt(&t, "> ");
    type(&t, "/think\r");
    await(&t, "thinking is off");
    await_prompt(&t, "> ");
    type(&t, "/quit\r");
    terminal_close(&t, 0);
    after = (char *)take_file(path, &bytes);
    assert_non_null(strstr(after, "earlier0\n"));
    assert_non_null(strstr(after, "/think\n"));
    free(after);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    temp_folder_remove(&t.home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_is_typed),
        cmocka_unit_test(signals_between_answers_do_nothing),
        cmocka_unit_test(ctrl_c_stops_the_answer_and_nothing_else),
        cmocka_unit_test(a_full_disk_leaves_the_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
