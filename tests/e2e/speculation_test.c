/* What the server tells about drafts, with the demo model over real sockets and three drafts a pass: usage of every
 * answer, sums in /stats and /metrics, the way of drafting in /v1/models; and that all of these agree. */
#include "support/check.h"
#include "support/demo_server.h"
#include "support/json_answer.h"

#include <json-c/json.h>
#include <math.h>

enum { DEPTH = 3, ANSWERS = 4, SEEDS = 4 };

#define CHAT "/v1/chat/completions"
#define USED "/usage/speculation/"

static struct demo_server demo;

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo.service_settings.engine.drafts = (struct draft_choice){.kind = DRAFT_MTP, .n_max = DEPTH};
    demo_server_start(&demo);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    return 0;
}

static double real_at(struct json_object *value, const char *path)
{
    struct json_object *at = json_at(value, path);
    if (!at || !(json_object_is_type(at, json_type_double) || json_object_is_type(at, json_type_int)))
        fail_msg("%s is no number in %s", path, json_object_to_json_string(value));
    return json_object_get_double(at);
}

static void models_tell_the_way(void **state)
{
    (void)state;
    struct json_object *models = json_ask(demo.port, "/v1/models", NULL, NULL, 200);
    assert_string_equal(json_text_at(models, "/data/0/speculation/mode"), "mtp");
    assert_string_equal(json_text_at(models, "/data/0/speculation/depth"), "fixed");
    assert_int_equal(json_int_at(models, "/data/0/speculation/max_drafts"), DEPTH);
    json_object_put(models);
}

/* An answer may be there before its last pass is in the sums. */
static struct json_object *stats_with(int64_t n_drafted)
{
    int64_t until_ns = clock_now_ns(clock_real()) + INT64_C(60000000000);
    for (;;) {
        struct json_object *stats = json_ask(demo.port, "/stats", NULL, NULL, 200);
        if (json_int_at(stats, "/speculation/drafted") == n_drafted) return stats;
        if (clock_now_ns(clock_real()) > until_ns)
            fail_msg("not %lld drafts in %s", (long long)n_drafted, json_object_to_json_string(stats));
        json_object_put(stats);
        clock_sleep_ns(clock_real(), 1000000);
    }
}

/* Every answer says what its own drafts brought: the first id comes with the prompt's pass, each other pass brings one
 * and the drafts that were accepted. */
static void usage_and_sums_agree(void **state)
{
    static const char *const questions[ANSWERS] = {"What is the capital of Norway?", "What is 12 times 12?",
                                                   "Tell me a story about a fox named Lena.", "Hello!"};
    int64_t drafted = 0, accepted = 0, forced = 0, generated = 0;
    (void)state;
    for (int i = 0; i < ANSWERS; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                 questions[i]);
        struct json_object *answer = json_ask(demo.port, CHAT, body, NULL, 200);
        int64_t passes = json_int_at(answer, USED "targetCalls"), ids = json_int_at(answer, "/usage/completion_tokens");
        int64_t came = json_int_at(answer, USED "accepted"), all = json_int_at(answer, USED "drafted");
        const char *lane = json_text_at(answer, "/usage/lane");
        assert_true(strcmp(lane, "serial+spec") == 0 || strcmp(lane, "batch+spec") == 0);
        assert_int_equal(json_int_at(answer, USED "rounds"), passes);
        assert_true(came <= all && all <= DEPTH * passes);
        /* an answer that ends with an id that is not given out had one pass, or a draft of one, for that */
        int64_t given = passes + came + json_int_at(answer, USED "forced");
        if (ids != given && ids != given - 1) fail_msg("%s", json_object_to_json_string(answer));
        assert_true(fabs(real_at(answer, USED "tokensPerForward") - (double)ids / (double)passes) < 1e-3);
        drafted += all;
        accepted += came;
        forced += json_int_at(answer, USED "forced");
        generated += ids;
        json_object_put(answer);
    }
    assert_true(accepted > 0); /* or nothing was seen */

    struct json_object *stats = stats_with(drafted);
    assert_string_equal(json_text_at(stats, "/speculation/mode"), "mtp");
    assert_string_equal(json_text_at(stats, "/speculation/depth"), "fixed");
    assert_int_equal(json_int_at(stats, "/speculation/drafted"), drafted);
    assert_int_equal(json_int_at(stats, "/speculation/accepted"), accepted);
    assert_int_equal(json_int_at(stats, "/speculation/forced"), forced);
    assert_int_equal(json_int_at(stats, "/speculation/forwards_saved"), accepted + forced);
    assert_true(real_at(stats, "/speculation/tokens_per_forward") > 1);
    int64_t by_depth = 0, rows = 0;
    for (int n = 0; n < DRAFT_DEPTHS; n++) {
        char path[64];
        snprintf(path, sizeof path, "/speculation/rows_by_drafts/%d", n);
        by_depth += n * json_int_at(stats, path);
        rows += json_int_at(stats, path);
        if (n > DEPTH) assert_int_equal(json_int_at(stats, path), 0);
    }
    assert_int_equal(by_depth, drafted);
    assert_true(rows >= json_int_at(stats, "/speculation/passes") && json_int_at(stats, "/speculation/passes") > 0);
    assert_int_equal(json_int_at(stats, "/speculation/trials"), 0);
    assert_true(json_int_at(stats, "/speculation/added_experts") >= 0);
    assert_true(json_int_at(stats, "/speculation/added_bytes") >= 0);
    assert_true(real_at(stats, "/speculation/draft_seconds_total") > 0);
    assert_true(isfinite(real_at(stats, "/speculation/expected_gain_seconds")));
    assert_true(isfinite(real_at(stats, "/speculation/gain_seconds")));
    for (int j = 0; j < DEPTH; j++) {
        char path[64];
        snprintf(path, sizeof path, "/speculation/estimate/acceptance/%d", j);
        assert_true(real_at(stats, path) > 0 && real_at(stats, path) <= 1);
        snprintf(path, sizeof path, "/speculation/estimate/pass_seconds/%d", j);
        assert_true(real_at(stats, path) > 0);
    }
    json_object_put(stats);
    assert_true(generated > 0);
}

/* Behind each draft that came true, what is allowed next is wanted at once: by then its thread has rarely begun. */
static void constrained_answers_are_what_they_are_without_drafts(void **state)
{
    (void)state;
    struct demo_server plain;
    int64_t accepted = 0;
    demo_server_init(&plain);
    plain.service_settings.engine.drafts = (struct draft_choice){.kind = DRAFT_OFF};
    demo_server_start(&plain);
    for (int seed = 1; seed <= SEEDS; seed++) {
        char body[256];
        snprintf(
            body, sizeof body,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"An object, please.\"}],\"seed\":%d,\"temperature\":0.8,"
            "\"max_tokens\":100,\"response_format\":{\"type\":\"json_object\"}}",
            seed);
        struct json_object *drafted = json_ask(demo.port, CHAT, body, NULL, 200);
        struct json_object *alone = json_ask(plain.port, CHAT, body, NULL, 200);
        assert_string_equal(json_text_at(drafted, "/choices/0/message/content"),
                            json_text_at(alone, "/choices/0/message/content"));
        accepted += json_int_at(drafted, USED "accepted");
        json_object_put(drafted);
        json_object_put(alone);
    }
    struct json_object *stats = json_ask(demo.port, "/stats", NULL, NULL, 200);
    print_message("%lld drafts accepted, %lld of %lld masks were not there yet\n", (long long)accepted,
                  (long long)json_int_at(stats, "/masks/waits"), (long long)json_int_at(stats, "/masks/made"));
    assert_true(accepted > 0);
    json_object_put(stats);
    demo_server_stop(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_tell_the_way),
        cmocka_unit_test(usage_and_sums_agree),
        cmocka_unit_test(constrained_answers_are_what_they_are_without_drafts),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
