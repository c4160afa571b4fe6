#ifndef CLI_ANSWERING_H
#define CLI_ANSWERING_H
/* One answer while somebody may press Ctrl-C. */
#include "base/err.h"
#include "weir/weir.h"

struct answering {
    struct weir_engine *engine;
    struct weir_session *session;
    const struct weir_prompt *prompt;
    const struct weir_request *request;
    bool takes_all_interrupts; /* however many come, none ends the program */
};

/* Ctrl-C ends the answer, as WEIR_REASON_CANCELLED; behind it, Ctrl-C is the caller's to set (cli/interrupt.h). */
bool answering_run(const struct answering *answering, struct weir_result *result, struct err *err) MUST_CHECK;

#endif
