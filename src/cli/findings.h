#ifndef CLI_FINDINGS_H
#define CLI_FINDINGS_H
/* What `weir doctor` found: facts, each with a severity and, where something can be done, what to do. */
#include "cli/commands.h"

enum severity {
    SEVERITY_OK,
    SEVERITY_NOTE,    /* good to know; costs nothing worth speaking of */
    SEVERITY_WARNING, /* runs, but not well: slower or with less than it could have */
    SEVERITY_PROBLEM, /* does not run, or so slowly that nobody would wait for it */
    SEVERITY_COUNT,
};

struct finding {
    enum severity severity;
    enum err_kind kind;  /* of a problem: decides the exit code */
    const char *subject; /* "memory"; lives as long as the program */
    char text[1100];     /* what is so: a sentence without its full stop */
    char advice[400];    /* what to do; empty when there is nothing to do */
};

enum { FINDINGS_MAX = 64 };

struct findings {
    struct finding of[FINDINGS_MAX];
    size_t n;
};

/* Never fails. The first form's text, and the advice, are printf formats. */
struct finding *findings_add(struct findings *findings, enum severity severity, const char *subject, const char *format,
                             ...) PRINTF_LIKE(4, 5);
void finding_advise(struct finding *finding, const char *format, ...) PRINTF_LIKE(2, 3);
/* A problem that is somebody's error message. */
struct finding *findings_add_error(struct findings *findings, const char *subject, const struct err *problem);

size_t findings_count(const struct findings *findings, enum severity severity);

/* What the first problem's kind says; EXIT_CODE_FAILED when there are only warnings, so that 0 promises that all is
 * well. */
enum exit_code findings_exit_code(const struct findings *findings);

void findings_print(const struct findings *findings, FILE *out);
/* One line: {"ok": ..., "findings": [{"severity": ..., "subject": ..., "text": ..., "advice": ...}, ...]}. It is ok
 * when the exit code is 0. */
bool findings_print_json(const struct findings *findings, struct alloc *alloc, FILE *out, struct err *err) MUST_CHECK;

#endif
