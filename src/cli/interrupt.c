#include "cli/interrupt.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* A handler has no argument through which it could reach anything else. */
static atomic_bool asked;

static void ask(int signal)
{
    (void)signal;
    atomic_store(&asked, true);
}

const atomic_bool *interrupt_watch(void)
{
    /* SA_RESETHAND: the second one finds the default, which ends the program. */
    struct sigaction action = {.sa_handler = ask, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    atomic_store(&asked, false);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    return &asked;
}

void interrupt_unwatch(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}
