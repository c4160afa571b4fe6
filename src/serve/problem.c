#include "serve/problem.h"

#include "base/assert.h"
#include "base/utf8.h"
#include "serve/jot.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    unsigned status;
    const char *openai, *anthropic, *code;
} kinds[] = {[PROBLEM_NONE] = {200, "", "", NULL},
#define X(id, status, openai, anthropic, code) [PROBLEM_##id] = {status, openai, anthropic, code},
             PROBLEM_LIST(X)
#undef X
};

/* Messages quote clients and may be cut: what is not UTF-8 becomes a question mark. */
static void clean(char *text)
{
    size_t bytes = strlen(text), used;
    uint32_t code;
    for (size_t at = 0; at < bytes; at += used)
        if (utf8_next(text + at, bytes - at, &code, &used) != UTF8_VALID) memset(text + at, '?', used);
}

bool problem_set(struct problem *problem, enum problem_kind kind, const char *param, const char *format, ...)
{
    va_list args;
    *problem = (struct problem){.kind = kind};
    snprintf(problem->param, sizeof problem->param, "%s", param ? param : "");
    va_start(args, format);
    int n = vsnprintf(problem->text, sizeof problem->text, format, args);
    va_end(args);
    if (n >= (int)sizeof problem->text) memcpy(problem->text + sizeof problem->text - 4, "...", 4);
    clean(problem->text);
    clean(problem->param);
    return false;
}

/* The path in front of the first ": ", if it looks like one. */
static void find_param(struct problem *problem)
{
    static const char path[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]";
    size_t n = strspn(problem->text, path);
    if (n == 0 || n >= sizeof problem->param || strncmp(problem->text + n, ": ", 2) != 0) return;
    memcpy(problem->param, problem->text, n);
    problem->param[n] = 0;
}

/* The engine names the codes of its failures in their messages. Messages that quote a client are ERR_USER, and are not
 * searched: a client's own words choose no status. */
static enum problem_kind kind_of_failure(const struct err *err)
{
    static const enum problem_kind named[] = {PROBLEM_DEAD_END, PROBLEM_GRAMMAR_LIMIT, PROBLEM_ENGINE,
                                              PROBLEM_NUMERICAL};
    for (size_t i = 0; i < sizeof named / sizeof *named && err->kind == ERR_FAILED; i++)
        if (strstr(err->text, kinds[named[i]].code)) return named[i];
    return PROBLEM_INTERNAL;
}

bool problem_from(struct problem *problem, enum problem_kind kind, const struct err *err)
{
    ASSERT(err->kind != ERR_NONE);
    if (err->kind == ERR_BUSY)
        kind = PROBLEM_QUEUE_FULL;
    else if (err->kind != ERR_USER)
        kind = kind_of_failure(err);
    /* What failed inside may name files; the log has the whole of it. */
    problem_set(problem, kind, NULL, "%s",
                kind == PROBLEM_INTERNAL ? "the server failed to answer this request; its log says why" : err->text);
    if (err->kind == ERR_USER) find_param(problem);
    return false;
}

bool problem_inside(struct problem *problem, const char *where)
{
    const struct problem inner = *problem;
    char param[sizeof inner.param];
    if (!*inner.param) return false;
    int n = snprintf(param, sizeof param, "%s.%s", where, inner.param);
    return problem_set(problem, inner.kind, n < (int)sizeof param ? param : where, "%s.%s", where, inner.text);
}

unsigned problem_status(const struct problem *problem, enum error_family family)
{
    unsigned status = kinds[problem->kind].status;
    /* Overloaded has a number of its own at Anthropic. */
    return family == FAMILY_ANTHROPIC && status == 503 ? 529 : status;
}

const char *problem_code(const struct problem *problem)
{
    return kinds[problem->kind].code;
}

bool problem_write(const struct problem *problem, enum error_family family, const char *request_id, struct buf *out,
                   struct err *err)
{
    struct jot json = jot_to(out);
    jot_open(&json);
    if (family == FAMILY_ANTHROPIC) jot_put_words(&json, "type", "error");
    jot_put_open(&json, "error");
    if (family == FAMILY_ANTHROPIC) {
        jot_put_words(&json, "type", kinds[problem->kind].anthropic);
        jot_put_words(&json, "message", problem->text);
    } else {
        jot_put_words(&json, "message", problem->text);
        jot_put_words(&json, "type", kinds[problem->kind].openai);
        jot_put_words(&json, "param", problem->param[0] ? problem->param : NULL);
        jot_put_words(&json, "code", kinds[problem->kind].code);
    }
    jot_close(&json);
    if (family == FAMILY_ANTHROPIC) jot_put_words(&json, "request_id", request_id);
    jot_close(&json);
    return jot_end(&json, err);
}
