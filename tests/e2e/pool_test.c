/* Several models behind one server, as a whole program: requests go where they say, engines take turns, and nobody's
 * answer suffers for it. */
#include "support/check.h"
#include "support/client.h"
#include "support/served.h"

#include <dirent.h>
#include <json-c/json.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define BEGUN "\"delta\":{\"content\":\"" /* and not only the chunk that comes while it waits */
#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}]"
#define BUDGET "1G"

enum { BUDGET_KIB = 1024 * 1024 };

static struct temp_folder folder; /* alpha and beta are the demo model, broken lacks its weights */
static char alpha[300], beta[300], broken[300];

static void link_file(const char *from, const char *dir, const char *name)
{
    char whole[PATH_MAX], to[600];
    assert_non_null(realpath(from, whole));
    snprintf(to, sizeof to, "%s/%s", dir, name);
    if (symlink(whole, to) != 0) fail_msg("%s: cannot be made", to);
}

static int make_models(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                        "generation_config.json"};
    char from[300];
    temp_folder_make(&folder);
    snprintf(alpha, sizeof alpha, "%s/alpha", folder.path);
    snprintf(beta, sizeof beta, "%s/beta", folder.path);
    snprintf(broken, sizeof broken, "%s/broken", folder.path);
    link_file("models/demo", folder.path, "alpha");
    link_file("models/demo", folder.path, "beta");
    assert_int_equal(mkdir(broken, 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "models/demo/%s", files[i]);
        link_file(from, broken, files[i]);
    }
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void start(struct served *s, const char *const *words)
{
    served_start(s, words);
    assert_true(served_wait_notified(s, "READY=1"));
    served_wait_listening(s);
}
#define START(s, ...) \
    start(s, (const char *const[]){__VA_ARGS__, "--temperature", "0", "--ram-budget", BUDGET, "--batch", "2", 0})

static void must_end_well(struct served *s)
{
    served_signal(s, SIGTERM);
    int code = served_wait_end(s);
    char *log = served_log(s);
    if (code != 0) fail_msg("exit code %d; its log:\n%s", code, log);
    free(log);
    served_fini(s);
}

static struct json_object *parse(const char *text)
{
    struct json_object *value = json_tokener_parse(text);
    if (!value) fail_msg("not JSON: %s", text);
    return value;
}

static struct json_object *get_json(struct served *s, const char *path)
{
    struct client_answer a;
    int fd = client_connect(s->port);
    client_get(fd, path, "Connection: close\r\n");
    client_read(fd, &a);
    close(fd);
    assert_int_equal(a.status, 200);
    struct json_object *value = parse(a.body);
    client_answer_free(&a);
    return value;
}

static struct json_object *at(struct json_object *value, const char *key)
{
    return json_object_object_get(value, key);
}

/* A member of the entry of a model in a list, as text. */
static void expect_entry(struct json_object *list, const char *id, const char *key, const char *text)
{
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *entry = json_object_array_get_idx(list, i);
        if (strcmp(json_object_get_string(at(entry, "id")), id) != 0) continue;
        const char *got = json_object_get_string(at(entry, key));
        if (!got || strcmp(got, text) != 0) fail_msg("%s: %s is %s, not %s", id, key, got ? got : "missing", text);
        return;
    }
    fail_msg("there is no %s", id);
}

static void expect_states(struct served *s, const char *of_alpha, const char *of_beta)
{
    struct json_object *models = get_json(s, "/v1/models"), *data = at(models, "data");
    expect_entry(data, "alpha", "state", of_alpha);
    expect_entry(data, "beta", "state", of_beta);
    json_object_put(models);
}

/* The content of an answer of this model; malloc'ed. */
static char *ask(struct served *s, const char *model, const char *shown)
{
    char body[512];
    snprintf(body, sizeof body, "{\"model\":\"%s\"," ASK ",\"max_tokens\":40,\"ignore_eos\":true}", model);
    struct client_answer a = client_ask(s->port, CHAT, body);
    if (a.status != 200) fail_msg("%s: %d %s", model, a.status, a.body);
    struct json_object *value = parse(a.body);
    struct json_object *choice = json_object_array_get_idx(at(value, "choices"), 0);
    assert_string_equal(json_object_get_string(at(value, "model")), shown);
    char *content = strdup(json_object_get_string(at(at(choice, "message"), "content")));
    json_object_put(value);
    client_answer_free(&a);
    return content;
}

static void expect_answer(struct served *s, const char *model, const char *shown, const char *content)
{
    char *got = ask(s, model, shown);
    assert_string_equal(got, content);
    free(got);
}

/* What a server with this model alone says. */
static char *alone(void)
{
    struct served s;
    START(&s, alpha);
    char *content = ask(&s, "alpha", "alpha");
    must_end_well(&s);
    assert_true(strstr(content, "Paris") != NULL);
    return content;
}

static void requests_go_where_they_say_and_answers_are_the_same(void **state)
{
    (void)state;
    struct served s;
    char *content = alone();
    START(&s, alpha, beta);
    expect_states(&s, "closed", "closed");
    expect_answer(&s, "beta", "beta", content);
    expect_states(&s, "closed", "open");
    expect_answer(&s, "alpha", "alpha", content);
    expect_states(&s, "open", "closed");
    expect_answer(&s, "gpt-4o-mini", "alpha", content); /* a name that an agent made up */
    expect_answer(&s, "beta", "beta", content);
    struct json_object *stats = get_json(&s, "/stats"), *models = at(stats, "models");
    assert_string_equal(json_object_get_string(at(stats, "model")), "beta");
    expect_entry(models, "alpha", "opened", "1");
    expect_entry(models, "beta", "opened", "2");
    expect_entry(models, "alpha", "pid", "0");
    json_object_put(stats);
    struct client_answer metrics;
    int fd = client_connect(s.port);
    client_get(fd, "/metrics", "Connection: close\r\n");
    client_read(fd, &metrics);
    close(fd);
    assert_non_null(strstr(metrics.body, "\nweir_model_opened_total{model=\"alpha\"} 1\n"));
    assert_non_null(strstr(metrics.body, "\nweir_model_opened_total{model=\"beta\"} 2\n"));
    client_answer_free(&metrics);
    must_end_well(&s);
    free(content);
}

static void strict_names_are_refused_with_all_that_there_are(void **state)
{
    (void)state;
    struct served s;
    START(&s, alpha, beta, "--strict-model");
    struct client_answer a = client_ask(s.port, CHAT, "{\"model\":\"gamma\"," ASK "}");
    assert_int_equal(a.status, 404);
    assert_non_null(strstr(a.body, "'alpha', 'beta'"));
    client_answer_free(&a);
    must_end_well(&s);
}

static void with_two_seats_both_stay(void **state)
{
    (void)state;
    struct served s;
    START(&s, alpha, beta, "--model-pool", "2");
    for (int i = 0; i < 3; i++) {
        free(ask(&s, "alpha", "alpha"));
        free(ask(&s, "beta", "beta"));
    }
    expect_states(&s, "open", "open");
    struct json_object *stats = get_json(&s, "/stats");
    expect_entry(at(stats, "models"), "alpha", "opened", "1");
    expect_entry(at(stats, "models"), "beta", "opened", "1");
    json_object_put(stats);
    struct json_object *plan = get_json(&s, "/fit");
    assert_int_equal(json_object_get_int64(at(plan, "budget")),
                     (int64_t)BUDGET_KIB * 1024 / 2); /* each has its share */
    json_object_put(plan);
    must_end_well(&s);
}

/* --- turns --- */

static int stream(struct served *s, const char *model, unsigned n_tokens)
{
    char body[512];
    int fd = client_connect(s->port);
    snprintf(body, sizeof body, "{\"model\":\"%s\"," ASK ",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":%u}",
             model, n_tokens);
    client_post(fd, CHAT, body, NULL);
    return fd;
}

static void an_answer_that_runs_ends_before_another_model_comes(void **state)
{
    (void)state;
    enum { WAITING = 3 };
    struct served s;
    int waiting[WAITING];
    START(&s, alpha, beta, "--context-length", "8192");
    int running = stream(&s, "alpha", 1500);
    assert_true(client_read_until(running, BEGUN, 30000));
    for (int i = 0; i < WAITING; i++) waiting[i] = stream(&s, "beta", 20); /* they wait for alpha's answer */
    int late = stream(&s, "alpha", 20);                                    /* and this one for theirs, or runs beside */
    assert_true(client_read_until(running, "\"finish_reason\":\"length\"", 60000));
    for (int i = 0; i < WAITING; i++) assert_true(client_read_until(waiting[i], "data: [DONE]", 60000));
    assert_true(client_read_until(late, "data: [DONE]", 60000));
    for (int i = 0; i < WAITING; i++) close(waiting[i]);
    close(running);
    close(late);
    must_end_well(&s);
}

/* Who leaves while it waits for a turn is not waited for. */
static void a_turn_that_nobody_wants_any_more_is_not_taken(void **state)
{
    (void)state;
    struct served s;
    START(&s, alpha, beta, "--context-length", "32768");
    int running = stream(&s, "alpha", 32000);
    assert_true(client_read_until(running, BEGUN, 30000));
    int leaves = stream(&s, "beta", 20);
    assert_true(client_read_until(leaves, "text/event-stream", 30000)); /* the queue has it */
    close(leaves);
    for (int64_t open = 2, tries = 0; open > 0; tries++) {
        assert_true(tries < 100000);
        struct json_object *stats = get_json(&s, "/stats"), *models = at(stats, "models");
        struct json_object *of_beta = json_object_array_get_idx(models, 1);
        open = json_object_get_int64(at(of_beta, "open"));
        json_object_put(stats);
    }
    struct json_object *stats = get_json(&s, "/stats");
    expect_entry(at(stats, "models"), "beta", "opened", "0");
    expect_entry(at(stats, "models"), "alpha", "open", "1");
    json_object_put(stats);
    close(running);
    must_end_well(&s);
}

static void many_clients_of_two_models_are_all_answered(void **state)
{
    (void)state;
    enum { CLIENTS = 16, ROUNDS = 3 };
    struct served s;
    int fds[CLIENTS];
    char *content = alone();
    START(&s, alpha, beta);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            char body[512];
            fds[i] = client_connect(s.port);
            snprintf(body, sizeof body, "{\"model\":\"%s\"," ASK ",\"max_tokens\":40,\"ignore_eos\":true}",
                     i % 2 ? "alpha" : "beta");
            client_post(fds[i], CHAT, body, NULL);
        }
        for (int i = 0; i < CLIENTS; i++) {
            struct client_answer a;
            client_read(fds[i], &a);
            if (a.status != 200) fail_msg("client %d: %d %s", i, a.status, a.body);
            struct json_object *value = parse(a.body);
            struct json_object *choice = json_object_array_get_idx(at(value, "choices"), 0);
            assert_string_equal(json_object_get_string(at(value, "model")), i % 2 ? "alpha" : "beta");
            assert_string_equal(json_object_get_string(at(at(choice, "message"), "content")), content);
            json_object_put(value);
            client_answer_free(&a);
            close(fds[i]);
        }
    }
    must_end_well(&s);
    free(content);
}

/* --- trouble --- */

static void a_model_that_does_not_open_is_an_error_of_its_own(void **state)
{
    (void)state;
    struct served s;
    char *content = alone();
    START(&s, alpha, broken);
    expect_answer(&s, "alpha", "alpha", content);
    for (int i = 0; i < 2; i++) { /* the second is told at once */
        struct client_answer a = client_ask(s.port, CHAT, "{\"model\":\"broken\"," ASK "}");
        assert_int_equal(a.status, 502);
        assert_non_null(strstr(a.body, "\"engine_unavailable\""));
        assert_non_null(strstr(a.body, "could not be opened"));
        assert_null(strstr(a.body, folder.path)); /* clients are told no paths; the log is */
        client_answer_free(&a);
    }
    char *log = served_log(&s);
    assert_non_null(strstr(log, "event=engine_not_opened model=\"broken\""));
    assert_non_null(strstr(log, broken));
    free(log);
    struct json_object *models = get_json(&s, "/v1/models");
    expect_entry(at(models, "data"), "broken", "state", "error");
    json_object_put(models);
    expect_answer(&s, "alpha", "alpha", content); /* nobody else is the worse for it */
    must_end_well(&s);
    free(content);
}

static int64_t engine_of(struct served *s)
{
    struct json_object *stats = get_json(s, "/stats");
    int64_t pid = json_object_get_int64(at(at(stats, "engine"), "pid"));
    json_object_put(stats);
    assert_true(pid > 0);
    return pid;
}

static void an_engine_that_crashes_takes_its_own_answers_with_it(void **state)
{
    (void)state;
    struct served s;
    char *content = alone();
    START(&s, alpha, beta, "--context-length", "32768");
    int running = stream(&s, "alpha", 32000);
    assert_true(client_read_until(running, BEGUN, 30000));
    int waiting = stream(&s, "beta", 20);
    assert_true(client_read_until(waiting, "text/event-stream", 30000));
    assert_int_equal(kill((pid_t)engine_of(&s), SIGKILL), 0);
    assert_true(client_read_until(running, "engine_unavailable", 30000));
    assert_true(client_read_until(waiting, "data: [DONE]", 30000)); /* which waited for the seat */
    close(running);
    close(waiting);
    expect_answer(&s, "alpha", "alpha", content); /* opened anew */
    must_end_well(&s);
    free(content);
}

static void an_end_lets_all_that_were_taken_be_answered(void **state)
{
    (void)state;
    struct served s;
    START(&s, alpha, beta, "--context-length", "8192", "--drain-time", "300");
    int running = stream(&s, "alpha", 600);
    assert_true(client_read_until(running, BEGUN, 30000));
    int waiting = stream(&s, "beta", 20); /* asked for now: two at once are taken in any order */
    assert_true(client_read_until(waiting, "text/event-stream", 30000));
    served_signal(&s, SIGTERM);
    assert_true(client_read_until(running, "\"finish_reason\":\"length\"", 60000));
    assert_true(client_read_until(waiting, "\"finish_reason\":\"length\"", 60000));
    close(running);
    close(waiting);
    assert_int_equal(served_wait_end(&s), 0);
    served_fini(&s);
}

static void expect_told(int fd)
{
    char *rest = client_read_to_end(fd);
    if (!strstr(rest, "\"shutting_down\"")) fail_msg("the end is not told:\n%s", rest);
    free(rest);
    close(fd);
}

/* A seat that comes free at the very end is nobody's. */
static void an_end_without_patience_opens_nothing_more(void **state)
{
    (void)state;
    struct served s;
    START(&s, alpha, beta, "--context-length", "32768", "--drain-time", "0");
    int running = stream(&s, "alpha", 32000);
    assert_true(client_read_until(running, BEGUN, 30000));
    int waiting = stream(&s, "beta", 20); /* asked for now: two at once are taken in any order */
    assert_true(client_read_until(waiting, "text/event-stream", 30000));
    served_signal(&s, SIGTERM);
    expect_told(running);
    expect_told(waiting);
    assert_int_equal(served_wait_end(&s), 0);
    char *log = served_log(&s);
    assert_non_null(strstr(log, "event=ready model=\"alpha\""));
    assert_null(strstr(log, "event=ready model=\"beta\""));
    free(log);
    served_fini(&s);
}

/* Swaps leave nothing behind, and no process grows beyond what all may hold. */
static void swaps_stay_inside_the_budget(void **state)
{
    (void)state;
    enum { SWAPS = 10 };
    struct served s;
    long most_kib = 0;
    START(&s, alpha, beta);
    for (int i = 0; i < SWAPS; i++) {
        char path[64], line[256];
        free(ask(&s, i % 2 ? "alpha" : "beta", i % 2 ? "alpha" : "beta"));
        snprintf(path, sizeof path, "/proc/%lld/status", (long long)engine_of(&s));
        FILE *status = fopen(path, "r");
        assert_non_null(status);
        while (fgets(line, sizeof line, status)) {
            long kib;
            if (sscanf(line, "VmHWM: %ld", &kib) == 1 && kib > most_kib) most_kib = kib;
        }
        fclose(status);
    }
    struct json_object *stats = get_json(&s, "/stats");
    expect_entry(at(stats, "models"), "alpha", "opened", "5");
    expect_entry(at(stats, "models"), "beta", "opened", "5");
    json_object_put(stats);
    printf("%d swaps; engines held %ld MiB at most, of a budget of " BUDGET "\n", SWAPS, most_kib / 1024);
    assert_true(most_kib > 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(most_kib <= BUDGET_KIB);
#endif
    must_end_well(&s);
}

/* Bytes of the states that a model left in a folder of its own; 0: there is none. */
static uint64_t bytes_of_states(const char *dir, const char *model)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, model);
    DIR *folder_of = opendir(path);
    uint64_t bytes = 0;
    if (!folder_of) return 0;
    for (const struct dirent *entry; (entry = readdir(folder_of)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(folder_of), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) bytes += (uint64_t)st.st_size;
    }
    closedir(folder_of);
    return bytes;
}

static void states_on_disk_have_a_folder_for_each_model(void **state)
{
    (void)state;
    struct served s;
    char states[300];
    snprintf(states, sizeof states, "%s/states", folder.path); /* nobody has made it */
    START(&s, alpha, beta, "--ssd-cache", states);
    free(ask(&s, "alpha", "alpha"));
    free(ask(&s, "beta", "beta"));
    must_end_well(&s);
    assert_true(bytes_of_states(states, "alpha") > 0);
    assert_true(bytes_of_states(states, "beta") > 0);
}

static void states_of_all_models_share_one_cap(void **state)
{
    (void)state;
    static const char *const models[] = {"alpha", "beta"};
    struct served s;
    char states[300];
    snprintf(states, sizeof states, "%s/capped", folder.path);
    START(&s, alpha, beta, "--ssd-cache", states, "--ssd-cache-max", "1M"); /* of one model, that is three states */
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int question = 0; question < 4; question++) {
            char body[256];
            snprintf(body, sizeof body,
                     "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"%d, what is it?\"}],"
                     "\"max_tokens\":4}",
                     models[i], 7 * question);
            struct client_answer a = client_ask(s.port, CHAT, body);
            assert_int_equal(a.status, 200);
            client_answer_free(&a);
        }
    must_end_well(&s);
    uint64_t bytes = bytes_of_states(states, "alpha") + bytes_of_states(states, "beta");
    print_message("%d KiB of states\n", (int)(bytes / 1024));
    assert_true(bytes > 0);
    assert_true(bytes <= 1 << 20);
}

static void names_and_budgets_that_cannot_be_are_refused(void **state)
{
    (void)state;
    char twin[300], same[400];
    snprintf(twin, sizeof twin, "%s/twin", folder.path);
    snprintf(same, sizeof same, "%s/alpha/", twin);
    assert_int_equal(mkdir(twin, 0700), 0);
    link_file("models/demo", twin, "alpha");
    const struct {
        const char *words[8], *said;
    } lines[] = {
        {{alpha, same, NULL}, "two models would be called 'alpha'"},
        {{alpha, beta, "--alias", "one", NULL}, "--alias names one model"},
        {{alpha, beta, "--model-pool", "2", NULL}, "needs --ram-budget"},
        {{alpha, beta, "--model-pool", "0", NULL}, "--model-pool"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct served s;
        served_start(&s, lines[i].words);
        int code = served_wait_end(&s);
        char *log = served_log(&s);
        if (code != 2 || !strstr(log, lines[i].said)) fail_msg("line %d: exit code %d\n%s", (int)i, code, log);
        free(log);
        served_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_go_where_they_say_and_answers_are_the_same),
        cmocka_unit_test(strict_names_are_refused_with_all_that_there_are),
        cmocka_unit_test(with_two_seats_both_stay),
        cmocka_unit_test(an_answer_that_runs_ends_before_another_model_comes),
        cmocka_unit_test(a_turn_that_nobody_wants_any_more_is_not_taken),
        cmocka_unit_test(many_clients_of_two_models_are_all_answered),
        cmocka_unit_test(a_model_that_does_not_open_is_an_error_of_its_own),
        cmocka_unit_test(an_engine_that_crashes_takes_its_own_answers_with_it),
        cmocka_unit_test(an_end_lets_all_that_were_taken_be_answered),
        cmocka_unit_test(an_end_without_patience_opens_nothing_more),
        cmocka_unit_test(swaps_stay_inside_the_budget),
        cmocka_unit_test(states_on_disk_have_a_folder_for_each_model),
        cmocka_unit_test(states_of_all_models_share_one_cap),
        cmocka_unit_test(names_and_budgets_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
