/* Conversations whose state is kept: a turn costs its new tokens only, with reasoning that the template drops, also
 * after a restart; and a disk that fails stops nobody. */
#include "support/check.h"
#include "support/client.h"
#include "support/demo_server.h"
#include "support/faulty_write.h"
#include "support/temp_folder.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"

enum { TURNS = 8, RESTART_BEHIND = 4, PROMPT_MAX = 2048, TEXT_MAX = 4096 };

static const char *const questions[TURNS] = {
    "My name is Robert.",         "What is 12 + 30?",  "What is my name?", "What is the capital of Norway?",
    "Tell me about a small fox.", "What is 268 + 57?", "Thank you!",       "What is my name?",
};

struct talk {
    struct demo_server demo;
    struct temp_folder folder;
    struct faulty_write faulty;
    struct json_object *messages;
    bool thinks;
    uint32_t prompt[PROMPT_MAX], n_prompt; /* of the turn before */
    uint32_t n_answer;
    char answers[TURNS][TEXT_MAX];
};

static void start_on(struct talk *t, const char *dir)
{
    demo_server_init(&t->demo);
    t->demo.service_settings.ssd_dir = dir;
    t->demo.service_settings.ssd_bytes_max = UINT64_C(1) << 30;
    t->demo.service_settings.demote_idle_ns = INT64_C(3600000000000); /* only what ends writes */
    t->demo.service_settings.ws = faulty_write_system(&t->faulty);
    demo_server_start(&t->demo);
}

static void add_message(struct talk *t, const char *role, const char *text)
{
    struct json_object *message = json_object_new_object();
    json_object_object_add(message, "role", json_object_new_string(role));
    json_object_object_add(message, "content", json_object_new_string(text));
    json_object_array_add(t->messages, message);
}

/* What the template makes of the conversation so far. */
static uint32_t encode(struct talk *t, uint32_t *ids)
{
    struct err err = {0};
    struct token_list list;
    bool in_think;
    struct alloc alloc = {0};
    struct chat_request request = {.messages = t->messages, .options = {.thinking = t->thinks}};
    struct encoder *encoder = encoder_new(&alloc, t->demo.model.tokenizer, NULL, &err);
    token_list_init(&list, &alloc, PROMPT_MAX);
    if (!text_model_encode_chat(&t->demo.model, encoder, &request, &list, &in_think, &err)) fail_msg("%s", err.text);
    uint32_t n = (uint32_t)list.n;
    memcpy(ids, list.ids, n * sizeof *ids);
    token_list_fini(&list);
    encoder_free(encoder);
    return n;
}

static struct json_object *at(struct json_object *value, const char *path)
{
    struct json_object *found = NULL;
    json_pointer_get(value, path, &found);
    return found;
}

static struct json_object *ask(const struct talk *t, const char *path, const char *json)
{
    struct client_answer answer = client_ask(t->demo.port, path, json);
    if (answer.status != 200) fail_msg("%s: status %d: %s", path, answer.status, answer.body);
    struct json_object *value = json_tokener_parse(answer.body);
    assert_non_null(value);
    client_answer_free(&answer);
    return value;
}

/* One question; returns how many tokens of its prompt were known. */
static uint32_t take_turn(struct talk *t, int turn, uint32_t *n_prompt)
{
    struct json_object *body = json_object_new_object();
    add_message(t, "user", questions[turn]);
    json_object_object_add(body, "messages", json_object_get(t->messages));
    json_object_object_add(body, "enable_thinking", json_object_new_boolean(t->thinks));
    json_object_object_add(body, "max_tokens", json_object_new_int(96));
    struct json_object *reply = ask(t, CHAT, json_object_to_json_string(body));
    json_object_put(body);
    const char *content = json_object_get_string(at(reply, "/choices/0/message/content"));
    snprintf(t->answers[turn], TEXT_MAX, "%s", content ? content : "");
    add_message(t, "assistant", t->answers[turn]); /* reasoning is not sent back, as most clients do not */
    uint32_t n_known = (uint32_t)json_object_get_int(at(reply, "/usage/prompt_tokens_details/cached_tokens"));
    *n_prompt = (uint32_t)json_object_get_int(at(reply, "/usage/prompt_tokens"));
    t->n_answer = (uint32_t)json_object_get_int(at(reply, "/usage/completion_tokens"));
    json_object_put(reply);
    return n_known;
}

/* What of this prompt the sequence of the turn before certainly had: as much of its prompt as is common, and if that is
 * all, its answer too, without the id that the answer ended with. */
static uint32_t expect_known(struct talk *t, const uint32_t *prompt, uint32_t n)
{
    uint32_t same = 0;
    while (same < t->n_prompt && same < n && prompt[same] == t->prompt[same]) same++;
    if (same == t->n_prompt && !t->thinks) same += t->n_answer;
    return same < n ? same : n - 1;
}

static void converse(struct talk *t, bool thinks, bool restarts)
{
    uint32_t n_read = 0, n_all = 0, prompt[PROMPT_MAX];
    t->thinks = thinks;
    t->messages = json_object_new_array();
    t->n_prompt = 0;
    print_message("%s\n  turn  prompt  known  read\n", thinks ? "with reasoning, which the template drops" : "plain");
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t n_prompt;
        if (restarts && turn == RESTART_BEHIND) {
            demo_server_stop(&t->demo);
            start_on(t, t->folder.path);
            print_message("  (restart)\n");
        }
        add_message(t, "user", questions[turn]);
        uint32_t n = encode(t, prompt), n_expected = expect_known(t, prompt, n);
        json_object_array_del_idx(t->messages, json_object_array_length(t->messages) - 1, 1);
        uint32_t n_known = take_turn(t, turn, &n_prompt);
        assert_int_equal(n_prompt, n);
        print_message("  %4d  %6u  %5u  %4u\n", turn + 1, n, n_known, n - n_known);
        if (turn > 0 && n_known < n_expected) fail_msg("%u tokens were to be known at least", n_expected);
        memcpy(t->prompt, prompt, n * sizeof *prompt);
        t->n_prompt = n;
        n_read += n - n_known;
        n_all += n;
    }
    print_message("  %u of %u prompt tokens were read\n", n_read, n_all);
    json_object_put(t->messages);
}

static void a_turn_costs_its_new_tokens(void **state)
{
    (void)state;
    for (int thinks = 0; thinks < 2; thinks++) {
        struct talk *kept = calloc(1, sizeof *kept), *fresh = calloc(1, sizeof *fresh);
        temp_folder_make(&kept->folder);
        start_on(kept, kept->folder.path);
        converse(kept, thinks, true);
        struct service_stats stats;
        service_stats(kept->demo.service, &stats);
        print_message("  %llu tokens restored from disk in %.1f ms\n", (unsigned long long)stats.ssd.n_tokens_restored,
                      (double)stats.ssd.restore_ns / 1e6);
        assert_true(stats.ssd.n_tokens_restored > 0);
        demo_server_stop(&kept->demo);

        start_on(fresh, NULL); /* the same talk with a server that was never stopped */
        converse(fresh, thinks, false);
        demo_server_stop(&fresh->demo);
        for (int turn = 0; turn < TURNS; turn++) assert_string_equal(kept->answers[turn], fresh->answers[turn]);
        temp_folder_remove(&kept->folder);
        free(kept);
        free(fresh);
    }
}

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text ? strstr(text, word) : NULL; at; at = strstr(at + 1, word)) n++;
    return n;
}

static int failed_saves(const struct talk *t)
{
    struct service_stats stats;
    service_stats(t->demo.service, &stats);
    return (int)stats.ssd.n_failed;
}

static void see_warning(void *context, const struct err *warning)
{
    struct demo_server *demo = context;
    demo->settings.log(demo, warning->text);
}

/* Disk full, read-only folder, folder that vanished: every turn is answered, the log has one warning, the counter
 * moves. */
static void a_disk_that_fails_stops_nobody(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EROFS, 0};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct talk *t = calloc(1, sizeof *t);
        temp_folder_make(&t->folder);
        char dir[300];
        snprintf(dir, sizeof dir, "%s/states", t->folder.path);
        demo_server_init(&t->demo);
        t->demo.service_settings.ssd_dir = dir;
        t->demo.service_settings.ssd_bytes_max = UINT64_C(1) << 30;
        t->demo.service_settings.demote_idle_ns = 1; /* saved as soon as a turn is over */
        t->demo.service_settings.ws = faulty_write_system(&t->faulty);
        t->demo.service_settings.context = &t->demo;
        t->demo.service_settings.warned = see_warning;
        t->faulty.error = errors[i];
        demo_server_start(&t->demo);
        if (errors[i] == 0)
            assert_int_equal(rmdir(dir), 0);
        else
            t->faulty.stopped = true; /* from now on, every write fails; nobody writes yet */
        t->messages = json_object_new_array();
        for (int turn = 0; turn < 3; turn++) {
            uint32_t n_prompt, n_known = take_turn(t, turn, &n_prompt);
            assert_true(strlen(t->answers[turn]) > 0);
            if (turn > 0) assert_true(n_known > 0); /* memory still has it */
            int64_t until = clock_now_ns(clock_real()) + INT64_C(30000000000);
            while (failed_saves(t) == 0 && clock_now_ns(clock_real()) < until) clock_sleep_ns(clock_real(), 1000000);
            assert_true(failed_saves(t) > 0);
        }
        assert_non_null(strstr(t->answers[2], "Robert"));
        json_object_put(t->messages);
        struct service *service = t->demo.service;
        service_close(service);
        print_message("%d failed\n", failed_saves(t));
        pthread_mutex_lock(&t->demo.log_lock);
        assert_int_equal(count_of(t->demo.log, "the conversation goes on without it"), 1);
        print_message("%s\n", strstr(t->demo.log, "the cache of states"));
        pthread_mutex_unlock(&t->demo.log_lock);
        demo_server_stop(&t->demo);
        temp_folder_remove(&t->folder);
        free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_costs_its_new_tokens),
        cmocka_unit_test(a_disk_that_fails_stops_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
