#include "cli/answer_print.h"

#include "base/units.h"
#include "plat/peak_memory.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define DIM "\033[2m"
#define PLAIN "\033[0m"
#define ERASE_LINE "\r\033[K"

void answer_print_init(struct answer_print *print, const struct command_context *context)
{
    const struct settings *s = context->settings;
    bool is_terminal = isatty(fileno(context->out));
    *print = (struct answer_print){
        .out = context->out,
        .log = context->log,
        .is_terminal = is_terminal,
        .log_is_terminal = isatty(fileno(context->log)) && !s->dumb_terminal,
        .has_colour = is_terminal && !s->no_colour && !s->dumb_terminal,
    };
}

/* Length of a control character at the beginning of the text, other than line feed and tab: C0, DEL, C1. */
static size_t control_bytes(const unsigned char *text, size_t bytes)
{
    if (text[0] < 0x20) return text[0] != '\n' && text[0] != '\t';
    if (text[0] == 0x7F) return 1;
    return text[0] == 0xC2 && bytes > 1 && text[1] >= 0x80 && text[1] < 0xA0 ? 2 : 0;
}

/* Each control character becomes U+FFFD: an escape sequence could move the cursor, or type. */
static void print_tame(FILE *out, const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    while (at < end) {
        size_t control = control_bytes(at, (size_t)(end - at));
        if (control)
            fputs("\xEF\xBF\xBD", out);
        else
            putc_unlocked(*at, out);
        at += control ? control : 1;
    }
}

/* Of a prompt that takes more than one pass; the last one is followed by the answer. */
static void print_progress(struct answer_print *p, const struct weir_event *event)
{
    if (!p->log_is_terminal || event->n_read == p->n_told || event->n_read == event->n_prompt) return;
    p->n_told = event->n_read;
    p->has_progress = true;
    fprintf(p->log, ERASE_LINE "%" PRIu32 " of %" PRIu32 " prompt tokens read", event->n_read, event->n_prompt);
    fflush(p->log);
}

void answer_print_progress_end(struct answer_print *p)
{
    p->n_told = 0;
    if (!p->has_progress) return;
    p->has_progress = false;
    fputs(ERASE_LINE, p->log);
    fflush(p->log);
}

static void end_reasoning(struct answer_print *p)
{
    if (!p->in_reasoning) return;
    p->in_reasoning = false;
    fputs(p->has_colour ? PLAIN "\n\n" : "\n\n", p->is_terminal ? p->out : p->log);
}

static void print_reasoning(struct answer_print *p, const struct weir_event *event)
{
    FILE *to = p->is_terminal ? p->out : p->log;
    if (!p->in_reasoning && p->has_colour) fputs(DIM, to);
    p->in_reasoning = true;
    print_tame(to, event->text, event->bytes);
    fflush(to);
}

static bool is_written(FILE *out)
{
    return fflush(out) == 0 && !ferror(out);
}

static void print_content(struct answer_print *p, const struct weir_event *event)
{
    end_reasoning(p);
    if (p->is_terminal)
        print_tame(p->out, event->text, event->bytes);
    else
        fwrite(event->text, 1, event->bytes, p->out);
    p->last = event->text[event->bytes - 1];
}

bool answer_print_event(struct answer_print *print, const struct weir_event *event)
{
    if (event->kind == WEIR_EVENT_PROGRESS) {
        print_progress(print, event);
        return true;
    }
    answer_print_progress_end(print);
    if (event->kind == WEIR_EVENT_REASONING)
        print_reasoning(print, event);
    else if (event->kind == WEIR_EVENT_TEXT)
        print_content(print, event);
    return is_written(print->out);
}

void answer_print_end(struct answer_print *print)
{
    end_reasoning(print);
    if (print->last != '\n') fputc('\n', print->out);
    fflush(print->out);
    print->last = 0;
}

double answer_print_rate(uint32_t n_tokens, int64_t ns)
{
    return ns > 0 ? n_tokens * 1e9 / (double)ns : 0;
}

static void print_residency(FILE *log, struct weir_engine *engine)
{
    char bytes[UNITS_TEXT_MAX];
    struct weir_counters c = {.size = sizeof c};
    if (!engine || weir_engine_counters(engine, &c, NULL) != WEIR_OK || !c.is_streamed) return;
    double wants = (double)(c.n_hits + c.n_misses);
    fprintf(log, ", %s of experts read, hit rate %.1f %%, %.3f s waited",
            units_format_bytes(bytes, c.expert_bytes_read), wants > 0 ? 100 * (double)c.n_hits / wants : 0,
            (double)c.expert_wait_ns / 1e9);
}

void answer_print_facts(FILE *log, const struct weir_result *r, struct weir_engine *engine)
{
    char memory[UNITS_TEXT_MAX];
    uint32_t n_read = r->n_prompt - r->n_cached;
    fprintf(log,
            "%" PRIu32 " prompt tokens read in %.3f s (%.1f tokens/s), %" PRIu32 " written in %.3f s (%.1f tokens/s)",
            n_read, (double)r->prompt_ns / 1e9, answer_print_rate(n_read, r->prompt_ns), r->n_generated,
            (double)r->answer_ns / 1e9, answer_print_rate(r->n_generated, r->answer_ns));
    if (r->n_cached) fprintf(log, ", %" PRIu32 " reused", r->n_cached);
    if (r->n_drafted) fprintf(log, ", %" PRIu32 " of %" PRIu32 " drafts accepted", r->n_accepted, r->n_drafted);
    print_residency(log, engine);
    fprintf(log, ", peak memory %s, ended by %s\n", units_format_bytes(memory, peak_memory_bytes()),
            weir_reason_name(r->reason));
}
