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

void answer_print_progress(void *print, uint32_t n_read, uint32_t n_prompt)
{
    struct answer_print *p = print;
    if (!p->log_is_terminal) return;
    p->has_progress = true;
    fprintf(p->log, ERASE_LINE "%" PRIu32 " of %" PRIu32 " prompt tokens read", n_read, n_prompt);
    fflush(p->log);
}

void answer_print_progress_end(struct answer_print *p)
{
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

static void print_reasoning(struct answer_print *p, const struct answer_event *event)
{
    FILE *to = p->is_terminal ? p->out : p->log;
    if (!p->in_reasoning && p->has_colour) fputs(DIM, to);
    p->in_reasoning = true;
    print_tame(to, event->text, event->bytes);
    fflush(to);
}

static void print_content(struct answer_print *p, const struct answer_event *event)
{
    end_reasoning(p);
    if (p->is_terminal)
        print_tame(p->out, event->text, event->bytes);
    else
        fwrite(event->text, 1, event->bytes, p->out);
    p->last = event->text[event->bytes - 1];
    fflush(p->out);
}

bool answer_print_event(void *print, const struct answer_event *event, struct err *err)
{
    struct answer_print *p = print;
    (void)err; /* an output that is gone is told at the end of the program */
    if (event->bytes == 0) return true;
    if (event->part == ANSWER_REASONING)
        print_reasoning(p, event);
    else if (event->part == ANSWER_CONTENT)
        print_content(p, event);
    return true;
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

bool answer_print_residency(struct answer_residency *out, struct engine *engine)
{
    struct streamed *streamed = engine_streamed(engine);
    if (!streamed) return false;
    const struct slots_stats *slots = slots_stats(streamed_slots(streamed));
    *out = (struct answer_residency){
        .n_hits = slots->n_hits,
        .n_misses = slots->n_misses + slots->n_joined,
        .bytes_read = slots->bytes_loaded,
        .waited_s = (double)streamed_stats(streamed)->waited_ns / 1e9,
    };
    return true;
}

static void print_residency(FILE *log, struct engine *engine)
{
    char bytes[UNITS_TEXT_MAX];
    struct answer_residency r;
    if (!engine || !answer_print_residency(&r, engine)) return;
    double wants = (double)(r.n_hits + r.n_misses);
    fprintf(log, ", %s of experts read, hit rate %.1f %%, %.3f s waited", units_format_bytes(bytes, r.bytes_read),
            wants > 0 ? 100 * (double)r.n_hits / wants : 0, r.waited_s);
}

void answer_print_facts(FILE *log, const struct dialogue_result *r, struct engine *engine)
{
    char memory[UNITS_TEXT_MAX];
    uint32_t n_read = r->n_prompt - r->n_reused;
    fprintf(log,
            "%" PRIu32 " prompt tokens read in %.3f s (%.1f tokens/s), %" PRIu32 " written in %.3f s (%.1f tokens/s)",
            n_read, (double)r->prefill_ns / 1e9, answer_print_rate(n_read, r->prefill_ns), r->n_generated,
            (double)r->decode_ns / 1e9, answer_print_rate(r->n_generated, r->decode_ns));
    if (r->n_reused) fprintf(log, ", %" PRIu32 " reused", r->n_reused);
    print_residency(log, engine);
    fprintf(log, ", peak memory %s, ended by %s\n", units_format_bytes(memory, peak_memory_bytes()),
            stop_reason_name(r->reason));
}
