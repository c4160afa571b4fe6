#include "cli/selftest.h"
#include "fmt/json_doc.h"
#include "serve/server.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ANSWER_BYTES_MAX = 1 << 20,
    KILL_AT_BYTES = 300, /* of an answer that streams: some of it has come, most has not */
    POLL_MS = 5,
    PATIENCE_S = 30,
};
#define NS_PER_S INT64_C(1000000000)
#define DISK_BYTES_MAX (UINT64_C(1) << 30)
#define IDLE_NS INT64_C(1000000) /* a state is saved as soon as nobody uses it */

/* --- the server, in a process that only a signal ends --- */

struct serving_model {
    struct alloc alloc;
    struct config config;
    struct text_model model;
    struct access_rules access;
    struct sampling sampling;
    struct service *service;
    struct served_model served;
    struct server *server;
};

/* What it tells through a pipe. */
struct word {
    uint16_t port; /* 0: it failed */
    struct err err;
};

static bool start_service(struct serving_model *m, const struct selftest_way *way, const char *folder, struct err *err)
{
    struct service_settings settings = {
        .fs = file_system_real(),
        .model = &m->model,
        .n_waiting_max = 4,
        .decode_stall_ns_max = NS_PER_S,
        .ssd_dir = folder,
        .ssd_bytes_max = DISK_BYTES_MAX,
        .demote_idle_ns = IDLE_NS,
        .ws = write_system_real(),
        .clock = clock_real(),
    };
    settings.engine = selftest_engine_settings(way);
    settings.engine.logit_rows += SELFTEST_LOGIT_ROWS;
    if (!service_new(&m->service, &m->alloc, &settings, err)) return false;
    for (int ms = 0; service_state(m->service, err) == SERVICE_LOADING && ms < PATIENCE_S * 1000; ms += POLL_MS)
        poll(NULL, 0, POLL_MS);
    enum service_state state = service_state(m->service, err);
    if (state == SERVICE_LOADING) return err_set(err, ERR_FAILED, "the model did not open in %d seconds", PATIENCE_S);
    return state == SERVICE_READY;
}

static void forget_line(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static bool start_server(struct serving_model *m, struct err *err)
{
    m->served = (struct served_model){.name = "selftest",
                                      .fingerprint = "weir-selftest",
                                      .numerics = "exact",
                                      .kv = "f32",
                                      .text = &m->model,
                                      .service = m->service,
                                      .sampling = &m->sampling,
                                      .context_tokens = SELFTEST_CONTEXT};
    const struct server_settings settings = {
        .host = "127.0.0.1",
        .n_connections_max = 4,
        .body_bytes_max = ANSWER_BYTES_MAX,
        .queue_ns_max = PATIENCE_S * NS_PER_S,
        .silence_s = PATIENCE_S,
        .stall_s = PATIENCE_S,
        .keep_alive_ns = PATIENCE_S * NS_PER_S,
        .backlog_bytes_max = ANSWER_BYTES_MAX,
        .access = &m->access,
        .models = &m->served,
        .n_models = 1,
        .clock = clock_real(),
        .log = forget_line,
    };
    snprintf(m->access.bound_host, sizeof m->access.bound_host, "%s", settings.host);
    return server_start(&m->server, &m->alloc, &settings, err);
}

static void serve_until_killed(const struct selftest_way *way, const char *folder, int pipe_end)
{
    static struct serving_model m; /* of a process of its own, which gives nothing back */
    struct word word = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool ok = config_read(&m.config, &m.alloc, file_system_real(), way->folder, &word.err) &&
              text_model_open(&m.model, &m.alloc, file_system_real(), way->folder, &m.config, &word.err);
    m.sampling = m.model.defaults;
    ok = ok && start_service(&m, way, folder, &word.err) && start_server(&m, &word.err);
    if (ok) word.port = server_port(m.server);
    (void)!write(pipe_end, &word, sizeof word);
    for (;;) pause();
}

/* --- its life --- */

struct child {
    pid_t pid; /* 0: none */
    uint16_t port;
};

static void end_child(struct child *child)
{
    if (child->pid <= 0) return;
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) continue;
    child->pid = 0;
}

static bool start_child(struct child *child, const struct selftest_way *way, const char *folder, struct err *err)
{
    int ends[2];
    struct word word = {0};
    ssize_t n = 0;
    if (pipe(ends) != 0) return err_set(err, ERR_IO, "a pipe cannot be made: %s", strerror(errno));
    child->pid = fork(); /* no engine is open here, so there is one thread */
    if (child->pid == 0) serve_until_killed(way, folder, ends[1]);
    close(ends[1]);
    if (child->pid > 0)
        while ((n = read(ends[0], &word, sizeof word)) < 0 && errno == EINTR) continue;
    close(ends[0]);
    if (child->pid < 0) return err_set(err, ERR_IO, "a process cannot be started: %s", strerror(errno));
    child->port = word.port;
    if (n == (ssize_t)sizeof word && word.port > 0) return true;
    if (n == (ssize_t)sizeof word)
        *err = word.err;
    else
        err_set(err, ERR_FAILED, "the server ended by itself");
    end_child(child);
    return false;
}

/* --- what is asked --- */

static bool make_question(struct buf *out, bool streams, struct err *err)
{
    buf_clear(out);
    if (!buf_add_text(out, "{\"model\": \"selftest\", \"prompt\": [", err)) return false;
    for (uint32_t i = 0; i < SELFTEST_PROMPT; i++)
        if (!buf_printf(out, err, "%s%" PRIu32, i ? ", " : "", selftest_prompt(i))) return false;
    return buf_printf(out, err,
                      "], \"max_tokens\": %d, \"temperature\": 0, \"ignore_eos\": true, \"logprobs\": 1, \"stream\": "
                      "%s}",
                      SELFTEST_ANSWER, streams ? "true" : "false");
}

static struct json_object *member(struct json_object *object, const char *name)
{
    struct json_object *value = NULL;
    if (json_object_is_type(object, json_type_object)) json_object_object_get_ex(object, name, &value);
    return value;
}

static bool check_tokens(struct json_object *logprobs, const struct transcript *want, struct err *err)
{
    struct json_object *tokens = member(logprobs, "tokens");
    if (!json_object_is_type(tokens, json_type_array) || json_object_array_length(tokens) != SELFTEST_ANSWER)
        return err_set(err, ERR_FAILED, "the served answer has not %d tokens", SELFTEST_ANSWER);
    for (uint32_t i = 0; i < SELFTEST_ANSWER; i++) {
        char text[SELFTEST_TOKEN_TEXT];
        const char *got = json_object_get_string(json_object_array_get_idx(tokens, i));
        selftest_token_text(text, want->ids[i]);
        if (!got || strcmp(got, text) != 0)
            return err_set(err, ERR_FAILED, "token %" PRIu32 " of the served answer is '%s', not '%s'", i,
                           got ? got : "null", text);
    }
    return true;
}

/* The whole answer. What is said of its likelihood goes to `likelihood`, as text. */
static bool ask_for_answer(const struct child *child, struct alloc *alloc, const struct transcript *want,
                           struct buf *likelihood, uint32_t *n_cached, struct err *err)
{
    struct buf question, answer;
    struct json_object *doc = NULL;
    buf_init(&question, alloc, ANSWER_BYTES_MAX);
    buf_init(&answer, alloc, ANSWER_BYTES_MAX);
    bool ok = make_question(&question, false, err) &&
              selftest_ask(&answer, child->port, "/v1/completions", question.data, 0, err) &&
              json_doc_parse(&doc, alloc, &json_rules_request, "the served answer", answer.data, answer.bytes, err);
    if (ok) {
        struct json_object *details = member(member(doc, "usage"), "prompt_tokens_details");
        struct json_object *choices = member(doc, "choices");
        bool is_list = json_object_is_type(choices, json_type_array);
        struct json_object *logprobs = member(is_list ? json_object_array_get_idx(choices, 0) : NULL, "logprobs");
        *n_cached = (uint32_t)json_object_get_int64(member(details, "cached_tokens"));
        buf_clear(likelihood);
        ok = check_tokens(logprobs, want, err) && buf_add_text(likelihood, json_object_to_json_string(logprobs), err);
    }
    json_object_put(doc);
    buf_fini(&answer);
    buf_fini(&question);
    return ok;
}

static bool ask_for_numbers(const struct child *child, struct alloc *alloc, uint32_t *n_saved, uint32_t *n_drafted,
                            struct err *err)
{
    struct buf answer;
    struct json_object *doc = NULL;
    buf_init(&answer, alloc, ANSWER_BYTES_MAX);
    bool ok = selftest_ask(&answer, child->port, "/stats", NULL, 0, err) &&
              json_doc_parse(&doc, alloc, &json_rules_request, "/stats", answer.data, answer.bytes, err);
    if (ok) {
        *n_saved = (uint32_t)json_object_get_int64(member(member(doc, "ssd_cache"), "saved"));
        *n_drafted = (uint32_t)json_object_get_int64(member(member(doc, "speculation"), "drafted"));
    }
    json_object_put(doc);
    buf_fini(&answer);
    return ok;
}

static bool wait_until_saved(const struct child *child, struct alloc *alloc, uint32_t *n_drafted, struct err *err)
{
    uint32_t n_saved = 0;
    for (int ms = 0; ms < PATIENCE_S * 1000; ms += POLL_MS) {
        if (!ask_for_numbers(child, alloc, &n_saved, n_drafted, err)) return false;
        if (n_saved > 0) return true;
        poll(NULL, 0, POLL_MS);
    }
    return err_set(err, ERR_FAILED, "the server did not save its state in %d seconds", PATIENCE_S);
}

static bool kill_while_it_answers(struct child *child, struct alloc *alloc, uint32_t *n_bytes, struct err *err)
{
    struct buf question, answer;
    buf_init(&question, alloc, ANSWER_BYTES_MAX);
    buf_init(&answer, alloc, ANSWER_BYTES_MAX);
    bool ok = make_question(&question, true, err) &&
              selftest_ask(&answer, child->port, "/v1/completions", question.data, KILL_AT_BYTES, err);
    *n_bytes = (uint32_t)answer.bytes;
    end_child(child);
    buf_fini(&answer);
    buf_fini(&question);
    return ok;
}

static bool serve_twice(struct served *out, struct alloc *alloc, struct child *child, const struct selftest_way *way,
                        const char *folder, const struct transcript *want, struct buf likelihood[2], struct err *err)
{
    uint32_t n_none = 0;
    if (!start_child(child, way, folder, err)) return false;
    if (!ask_for_answer(child, alloc, want, &likelihood[0], &n_none, err)) return false;
    if (!wait_until_saved(child, alloc, &out->n_drafted, err)) return false;
    if (!kill_while_it_answers(child, alloc, &out->n_killed_at, err)) return false;
    if (!start_child(child, way, folder, err)) return false;
    if (!ask_for_answer(child, alloc, want, &likelihood[1], &out->n_cached, err)) return false;
    if (n_none > 0) return err_set(err, ERR_FAILED, "a new server knew %" PRIu32 " tokens already", n_none);
    if (out->n_cached == 0) return err_set(err, ERR_FAILED, "the second server found nothing on disk");
    if (way->n_drafts > 0 && out->n_drafted == 0) return err_set(err, ERR_FAILED, "the server drafted nothing");
    return strcmp(likelihood[0].data, likelihood[1].data) == 0 ||
           err_set(err, ERR_FAILED, "the second server tells other log-probabilities than the first");
}

bool selftest_serve(struct served *out, struct alloc *alloc, const struct selftest_way *way, const char *folder,
                    const struct transcript *want, struct err *err)
{
    struct child child = {0};
    struct buf likelihood[2];
    *out = (struct served){0};
    for (int i = 0; i < 2; i++) buf_init(&likelihood[i], alloc, ANSWER_BYTES_MAX);
    bool ok = serve_twice(out, alloc, &child, way, folder, want, likelihood, err);
    end_child(&child);
    for (int i = 0; i < 2; i++) buf_fini(&likelihood[i]);
    return ok;
}
