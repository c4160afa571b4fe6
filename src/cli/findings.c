#include "cli/findings.h"

#include "base/assert.h"
#include "base/buf.h"
#include "fmt/json_text.h"
#include <stdarg.h>
#include <string.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 20)

static const char *const severity_names[SEVERITY_COUNT] = {"ok", "note", "warning", "problem"};

static struct finding *next(struct findings *findings, enum severity severity, const char *subject)
{
    ASSERT(findings->n < FINDINGS_MAX); /* every kind of finding has a place in the source, so their number is known */
    struct finding *finding = &findings->of[findings->n++];
    *finding = (struct finding){.severity = severity, .kind = ERR_FAILED, .subject = subject};
    return finding;
}

struct finding *findings_add(struct findings *findings, enum severity severity, const char *subject, const char *format,
                             ...)
{
    struct finding *finding = next(findings, severity, subject);
    va_list values;
    va_start(values, format);
    vsnprintf(finding->text, sizeof finding->text, format, values);
    va_end(values);
    return finding;
}

void finding_advise(struct finding *finding, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(finding->advice, sizeof finding->advice, format, values);
    va_end(values);
}

struct finding *findings_add_error(struct findings *findings, const char *subject, const struct err *problem)
{
    struct finding *finding = findings_add(findings, SEVERITY_PROBLEM, subject, "%s", problem->text);
    finding->kind = problem->kind;
    return finding;
}

size_t findings_count(const struct findings *findings, enum severity severity)
{
    size_t n = 0;
    for (size_t i = 0; i < findings->n; i++) n += findings->of[i].severity == severity;
    return n;
}

enum exit_code findings_exit_code(const struct findings *findings)
{
    for (size_t i = 0; i < findings->n; i++)
        if (findings->of[i].severity == SEVERITY_PROBLEM) return commands_exit_code(findings->of[i].kind);
    return findings_count(findings, SEVERITY_WARNING) ? EXIT_CODE_FAILED : EXIT_CODE_DONE;
}

void findings_print(const struct findings *findings, FILE *out)
{
    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->of[i];
        fprintf(out, "%-8s %-12s %s\n", severity_names[finding->severity], finding->subject, finding->text);
        if (*finding->advice) fprintf(out, "%22s-> %s\n", "", finding->advice);
    }
    size_t problems = findings_count(findings, SEVERITY_PROBLEM), warnings = findings_count(findings, SEVERITY_WARNING);
    fprintf(out, "\n%zu problem%s, %zu warning%s\n", problems, problems == 1 ? "" : "s", warnings,
            warnings == 1 ? "" : "s");
}

static bool add_text(struct buf *json, const char *key, const char *text, struct err *err)
{
    return buf_printf(json, err, ",\"%s\":", key) && json_text_add_string(json, text, strlen(text), err);
}

static bool add_all(struct buf *json, const struct findings *findings, struct err *err)
{
    bool is_ok = findings_exit_code(findings) == EXIT_CODE_DONE;
    if (!buf_printf(json, err, "{\"ok\":%s,\"findings\":[", is_ok ? "true" : "false")) return false;
    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->of[i];
        if (!buf_printf(json, err, "%s{\"severity\":\"%s\"", i ? "," : "", severity_names[finding->severity]))
            return false;
        if (!add_text(json, "subject", finding->subject, err)) return false;
        if (!add_text(json, "text", finding->text, err)) return false;
        if (!add_text(json, "advice", finding->advice, err)) return false;
        if (!buf_add_char(json, '}', err)) return false;
    }
    return buf_add_text(json, "]}\n", err);
}

bool findings_print_json(const struct findings *findings, struct alloc *alloc, FILE *out, struct err *err)
{
    struct buf json;
    buf_init(&json, alloc, JSON_BYTES_MAX);
    bool ok = add_all(&json, findings, err);
    if (ok) fwrite(json.data, 1, json.bytes, out);
    buf_fini(&json);
    return ok;
}
