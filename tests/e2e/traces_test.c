/* Streams of every API, event by event: against the order that the protocols have, and against recorded traces.
 *
 * usage: traces_test [--record]
 * The order is a regular expression over one letter for each event, written from the description of the API. The traces
 * are in tests/e2e/golden, with ids numbered in the order of their first appearance and times left out; --record writes
 * them. Where a stream ends at a moment that is chance (cancelled, failed), a run of deltas counts as one. */
#include "support/check.h"
#include "support/client.h"
#include "support/demo_server.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER "tests/e2e/golden/"

enum api { CHAT, COMPLETIONS, MESSAGES, RESPONSES };
enum trouble { NO_TROUBLE, CANCELLED, FAILED };

static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"};

static struct demo_server demo;
static bool records;

/* --- files that fail when they are told to --- */

static atomic_bool disk_fails;

static int do_open(void *context, const char *path, int flags)
{
    (void)context;
    return file_system_real().ops->open(NULL, path, flags);
}

static int do_stat(void *context, int descriptor, struct stat *out)
{
    (void)context;
    return file_system_real().ops->stat(NULL, descriptor, out);
}

static ssize_t do_pread(void *context, int descriptor, void *buffer, size_t bytes, off_t offset)
{
    (void)context;
    if (!atomic_load(&disk_fails)) return file_system_real().ops->pread(NULL, descriptor, buffer, bytes, offset);
    errno = EIO;
    return -1;
}

static int do_close(void *context, int descriptor)
{
    (void)context;
    return file_system_real().ops->close(NULL, descriptor);
}

static const struct file_ops failing_ops = {.open = do_open, .stat = do_stat, .pread = do_pread, .close = do_close};

static bool make_pool(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    (void)context;
    return aio_pool_new(aio, alloc, depth, 2, err);
}

/* --- one letter for each event --- */

static struct json_object *at(struct json_object *value, const char *path)
{
    struct json_object *found = NULL;
    return json_pointer_get(value, path, &found) == 0 ? found : NULL;
}

static char chat_letter(struct json_object *data)
{
    struct json_object *delta = at(data, "/choices/0/delta");
    if (at(data, "/error")) return 'E';
    if (!delta) return at(data, "/usage/total_tokens") ? 'U' : '?';
    if (at(data, "/choices/0/finish_reason")) return json_object_object_length(delta) == 0 ? 'F' : '?';
    if (json_object_object_length(delta) == 2) return at(delta, "/role") ? 'R' : '?';
    if (json_object_object_length(delta) != 1) return '?';
    return at(delta, "/reasoning_content") ? 'r' : at(delta, "/content") ? 'c' : at(delta, "/tool_calls") ? 't' : '?';
}

static char completions_letter(struct json_object *data)
{
    if (at(data, "/error")) return 'E';
    if (!at(data, "/choices/0")) return at(data, "/usage/total_tokens") ? 'U' : '?';
    return at(data, "/choices/0/finish_reason") ? 'F' : 'T';
}

static char named_letter(const char *name, struct json_object *data)
{
    static const struct {
        const char *name;
        char letter;
    } all[] = {
        {"message_start", 'S'},
        {"ping", 'P'},
        {"content_block_start", 'B'},
        {"content_block_stop", 'b'},
        {"message_delta", 'M'},
        {"message_stop", 'X'},
        {"error", 'E'},
        {"response.created", 'C'},
        {"response.in_progress", 'I'},
        {"response.output_item.added", 'A'},
        {"response.content_part.added", 'p'},
        {"response.output_text.delta", 'd'},
        {"response.reasoning_text.delta", 'd'},
        {"response.output_text.done", 'D'},
        {"response.reasoning_text.done", 'D'},
        {"response.content_part.done", 'q'},
        {"response.reasoning_summary_part.added", 's'},
        {"response.reasoning_summary_text.delta", 'y'},
        {"response.reasoning_summary_text.done", 'Y'},
        {"response.reasoning_summary_part.done", 'u'},
        {"response.function_call_arguments.delta", 'a'},
        {"response.function_call_arguments.done", 'n'},
        {"response.custom_tool_call_input.delta", 'a'},
        {"response.custom_tool_call_input.done", 'n'},
        {"response.output_item.done", 'Z'},
        {"response.completed", 'K'},
        {"response.incomplete", 'N'},
        {"response.failed", 'F'},
    };
    struct json_object *type = at(data, "/type"), *kind = at(data, "/delta/type");
    if (!type || strcmp(json_object_get_string(type), name) != 0) return '?';
    if (strcmp(name, "content_block_delta") == 0)
        return kind && strcmp(json_object_get_string(kind), "signature_delta") == 0 ? 'G' : 'd';
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) return all[i].letter;
    return '?';
}

/* --- traces --- */

struct trace {
    enum api api;
    char letters[8192];
    size_t n_letters;
    char *text; /* what is recorded */
    size_t n, room;
    char ids[64][48];
    size_t n_ids;
    bool merges; /* a run of deltas is one */
};

static void add(struct trace *t, const char *text, size_t bytes)
{
    if (t->n + bytes + 1 > t->room) {
        t->room = 2 * (t->n + bytes + 1);
        t->text = realloc(t->text, t->room);
        assert_non_null(t->text);
    }
    memcpy(t->text + t->n, text, bytes);
    t->n += bytes;
    t->text[t->n] = 0;
}

static void add_text(struct trace *t, const char *text)
{
    add(t, text, strlen(text));
}

/* The length of an id at `text`, behind a quotation mark: a prefix and 24 letters or digits; 0: there is none. */
static size_t id_length(const char *text)
{
    static const char *const prefixes[] = {"chatcmpl-", "cmpl-", "msg_",   "resp_", "rs_", "fc_",
                                           "ctc_",      "call_", "toolu_", "item_", "req_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]), more = 0;
        if (strncmp(text, prefixes[i], n) != 0) continue;
        while (isalnum((unsigned char)text[n + more])) more++;
        if (more == 24 && text[n + more] == '"') return n + more;
    }
    return 0;
}

static void add_id(struct trace *t, const char *id, size_t bytes)
{
    char name[64];
    size_t i = 0;
    while (i < t->n_ids && (strlen(t->ids[i]) != bytes || memcmp(t->ids[i], id, bytes) != 0)) i++;
    if (i == t->n_ids) {
        assert_true(i < 64 && bytes < sizeof t->ids[0]);
        snprintf(t->ids[t->n_ids++], sizeof t->ids[0], "%.*s", (int)bytes, id);
    }
    snprintf(name, sizeof name, "%.*s%zu", (int)(bytes - 24), id, i + 1);
    add_text(t, name);
}

/* JSON as it came, but for ids and times. */
static void add_data(struct trace *t, const char *data)
{
    for (const char *c = data; *c;) {
        static const char *const times[] = {"\"created\":", "\"created_at\":"};
        size_t n = c > data && c[-1] == '"' ? id_length(c) : 0;
        if (n > 0) {
            add_id(t, c, n);
            c += n;
            continue;
        }
        for (size_t i = 0; i < 2; i++)
            if (strncmp(c, times[i], strlen(times[i])) == 0) n = strlen(times[i]);
        add(t, c, n ? n : 1);
        c += n ? n : 1;
        if (n > 0) {
            assert_true(isdigit((unsigned char)*c)); /* whole seconds */
            while (isdigit((unsigned char)*c)) c++;
            add_text(t, "0");
        }
    }
}

static bool is_delta(char letter)
{
    return strchr("rcTdy", letter) != NULL;
}

static void add_event(struct trace *t, const char *name, const char *data, char letter)
{
    bool is_more = t->n_letters > 0 && t->letters[t->n_letters - 1] == letter;
    assert_true(t->n_letters + 2 < sizeof t->letters);
    t->letters[t->n_letters++] = letter;
    t->letters[t->n_letters] = 0;
    if (t->merges && is_delta(letter)) {
        if (!is_more) add_text(t, "(deltas)\n");
        return;
    }
    /* What the end says is as long as what came before it. */
    if (t->merges && strchr("FK", letter) && t->api == RESPONSES) data = "(the response)";
    if (name) add_text(t, name), add_text(t, " ");
    add_data(t, data);
    add_text(t, "\n");
}

/* One event: its lines, checked for their form. */
static void see_event(struct trace *t, char *event)
{
    char *name = NULL, *data = event;
    bool has_names = t->api == MESSAGES || t->api == RESPONSES;
    if (*event == ':') {
        assert_null(strchr(event, '\n'));
        add_event(t, NULL, event, ':');
        return;
    }
    if (has_names) {
        assert_memory_equal(event, "event: ", 7);
        name = event + 7;
        data = strchr(event, '\n');
        assert_non_null(data);
        *data++ = 0;
    }
    assert_memory_equal(data, "data: ", 6);
    data += 6;
    assert_null(strchr(data, '\n'));
    if (strcmp(data, "[DONE]") == 0) {
        add_event(t, NULL, data, 'D');
        return;
    }
    struct json_object *value = json_tokener_parse(data);
    assert_non_null(value);
    char letter = has_names        ? named_letter(name, value)
                  : t->api == CHAT ? chat_letter(value)
                                   : completions_letter(value);
    if (t->api == RESPONSES) assert_int_equal(json_object_get_int(at(value, "/sequence_number")), (int)t->n_letters);
    add_event(t, name, data, letter);
    json_object_put(value);
}

static void see_stream(struct trace *t, const struct client_answer *answer)
{
    static const char *const shown[] = {"Content-Type", "Cache-Control", "X-Accel-Buffering"};
    for (size_t i = 0; i < 3; i++) {
        const char *value = client_answer_header(answer, shown[i]);
        add_text(t, shown[i]);
        add_text(t, ": ");
        add_text(t, value ? value : "(none)");
        add_text(t, "\n");
    }
    char *rest = answer->body;
    for (char *end; (end = strstr(rest, "\n\n")); rest = end + 2) {
        *end = 0;
        see_event(t, rest);
    }
    assert_string_equal(rest, ""); /* nothing is cut in the middle */
}

/* --- scenarios --- */

struct scenario {
    const char *name;
    enum api api;
    const char *body;  /* "stream" is added */
    const char *order; /* of all events */
    enum trouble trouble;
};

#define ASK(text) "\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]"
#define FRANCE "What is the capital of France?"
#define SUM "What is 17 plus 25?"
#define WEATHER "What is the weather in Paris?"
#define CITY "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}"
#define ABOUT "\"name\":\"get_weather\",\"description\":\"Get the current weather for a city.\""
#define CHAT_TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{" ABOUT ",\"parameters\":" CITY "}}]"
#define MESSAGES_TOOLS "\"tools\":[{" ABOUT ",\"input_schema\":" CITY "}]"
#define RESPONSES_TOOLS "\"tools\":[{\"type\":\"function\"," ABOUT ",\"parameters\":" CITY "}]"
#define PERSON                                                                                                \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":" \
    "\"integer\",\"minimum\":0,\"maximum\":150}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}"
#define OBJECT "Give me a JSON object with name and age."
#define ENDLESS "\"ignore_eos\":true"

static const struct scenario scenarios[] = {
    {"chat-text", CHAT, ASK(FRANCE), "^Rc+FD$", NO_TROUBLE},
    {"chat-usage", CHAT, ASK(FRANCE) ",\"stream_options\":{\"include_usage\":true}", "^Rc+FUD$", NO_TROUBLE},
    {"chat-logprobs", CHAT, ASK(FRANCE) ",\"logprobs\":true,\"top_logprobs\":2", "^Rc+FD$", NO_TROUBLE},
    {"chat-reasoning", CHAT, ASK(SUM) ",\"enable_thinking\":true", "^Rr+c+FD$", NO_TROUBLE},
    {"chat-tool", CHAT, ASK(WEATHER) "," CHAT_TOOLS, "^Rc*tFD$", NO_TROUBLE},
    {"chat-tool-required", CHAT, ASK(FRANCE) "," CHAT_TOOLS ",\"tool_choice\":\"required\"", "^RtFD$", NO_TROUBLE},
    {"chat-structured", CHAT,
     ASK(OBJECT) ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"p\",\"schema\":" PERSON
                 "}}",
     "^Rc+FD$", NO_TROUBLE},
    {"chat-stop", CHAT, ASK(FRANCE) ",\"stop\":[\"Par\"]", "^Rc+FD$", NO_TROUBLE},
    {"chat-length", CHAT, ASK(FRANCE) ",\"max_tokens\":3", "^Rc+FD$", NO_TROUBLE},
    {"chat-cancel", CHAT, ASK(FRANCE) "," ENDLESS ",\"max_tokens\":3000", "^Rc+E$", CANCELLED},
    {"chat-error", CHAT, ASK(FRANCE) "," ENDLESS ",\"max_tokens\":3000", "^Rc+E$", FAILED},

    {"completions-text", COMPLETIONS, "\"prompt\":\"In the beginning\",\"max_tokens\":5", "^TT+FD$", NO_TROUBLE},
    {"completions-echo", COMPLETIONS,
     "\"prompt\":\"In the beginning\",\"max_tokens\":3,\"echo\":true,\"stream_options\":"
     "{\"include_usage\":true}",
     "^T+FUD$", NO_TROUBLE},
    {"completions-logprobs", COMPLETIONS, "\"prompt\":\"In the beginning\",\"max_tokens\":3,\"logprobs\":2", "^TT+FD$",
     NO_TROUBLE},
    {"completions-structured", COMPLETIONS, "\"prompt\":\"The colour is\",\"guided_choice\":[\"red\",\"green\"]",
     "^TT+FD$", NO_TROUBLE},
    {"completions-stop", COMPLETIONS, "\"prompt\":\"In the beginning\",\"max_tokens\":40,\"stop\":\" the\"", "^T+FD$",
     NO_TROUBLE},
    {"completions-cancel", COMPLETIONS, "\"prompt\":\"In the beginning\"," ENDLESS ",\"max_tokens\":3000", "^T+E$",
     CANCELLED},
    {"completions-error", COMPLETIONS, "\"prompt\":\"In the beginning\"," ENDLESS ",\"max_tokens\":3000", "^T+E$",
     FAILED},

    {"messages-text", MESSAGES, ASK(FRANCE) ",\"max_tokens\":60", "^SPBd+bMX$", NO_TROUBLE},
    {"messages-reasoning", MESSAGES, ASK(SUM) ",\"max_tokens\":100,\"thinking\":{\"type\":\"enabled\"}",
     "^SPBd+GbBd+bMX$", NO_TROUBLE},
    {"messages-thinking-omitted", MESSAGES,
     ASK(SUM) ",\"max_tokens\":100,\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}", "^SPBGbBd+bMX$",
     NO_TROUBLE},
    {"messages-tool", MESSAGES, ASK(WEATHER) ",\"max_tokens\":60," MESSAGES_TOOLS, "^SP(Bd+b)?BdbMX$", NO_TROUBLE},
    {"messages-structured", MESSAGES,
     ASK(OBJECT) ",\"max_tokens\":60,\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":" PERSON "}}",
     "^SPBd+bMX$", NO_TROUBLE},
    {"messages-stop", MESSAGES, ASK(FRANCE) ",\"max_tokens\":60,\"stop_sequences\":[\"Par\"]", "^SPBd+bMX$",
     NO_TROUBLE},
    {"messages-length", MESSAGES, ASK(FRANCE) ",\"max_tokens\":3", "^SPBd+bMX$", NO_TROUBLE},
    {"messages-cancel", MESSAGES, ASK(FRANCE) "," ENDLESS ",\"max_tokens\":3000", "^SPBd+E$", CANCELLED},
    {"messages-error", MESSAGES, ASK(FRANCE) "," ENDLESS ",\"max_tokens\":3000", "^SPBd+E$", FAILED},

    {"responses-text", RESPONSES, "\"input\":\"" FRANCE "\"", "^CIApd+DqZK$", NO_TROUBLE},
    {"responses-reasoning", RESPONSES, "\"input\":\"" SUM "\",\"reasoning\":{\"effort\":\"high\"}",
     "^CIApd+DqZApd+DqZK$", NO_TROUBLE},
    {"responses-summary", RESPONSES, "\"input\":\"" SUM "\",\"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"}",
     "^CIAsy+YuZApd+DqZK$", NO_TROUBLE},
    {"responses-tool", RESPONSES, "\"input\":\"" WEATHER "\"," RESPONSES_TOOLS, "^CI(Apd+DqZ)?AanZK$", NO_TROUBLE},
    {"responses-structured", RESPONSES,
     "\"input\":\"" OBJECT "\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"p\",\"schema\":" PERSON "}}",
     "^CIApd+DqZK$", NO_TROUBLE},
    {"responses-stop", RESPONSES, "\"input\":\"" FRANCE "\",\"stop\":\"Par\"", "^CIApd+DqZK$", NO_TROUBLE},
    {"responses-length", RESPONSES, "\"input\":\"" FRANCE "\",\"max_output_tokens\":3", "^CIApd+DqZN$", NO_TROUBLE},
    {"responses-cancel", RESPONSES, "\"input\":\"" FRANCE "\"," ENDLESS ",\"max_output_tokens\":3000", "^CIApd+F$",
     CANCELLED},
    {"responses-error", RESPONSES, "\"input\":\"" FRANCE "\"," ENDLESS ",\"max_output_tokens\":3000", "^CIApd+F$",
     FAILED},
};

/* --- trouble, while a stream goes on --- */

struct maker {
    enum trouble trouble;
    uint64_t n_passes; /* when it comes */
};

static void *make_trouble(void *context)
{
    const struct maker *maker = context;
    struct service_stats stats;
    do {
        clock_sleep_ns(clock_real(), 1000000);
        service_stats(demo.service, &stats);
    } while (stats.scheduler.n_passes < maker->n_passes);
    if (maker->trouble == FAILED) {
        atomic_store(&disk_fails, true);
        return NULL;
    }
    /* Too late is seen from how the stream ends. */
    struct client_answer answer = client_ask(demo.port, "/v1/requests/trouble/cancel", "{}");
    client_answer_free(&answer);
    return NULL;
}

static void run(struct trace *t, const struct scenario *s)
{
    pthread_t thread;
    char json[2048];
    struct service_stats stats;
    struct client_answer answer;
    service_stats(demo.service, &stats);
    struct maker maker = {s->trouble, stats.scheduler.n_passes + 15};
    *t = (struct trace){.api = s->api, .merges = s->trouble != NO_TROUBLE};
    snprintf(json, sizeof json, "{%s,\"stream\":true}", s->body);
    if (s->trouble) assert_int_equal(pthread_create(&thread, NULL, make_trouble, &maker), 0);
    int fd = client_connect(demo.port);
    client_post(fd, paths[s->api], json, s->trouble ? "x-request-id: trouble\r\n" : NULL);
    client_read(fd, &answer);
    close(fd);
    if (s->trouble) pthread_join(thread, NULL);
    atomic_store(&disk_fails, false);
    if (answer.status != 200 || answer.is_cut) fail_msg("%s: %d %s", s->name, answer.status, answer.body);
    see_stream(t, &answer);
    client_answer_free(&answer);
}

static bool ends_badly(const struct trace *t)
{
    return t->letters[t->n_letters - 1] == (t->api == RESPONSES ? 'F' : 'E');
}

static void check_order(const struct trace *t, const struct scenario *s)
{
    regex_t order;
    assert_int_equal(regcomp(&order, s->order, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&order, t->letters, 0, NULL, 0) != 0)
        fail_msg("%s: events %s, wanted %s\n%s", s->name, t->letters, s->order, t->text);
    regfree(&order);
}

static void compare(const struct trace *t, const char *path)
{
    FILE *file = fopen(path, records ? "w" : "r");
    if (!file) fail_msg("%s: cannot be opened", path);
    if (records) {
        assert_int_equal(fwrite(t->text, 1, t->n, file), t->n);
    } else {
        char *wanted = calloc(1, t->n + 2);
        size_t n = fread(wanted, 1, t->n + 1, file);
        if (n != t->n || memcmp(wanted, t->text, n) != 0) {
            size_t at = 0, line = 1;
            while (at < n && at < t->n && wanted[at] == t->text[at]) line += wanted[at++] == '\n';
            fail_msg("%s: line %zu differs; now:\n%s", path, line, t->text);
        }
        free(wanted);
    }
    assert_int_equal(fclose(file), 0);
}

static void streams_are_as_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        struct trace t;
        char path[128];
        for (int tries = 0; tries < 20; tries++) { /* trouble that comes after the end comes too late */
            run(&t, &scenarios[i]);
            if (!scenarios[i].trouble || ends_badly(&t)) break;
            free(t.text);
        }
        check_order(&t, &scenarios[i]);
        snprintf(path, sizeof path, FOLDER "%s.txt", scenarios[i].name);
        compare(&t, path);
        free(t.text);
    }
    print_message("%zu streams\n", sizeof scenarios / sizeof *scenarios);
}

/* Wrong on purpose: an order that is not that of the stream is seen. */
static void another_order_is_seen(void **state)
{
    (void)state;
    static const struct {
        const char *letters, *order;
    } wrong[] = {{"RcFcD", "^Rc+FD$"},     {"RcFUD", "^Rc+FD$"},         {"RcF", "^Rc+FD$"},    {"RcED", "^Rc+E$"},
                 {"SPBdMX", "^SPBd+bMX$"}, {"CIApdDqK", "^CIApd+DqZK$"}, {"RttFD", "^Rc*tFD$"}, {"Rc?FD", "^Rc+FD$"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        regex_t order;
        assert_int_equal(regcomp(&order, wrong[i].order, REG_EXTENDED | REG_NOSUB), 0);
        assert_int_equal(regexec(&order, wrong[i].letters, 0, NULL, 0), REG_NOMATCH);
        regfree(&order);
    }
}

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo.service_settings.fs = (struct file_system){.ops = &failing_ops};
    demo.service_settings.engine.experts_resident = 0.2; /* so that there are reads to fail */
    demo.service_settings.engine.streamed.device.make = make_pool;
    demo.service_settings.engine.prompt_cache_bytes = 0; /* no stream depends on the ones before it */
    demo_server_start(&demo);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    return 0;
}

int main(int argc, char **argv)
{
    records = argc > 1 && strcmp(argv[1], "--record") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_order_is_seen),
        cmocka_unit_test(streams_are_as_recorded),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
