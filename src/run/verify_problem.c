#include "run/verify_int.h"

#include <string.h>

bool verify_add_problem(struct verify_report *report, struct verify_file *file, const char *tensor, const char *text,
                        struct err *err)
{
    if (file->n_problems++ >= VERIFY_PROBLEMS_MAX) return true;
    struct verify_problem *problem = arena_get(&report->arena, sizeof *problem, err);
    if (!problem) return false;
    problem->tensor = arena_text(&report->arena, tensor, strlen(tensor), err);
    problem->text = problem->tensor ? arena_text(&report->arena, text, strlen(text), err) : NULL;
    if (!problem->text) return false;
    if (!file->last) file->last = &file->problems;
    *file->last = problem;
    file->last = &problem->next;
    return true;
}
