#include "cli/answering.h"

#include "cli/interrupt.h"
#include "cli/library.h"

bool answering_run(const struct answering *answering, struct weir_result *result, struct err *err)
{
    const struct answering *a = answering;
    struct weir_error error;
    size_t n_going_on = 1;
    const atomic_bool *asked = interrupt_watch_session(a->session, a->takes_all_interrupts);
    bool ok = library_ok(weir_start(a->session, a->prompt, a->request, &error), &error, err);
    if (ok && atomic_load(asked)) weir_cancel(a->session); /* it came in front of the start, which forgets it */
    while (ok && n_going_on > 0) ok = library_ok(weir_step(a->engine, &n_going_on, &error), &error, err);
    interrupt_forget_session();
    result->size = sizeof *result;
    return ok && library_ok(weir_session_result(a->session, result, &error), &error, err);
}
