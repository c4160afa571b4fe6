/* usage: talk MODEL STATE_FILE < questions
 * A conversation: each line of standard input is a question, and answers stream to standard output. Ctrl-C ends an
 * answer. At the end the state is saved to STATE_FILE; when it is there at the start, what it holds need not be read
 * again, as the line of figures behind each answer shows. Also shown: a budget, the plan, and reasoning.
 *
 *   cc talk.c -o talk $(pkg-config --cflags --libs weir) */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

enum { MESSAGES_MAX = 64, LINE_MAX_BYTES = 4096, ANSWER_MAX_BYTES = 1 << 16 };

struct talk {
    struct weir_model *model;
    struct weir_engine *engine;
    struct weir_session *session;
    struct weir_message messages[MESSAGES_MAX];
    size_t n_messages;
    char answer[ANSWER_MAX_BYTES]; /* the one that is being written */
    size_t n_answer;
};

/* A handler may call weir_cancel, and must find the session somewhere. */
static struct weir_session *volatile interrupted_session;

static void on_interrupt(int number)
{
    struct weir_session *session = interrupted_session;
    (void)number;
    if (session) weir_cancel(session);
}

static int see(void *context, const struct weir_event *event)
{
    struct talk *t = context;
    if (event->kind == WEIR_EVENT_REASONING) fwrite(event->text, 1, event->bytes, stderr);
    if (event->kind != WEIR_EVENT_TEXT) return 0;
    if (event->bytes >= sizeof t->answer - t->n_answer) return 1; /* ends the answer */
    memcpy(t->answer + t->n_answer, event->text, event->bytes);
    t->n_answer += event->bytes;
    fwrite(event->text, 1, event->bytes, stdout);
    return fflush(stdout);
}

/* The texts of a conversation live as long as it does. */
static int add_message(struct talk *t, const char *role, const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy || t->n_messages == MESSAGES_MAX) {
        free(copy);
        return 0;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    t->messages[t->n_messages].role = role;
    t->messages[t->n_messages].text = copy;
    t->messages[t->n_messages++].bytes = bytes;
    return 1;
}

static enum weir_status answer(struct talk *t, struct weir_error *error)
{
    struct weir_request request;
    struct weir_result result = {.size = sizeof result};
    struct weir_prompt *prompt = NULL;
    t->n_answer = 0;
    /* A prompt is the whole conversation. What the session knows of it is not read again. */
    if (weir_prompt_of_messages(&prompt, t->model, t->messages, t->n_messages, NULL, error) != WEIR_OK)
        return error->status;
    if (weir_request_init(&request, sizeof request, t->model, error) == WEIR_OK) {
        request.event = see;
        request.context = t;
        request.temperature = 0;
        interrupted_session = t->session;
        weir_generate(t->session, prompt, &request, &result, error);
        interrupted_session = NULL;
    }
    weir_prompt_free(prompt);
    if (error->status != WEIR_OK) return error->status;
    fprintf(stderr, "\n[%u tokens read, %u known, %u written, ended by %s]\n",
            (unsigned)(result.n_prompt - result.n_cached), (unsigned)result.n_cached, (unsigned)result.n_generated,
            weir_reason_name(result.reason));
    putchar('\n');
    return WEIR_OK;
}

static enum weir_status converse(struct talk *t, struct weir_error *error)
{
    char line[LINE_MAX_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        size_t bytes = strcspn(line, "\n");
        if (!add_message(t, "user", line, bytes)) break;
        if (answer(t, error) != WEIR_OK) return error->status;
        if (!add_message(t, "assistant", t->answer, t->n_answer)) break;
    }
    return WEIR_OK;
}

/* What would have to be in memory, line by line. */
static void print_plan(struct weir_model *model, const struct weir_settings *settings)
{
    struct weir_error error;
    struct weir_plan *plan;
    struct weir_plan_facts facts = {.size = sizeof facts};
    enum weir_status status = weir_plan_make(&plan, model, settings, 0, 0, &error);
    if (status != WEIR_OK) fprintf(stderr, "talk: %s\n", error.text);
    if (!plan) return;
    if (weir_plan_describe(plan, &facts, NULL) == WEIR_OK)
        for (uint32_t i = 0; i < facts.n_items; i++) {
            const char *name;
            uint64_t bytes;
            weir_plan_item(plan, i, &name, &bytes, NULL, NULL);
            fprintf(stderr, "%12.1f MB  %s\n", (double)bytes / 1e6, name);
        }
    weir_plan_free(plan);
}

static enum weir_status open_all(struct talk *t, const char *path, struct weir_error *error)
{
    struct weir_settings settings;
    weir_settings_init(&settings, sizeof settings);
    settings.ram_budget_bytes = UINT64_C(1) << 30; /* everything that this process may hold */
    settings.context_tokens = 1024;
    if (weir_model_open(&t->model, path, error) != WEIR_OK) return error->status;
    print_plan(t->model, &settings);
    if (weir_engine_open(&t->engine, t->model, &settings, error) != WEIR_OK) return error->status;
    return weir_session_new(&t->session, t->engine, error);
}

int main(int argc, char **argv)
{
    static struct talk t;
    struct weir_error error = {WEIR_OK, ""};
    size_t n_tokens = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: talk MODEL STATE_FILE\n");
        return 2;
    }
    signal(SIGINT, on_interrupt);
    if (open_all(&t, argv[1], &error) == WEIR_OK) {
        int is_there = access(argv[2], F_OK) == 0;
        if (is_there && weir_session_restore(t.session, argv[2], &n_tokens, &error) == WEIR_OK)
            fprintf(stderr, "[%zu tokens restored from %s]\n", n_tokens, argv[2]);
        if (error.status == WEIR_OK) converse(&t, &error);
        if (error.status == WEIR_OK && weir_session_tokens(t.session) > 0 &&
            weir_session_save(t.session, argv[2], &n_tokens, &error) == WEIR_OK)
            fprintf(stderr, "[%zu tokens saved to %s]\n", n_tokens, argv[2]);
    }
    if (error.status != WEIR_OK) fprintf(stderr, "talk: %s\n", error.text);
    weir_session_free(t.session, NULL);
    weir_engine_close(t.engine, NULL);
    weir_model_close(t.model, NULL);
    for (size_t i = 0; i < t.n_messages; i++) free((void *)(uintptr_t)t.messages[i].text);
    return error.status != WEIR_OK;
}
