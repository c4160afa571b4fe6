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

static void on_interrupt(void (*handler)(int signal), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

const atomic_bool *interrupt_watch(void)
{
    atomic_store(&asked, false);
    on_interrupt(ask, (int)SA_RESETHAND | SA_RESTART); /* the second one finds the default, which ends the program */
    return &asked;
}

const atomic_bool *interrupt_watch_all(void)
{
    atomic_store(&asked, false);
    on_interrupt(ask, SA_RESTART);
    return &asked;
}

void interrupt_ignore(void)
{
    on_interrupt(SIG_IGN, 0);
}

void interrupt_unwatch(void)
{
    on_interrupt(SIG_DFL, 0);
}
