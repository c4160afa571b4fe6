#include "cli/interrupt.h"

#include "weir/weir.h"
#include <signal.h>

/* A handler has no argument through which it could reach anything else. */
static atomic_bool asked;
static struct weir_session *_Atomic answering; /* NULL: none */

static void ask(int signal)
{
    struct weir_session *session = atomic_load(&answering);
    (void)signal;
    atomic_store(&asked, true);
    if (session) weir_cancel(session);
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

const atomic_bool *interrupt_watch_session(struct weir_session *session, bool all)
{
    atomic_store(&answering, session);
    return all ? interrupt_watch_all() : interrupt_watch();
}

void interrupt_forget_session(void)
{
    atomic_store(&answering, NULL);
}

void interrupt_ignore(void)
{
    on_interrupt(SIG_IGN, 0);
}

void interrupt_unwatch(void)
{
    on_interrupt(SIG_DFL, 0);
}
