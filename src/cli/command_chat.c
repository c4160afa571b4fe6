/* weir chat: a conversation, in a terminal or through a pipe. */
#include "base/nearest.h"
#include "base/units.h"
#include "cli/answer_print.h"
#include "cli/answer_settings.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/open_engine.h"
#include "cli/prompt_text.h"
#include "cli/typed_lines.h"
#include "plat/peak_memory.h"
#include <inttypes.h>
#include <json-c/json_object.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES_MAX (UINT64_C(1) << 30)
#define PROMPT_TOKENS_MAX (UINT32_C(1) << 24)

struct chatting {
    const struct command_context *context;
    bool is_terminal; /* somebody is there, who may try again after a mistake */
    struct text_model model;
    struct encoder *encoder;
    struct answer_settings settings;
    struct engine *engine;
    struct dialogue *dialogue;
    struct conversation conversation;
    struct typed_lines *lines;
    struct answer_print print;
    struct token_list prompt;
    struct buf typed, content, reasoning; /* of the turn in hand */
    uint64_t n_answers;
    struct {
        uint64_t read, reused, written; /* tokens */
        int64_t prefill_ns, decode_ns;
    } total;
    bool is_over;
};

/* Prints an answer and keeps it. */
static bool see_event(void *context, const struct answer_event *event, struct err *err)
{
    struct chatting *c = context;
    struct buf *to = event->part == ANSWER_REASONING ? &c->reasoning : &c->content;
    return buf_add(to, event->text, event->bytes, err) && answer_print_event(&c->print, event, err);
}

static void count(struct chatting *c, const struct dialogue_result *r)
{
    c->n_answers++;
    c->total.read += r->n_prompt - r->n_reused;
    c->total.reused += r->n_reused;
    c->total.written += r->n_generated;
    c->total.prefill_ns += r->prefill_ns;
    c->total.decode_ns += r->decode_ns;
}

static bool generate(struct chatting *c, struct err *err)
{
    struct chat_request chat = {.messages = c->conversation.messages, .options = c->settings.chat};
    struct answer_request answer = {.is_chat = true, .emit = see_event, .context = c};
    c->prompt.n = 0;
    if (!text_model_encode_chat(&c->model, c->encoder, &chat, &c->prompt, &answer.starts_in_think, err)) return false;
    const struct dialogue_request request = {
        .prompt = c->prompt.ids,
        .n_prompt = (uint32_t)c->prompt.n,
        .sampling = &c->settings.sampling,
        .answer = &answer,
        .key = c->settings.key + c->n_answers, /* draws of their own for every answer, fixed by the seed all the same */
        .cancel = c->is_terminal ? interrupt_watch_all() : interrupt_watch(),
        .progress = answer_print_progress,
        .progress_context = &c->print,
    };
    struct sampled token;
    bool ok = dialogue_start(c->dialogue, &request, err);
    answer_print_progress_end(&c->print);
    if (!ok) return false;
    while (dialogue_result(c->dialogue)->reason == STOP_NONE)
        if (!dialogue_next(c->dialogue, &token, err)) return false;
    return true;
}

/* Keeps what was answered. A question that nothing was said to is forgotten, so that it can be asked again. */
static bool keep_answer(struct chatting *c, struct err *err)
{
    const struct dialogue_result *r = dialogue_result(c->dialogue);
    FILE *log = c->context->log;
    const char *content = c->content.data ? c->content.data : "", *reasoning = c->reasoning.data;
    const struct chat_words words = {
        .role = "assistant",
        .text = content,
        .text_bytes = c->content.bytes,
        .reasoning = reasoning ? reasoning : "", /* even if empty: nothing in the content is to be taken for it */
        .reasoning_bytes = c->reasoning.bytes,
    };
    count(c, r);
    if (r->reason == STOP_CANCELLED && c->content.bytes + c->reasoning.bytes == 0) {
        conversation_drop_last(&c->conversation);
        fputs("(stopped before the answer; the question is forgotten)\n", log);
        return true;
    }
    if (r->reason == STOP_CANCELLED) fputs("(stopped; the conversation keeps what was said)\n", log);
    if (r->reason == STOP_LENGTH && r->n_generated == c->settings.sampling.max_tokens)
        fprintf(log, "(cut after %" PRIu32 " tokens: --max-tokens)\n", r->n_generated);
    else if (r->reason == STOP_LENGTH)
        fputs("(cut: the context is full; /reset starts over, --context-length makes it larger)\n", log);
    return conversation_add(&c->conversation, &words, err);
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
    const struct chat_words words = {.role = "user", .text = text, .text_bytes = bytes};
    buf_clear(&c->content);
    buf_clear(&c->reasoning);
    if (!conversation_add(&c->conversation, &words, err)) return false;
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
    struct chat_options *chat = &c->settings.chat;
    bool is_high = strcmp(text, "high") == 0, is_max = strcmp(text, "max") == 0;
    if (strcmp(text, "off") == 0)
        chat->thinking = false;
    else if (strcmp(text, "on") == 0 || is_high || is_max)
        chat->thinking = true;
    else if (*text)
        return err_set(err, ERR_USER, "/think: '%s' is none of on, off, high and max", text);
    if (is_high || is_max) chat->effort = is_high ? CHAT_EFFORT_HIGH : CHAT_EFFORT_MAX;
    fprintf(c->context->log, "thinking is %s\n",
            !chat->thinking                    ? "off"
            : chat->effort == CHAT_EFFORT_HIGH ? "on, with high effort"
                                               : "on, with most effort");
    return true;
}

static bool slash_save(struct chatting *c, const char *text, struct err *err)
{
    if (!*text) return err_set(err, ERR_USER, "/save needs the name of a file");
    if (!conversation_save(&c->conversation, write_system_real(), text, err)) return false;
    fprintf(c->context->log, "%zu messages saved to %s\n", conversation_length(&c->conversation), text);
    return true;
}

static bool slash_load(struct chatting *c, const char *text, struct err *err)
{
    if (!*text) return err_set(err, ERR_USER, "/load needs the name of a file");
    if (!conversation_load(&c->conversation, c->context->fs, text, err)) return false;
    fprintf(c->context->log, "%zu messages loaded from %s\n", conversation_length(&c->conversation), text);
    return true;
}

static bool slash_stats(struct chatting *c, const char *text, struct err *err)
{
    char memory[UNITS_TEXT_MAX];
    FILE *log = c->context->log;
    (void)text;
    (void)err;
    if (c->n_answers) {
        fputs("last answer: ", log);
        answer_print_facts(log, dialogue_result(c->dialogue), c->engine);
    }
    fprintf(log,
            "all %" PRIu64 " answers: %" PRIu64 " prompt tokens read in %.3f s, %" PRIu64 " reused, %" PRIu64
            " written in %.3f s\n",
            c->n_answers, c->total.read, (double)c->total.prefill_ns / 1e9, c->total.reused, c->total.written,
            (double)c->total.decode_ns / 1e9);
    fprintf(log, "%zu messages, %" PRIu32 " of %" PRIu64 " tokens of context held, peak memory %s\n",
            conversation_length(&c->conversation), dialogue_held(c->dialogue), c->context->settings->context_length,
            units_format_bytes(memory, peak_memory_bytes()));
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
    {"save", "FILE", "write the conversation to FILE", slash_save},
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
    if (!answer_settings_open_model(&c->model, context, err)) return false;
    if (!answer_settings_init(&c->settings, context, &c->model.defaults, c->model.n_logits, c->model.n_tokens, err))
        return false;
    c->encoder = encoder_new(context->alloc, c->model.tokenizer, NULL, err);
    if (!c->encoder) return false;
    if (!conversation_init(&c->conversation, context->alloc, err) || !set_first_system(c, err)) return false;
    if (!typed_lines_new(&c->lines, context->alloc, &setup, err)) return false;
    if (!open_engine(&c->engine, context, err)) return false;
    return dialogue_new(&c->dialogue, c->engine, &c->model, clock_real(), err);
}

int command_chat(struct command_context *context)
{
    struct err err = {0};
    struct chatting c = {.context = context};
    c.is_terminal = isatty(STDIN_FILENO) && isatty(fileno(context->out));
    token_list_init(&c.prompt, context->alloc, PROMPT_TOKENS_MAX);
    buf_init(&c.typed, context->alloc, PROMPT_BYTES_MAX);
    buf_init(&c.content, context->alloc, TEXT_BYTES_MAX);
    buf_init(&c.reasoning, context->alloc, TEXT_BYTES_MAX);
    answer_print_init(&c.print, context);
    bool ok = open_all(&c, &err);
    if (ok) {
        fprintf(context->log, "%s: %" PRIu64 " tokens of context, thinking %s; /help lists the commands\n",
                context->operands[0], context->settings->context_length, c.settings.chat.thinking ? "on" : "off");
        leave_answer(&c);
        ok = talk(&c, &err);
        interrupt_unwatch();
    }
    dialogue_free(c.dialogue);
    engine_close(c.engine);
    typed_lines_free(c.lines);
    conversation_fini(&c.conversation);
    encoder_free(c.encoder);
    text_model_close(&c.model);
    token_list_fini(&c.prompt);
    buf_fini(&c.typed);
    buf_fini(&c.content);
    buf_fini(&c.reasoning);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
