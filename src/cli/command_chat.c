/* weir chat: a conversation, in a terminal or through a pipe. */
#include "base/nearest.h"
#include "base/units.h"
#include "cli/answer_print.h"
#include "cli/answering.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/library.h"
#include "cli/prompt_text.h"
#include "cli/request_settings.h"
#include "cli/typed_lines.h"
#include "plat/peak_memory.h"
#include <errno.h>
#include <inttypes.h>
#include <json-c/json_object.h>
#include <string.h>
#include <unistd.h>

#define STATE_SUFFIX ".weirkv"
#define TEXT_BYTES_MAX (UINT64_C(1) << 30)

struct chatting {
    const struct command_context *context;
    bool is_terminal; /* somebody is there, who may try again after a mistake */
    struct weir_model *model;
    struct weir_request request;
    struct weir_chat_options chat;
    enum weir_thinking effort; /* that /think on means */
    struct weir_engine *engine;
    struct weir_session *session;
    struct conversation conversation;
    struct typed_lines *lines;
    struct answer_print print;
    struct buf typed, content, reasoning; /* of the turn in hand */
    struct err failure;                   /* of keeping the answer, which ended it */
    struct weir_result last;
    uint64_t n_answers;
    struct {
        uint64_t read, reused, written; /* tokens */
        int64_t prompt_ns, answer_ns;
    } total;
    bool is_over;
};

/* Prints an answer and keeps it. */
static int see_event(void *context, const struct weir_event *event)
{
    struct chatting *c = context;
    bool is_reasoning = event->kind == WEIR_EVENT_REASONING, is_text = is_reasoning || event->kind == WEIR_EVENT_TEXT;
    if (is_text && !buf_add(is_reasoning ? &c->reasoning : &c->content, event->text, event->bytes, &c->failure))
        return 1;
    if (answer_print_event(&c->print, event)) return 0;
    return !err_set(&c->failure, ERR_IO, "cannot write the output: %s", strerror(errno));
}

static void count(struct chatting *c, const struct weir_result *r)
{
    c->n_answers++;
    c->total.read += r->n_prompt - r->n_cached;
    c->total.reused += r->n_cached;
    c->total.written += r->n_generated;
    c->total.prompt_ns += r->prompt_ns;
    c->total.answer_ns += r->answer_ns;
}

static bool generate(struct chatting *c, struct err *err)
{
    struct weir_prompt *prompt;
    struct weir_request request = c->request;
    request.event = see_event;
    request.context = c;
    /* Draws of their own for every answer, fixed by the seed all the same. */
    if (request.has_seed) request.seed += c->n_answers;
    if (!conversation_prompt(&c->conversation, &prompt, c->model, &c->chat, err)) return false;
    const struct answering answering = {.engine = c->engine,
                                        .session = c->session,
                                        .prompt = prompt,
                                        .request = &request,
                                        .takes_all_interrupts = c->is_terminal};
    c->failure = (struct err){0};
    bool ok = answering_run(&answering, &c->last, err);
    answer_print_progress_end(&c->print);
    weir_prompt_free(prompt);
    if (c->failure.kind == ERR_NONE) return ok;
    *err = c->failure;
    return false;
}

/* Keeps what was answered. A question that nothing was said to is forgotten, so that it can be asked again. */
static bool keep_answer(struct chatting *c, struct err *err)
{
    const struct weir_result *r = &c->last;
    FILE *log = c->context->log;
    const char *content = c->content.data ? c->content.data : "", *reasoning = c->reasoning.data;
    const struct weir_message answer = {
        .role = "assistant",
        .text = content,
        .bytes = c->content.bytes,
        .reasoning = reasoning ? reasoning : "", /* even if empty: nothing in the content is to be taken for it */
        .reasoning_bytes = c->reasoning.bytes,
    };
    count(c, r);
    if (r->reason == WEIR_REASON_CANCELLED && c->content.bytes + c->reasoning.bytes == 0) {
        conversation_drop_last(&c->conversation);
        fputs("(stopped before the answer; the question is forgotten)\n", log);
        return true;
    }
    if (r->reason == WEIR_REASON_CANCELLED) fputs("(stopped; the conversation keeps what was said)\n", log);
    if (r->reason == WEIR_REASON_LENGTH && !r->context_is_full)
        fprintf(log, "(cut after %" PRIu32 " tokens: --max-tokens)\n", r->n_generated);
    else if (r->reason == WEIR_REASON_LENGTH)
        fputs("(cut: the context is full; /reset starts over, --context-length makes it larger)\n", log);
    return conversation_add(&c->conversation, &answer, err);
}

/* On a terminal Ctrl-C is a key again; a pipe has nobody who types. */
static void leave_answer(const struct chatting *c)
{
    if (c->is_terminal)
        interrupt_ignore();
    else
        interrupt_unwatch();
}

static bool say(struct chatting *c, const char *text, size_t bytes, struct err *err)
{
    const struct weir_message question = {.role = "user", .text = text, .bytes = bytes};
    buf_clear(&c->content);
    buf_clear(&c->reasoning);
    if (!conversation_add(&c->conversation, &question, err)) return false;
    bool ok = generate(c, err);
    leave_answer(c);
    if (!ok) conversation_drop_last(&c->conversation);
    if (ok || c->content.bytes + c->reasoning.bytes) answer_print_end(&c->print);
    return ok && keep_answer(c, err);
}

/* Slash commands. `text` is what stands behind the name, without blanks around it; often "". */

static bool slash_help(struct chatting *c, const char *text, struct err *err);

static bool slash_system(struct chatting *c, const char *text, struct err *err)
{
    struct json_object *first = json_object_array_get_idx(c->conversation.messages, 0);
    struct json_object *role = first ? json_object_object_get(first, "role") : NULL;
    if (strcmp(text, "-") == 0) return conversation_set_system(&c->conversation, NULL, err);
    if (*text) return conversation_set_system(&c->conversation, text, err);
    bool has_one = role && strcmp(json_object_get_string(role), "system") == 0;
    fprintf(c->context->log, "%s\n",
            has_one ? json_object_get_string(json_object_object_get(first, "content")) : "(no system message)");
    return true;
}

static bool slash_think(struct chatting *c, const char *text, struct err *err)
{
    bool is_high = strcmp(text, "high") == 0, is_max = strcmp(text, "max") == 0;
    if (strcmp(text, "off") == 0)
        c->chat.thinking = WEIR_THINKING_OFF;
    else if (is_high)
        c->effort = c->chat.thinking = WEIR_THINKING_HIGH;
    else if (is_max)
        c->effort = c->chat.thinking = WEIR_THINKING_MAX;
    else if (strcmp(text, "on") == 0)
        c->chat.thinking = c->effort;
    else if (*text)
        return err_set(err, ERR_USER, "/think: '%s' is none of on, off, high and max", text);
    fprintf(c->context->log, "thinking is %s\n",
            c->chat.thinking == WEIR_THINKING_OFF    ? "off"
            : c->chat.thinking == WEIR_THINKING_HIGH ? "on, with high effort"
                                                     : "on, with most effort");
    return true;
}

/* Of the file that stands beside the messages; the caller gives it back. */
static char *state_path(const struct chatting *c, const char *path, struct err *err)
{
    size_t bytes = strlen(path) + sizeof STATE_SUFFIX;
    char *out = alloc_get(c->context->alloc, bytes, err);
    if (out) snprintf(out, bytes, "%s" STATE_SUFFIX, path);
    return out;
}

/* The messages are what counts. What the model knows of them only spares reading them again. */
static bool slash_save(struct chatting *c, const char *text, struct err *err)
{
    FILE *log = c->context->log;
    struct weir_error why = {0};
    size_t n = 0;
    if (!*text) return err_set(err, ERR_USER, "/save needs the name of a file");
    if (!conversation_save(&c->conversation, write_system_real(), text, err)) return false;
    fprintf(log, "%zu messages saved to %s\n", conversation_length(&c->conversation), text);
    if (weir_session_tokens(c->session) == 0) return true;
    char *path = state_path(c, text, err);
    if (!path) return false;
    if (weir_session_save(c->session, path, &n, &why) == WEIR_OK)
        fprintf(log, "the state of %zu tokens saved to %s\n", n, path);
    else
        fprintf(log, "weir: %s; the messages are safe, and would be read again\n", why.text);
    alloc_put(c->context->alloc, path);
    return true;
}

static bool load_state(struct chatting *c, const char *text, struct err *err)
{
    FILE *log = c->context->log;
    struct file file;
    struct err absent;
    struct weir_error why = {0};
    size_t n = 0;
    char *path = state_path(c, text, err);
    if (!path) return false;
    bool is_there = file_open(&file, c->context->alloc, c->context->fs, path, &absent);
    if (is_there) file_close(&file);
    if (is_there && weir_session_restore(c->session, path, &n, &why) == WEIR_OK)
        fprintf(log, "the state of %zu tokens loaded from %s\n", n, path);
    else if (is_there)
        fprintf(log, "weir: %s; the conversation is read again\n", why.text);
    alloc_put(c->context->alloc, path);
    return true;
}

static bool slash_load(struct chatting *c, const char *text, struct err *err)
{
    if (!*text) return err_set(err, ERR_USER, "/load needs the name of a file");
    if (!conversation_load(&c->conversation, c->model, c->context->fs, text, err)) return false;
    fprintf(c->context->log, "%zu messages loaded from %s\n", conversation_length(&c->conversation), text);
    return load_state(c, text, err);
}

static bool slash_stats(struct chatting *c, const char *text, struct err *err)
{
    char memory[UNITS_TEXT_MAX];
    FILE *log = c->context->log;
    (void)text;
    (void)err;
    if (c->n_answers) {
        fputs("last answer: ", log);
        answer_print_facts(log, &c->last, c->engine);
    }
    fprintf(log,
            "all %" PRIu64 " answers: %" PRIu64 " prompt tokens read in %.3f s, %" PRIu64 " reused, %" PRIu64
            " written in %.3f s\n",
            c->n_answers, c->total.read, (double)c->total.prompt_ns / 1e9, c->total.reused, c->total.written,
            (double)c->total.answer_ns / 1e9);
    fprintf(log, "%zu messages, %zu of %" PRIu64 " tokens of context held, peak memory %s\n",
            conversation_length(&c->conversation), weir_session_tokens(c->session),
            c->context->settings->context_length, units_format_bytes(memory, peak_memory_bytes()));
    return true;
}

static bool slash_reset(struct chatting *c, const char *text, struct err *err)
{
    (void)text;
    if (!conversation_reset(&c->conversation, err)) return false;
    fputs("a new conversation\n", c->context->log);
    return true;
}

static bool slash_quit(struct chatting *c, const char *text, struct err *err)
{
    (void)text;
    (void)err;
    c->is_over = true;
    return true;
}

static const struct slash {
    const char *name, *operand, *help;
    bool (*run)(struct chatting *c, const char *text, struct err *err);
} slashes[] = {
    {"help", "", "this list", slash_help},
    {"system", "[TEXT]", "show the system message, or set it; - takes it away", slash_system},
    {"think", "[on|off|high|max]", "let the model reason before it answers, and how much", slash_think},
    {"save", "FILE", "write the conversation to FILE, and its state beside it", slash_save},
    {"load", "FILE", "go on with the conversation in FILE", slash_load},
    {"stats", "", "tokens read, reused and written, and how fast", slash_stats},
    {"reset", "", "start a new conversation; the system message stays", slash_reset},
    {"quit", "", "end, as Ctrl-D does", slash_quit},
};

enum { SLASHES = sizeof slashes / sizeof *slashes };

static bool slash_help(struct chatting *c, const char *text, struct err *err)
{
    FILE *log = c->context->log;
    (void)text;
    (void)err;
    for (size_t i = 0; i < SLASHES; i++) {
        char usage[64];
        snprintf(usage, sizeof usage, "/%s%s%s", slashes[i].name, *slashes[i].operand ? " " : "", slashes[i].operand);
        fprintf(log, "  %-26s%s\n", usage, slashes[i].help);
    }
    fputs("A backslash at the end of a line goes on with the next one; // begins a message with a slash.\n"
          "Ctrl-C stops an answer, or takes back what you are typing.\n",
          log);
    return true;
}

/* `line` is changed. */
static bool run_slash(struct chatting *c, char *line, struct err *err)
{
    size_t n = strcspn(line, " \t\n"), end = strlen(line);
    while (end > n && strchr(" \t\n", line[end - 1])) end--;
    line[end] = 0;
    char *text = line + n + strspn(line + n, " \t\n");
    line[n] = 0;
    struct nearest nearest = {.word = line};
    for (size_t i = 0; i < SLASHES; i++) {
        nearest_offer(&nearest, slashes[i].name);
        if (strcmp(line, slashes[i].name) != 0) continue;
        if (*text && !*slashes[i].operand) return err_set(err, ERR_USER, "/%s takes nothing behind it", line);
        return slashes[i].run(c, text, err);
    }
    return err_set(err, ERR_USER, "there is no /%s; the nearest is /%s (// begins a message with a slash)", line,
                   nearest.best);
}

static bool take_typed(struct chatting *c, struct err *err)
{
    char *text = c->typed.data;
    if (c->typed.bytes == 0 || strspn(text, " \t\n") == c->typed.bytes) return true;
    bool is_slash = text[0] == '/', is_escaped = is_slash && text[1] == '/';
    if (is_slash && !is_escaped) return run_slash(c, text + 1, err);
    return say(c, text + is_escaped, c->typed.bytes - is_escaped, err);
}

static bool talk(struct chatting *c, struct err *err)
{
    enum typed typed;
    while (!c->is_over) {
        struct err mistake = {0};
        if (!typed_lines_read(c->lines, &c->typed, &typed, err)) return false;
        if (typed == TYPED_END) break;
        if (typed == TYPED_NOTHING || take_typed(c, &mistake)) continue;
        if (!c->is_terminal) { /* a script must learn of it */
            *err = mistake;
            return false;
        }
        command_fail(c->context, &mistake);
    }
    return true;
}

static bool set_first_system(struct chatting *c, struct err *err)
{
    struct buf text;
    if (!c->context->settings->system) return true;
    buf_init(&text, c->context->alloc, PROMPT_BYTES_MAX);
    bool ok = prompt_text_of_argument(&text, c->context->settings->system, err) &&
              conversation_set_system(&c->conversation, text.data, err);
    buf_fini(&text);
    return ok;
}

static bool open_all(struct chatting *c, struct err *err)
{
    const struct command_context *context = c->context;
    const struct settings *s = context->settings;
    const struct typed_lines_setup setup = {
        .in = stdin,
        .out = context->out,
        .log = context->log,
        .is_terminal = c->is_terminal && !s->dumb_terminal,
        .state_folder = s->state_folder,
    };
    struct weir_error error;
    if (!library_open_model(&c->model, context, err)) return false;
    if (!request_settings(&c->request, &c->chat, c->model, context, err)) return false;
    if (!library_needs_text(c->model, err)) return false;
    c->effort = c->chat.thinking == WEIR_THINKING_HIGH ? WEIR_THINKING_HIGH : WEIR_THINKING_MAX;
    if (!conversation_init(&c->conversation, context->alloc, err) || !set_first_system(c, err)) return false;
    if (!typed_lines_new(&c->lines, context->alloc, &setup, err)) return false;
    return library_open_engine(&c->engine, c->model, context, err) &&
           library_ok(weir_session_new(&c->session, c->engine, &error), &error, err);
}

int command_chat(struct command_context *context)
{
    struct err err = {0};
    struct chatting c = {.context = context};
    c.is_terminal = isatty(STDIN_FILENO) && isatty(fileno(context->out));
    buf_init(&c.typed, context->alloc, PROMPT_BYTES_MAX);
    buf_init(&c.content, context->alloc, TEXT_BYTES_MAX);
    buf_init(&c.reasoning, context->alloc, TEXT_BYTES_MAX);
    answer_print_init(&c.print, context);
    bool ok = open_all(&c, &err);
    if (ok) {
        fprintf(context->log, "%s: %" PRIu64 " tokens of context, thinking %s; /help lists the commands\n",
                context->operands[0], context->settings->context_length,
                c.chat.thinking != WEIR_THINKING_OFF ? "on" : "off");
        leave_answer(&c);
        ok = talk(&c, &err);
        interrupt_unwatch();
    }
    library_close_session(c.session);
    library_close_engine(c.engine);
    library_close_model(c.model);
    typed_lines_free(c.lines);
    conversation_fini(&c.conversation);
    buf_fini(&c.typed);
    buf_fini(&c.content);
    buf_fini(&c.reasoning);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
