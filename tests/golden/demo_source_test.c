/* The bf16 checkpoint that models/demo was made from, against what transformers computed with it in float32: the greedy
 * ids of 21 prompts, and the 20 likeliest ids of every step. The checkpoint is 58 MB and not in the tree: without the
 * folder tests/fixtures/demo-src, or one that DEMO_SOURCE names, this is skipped. */
#include "run/logprob.h"
#include "run/session.h"
#include "support/check.h"
#include "support/lines.h"

#include <inttypes.h>
#include <json-c/json_object.h>
#include <math.h>
#include <stdlib.h>

/* Of a log-probability. Sums in another order differ by some 1e-4 at this spread of logits; a mistake by far more. */
#define TOLERANCE 2e-3

enum { TOP = 20, SKIPPED = 77 };

struct comparing {
    struct engine *engine;
    uint32_t vocab;
    size_t n_prompts, n_steps;
    double worst;
};

static void compare_row(struct comparing *c, const float *logits, struct json_object *step, size_t prompt, size_t at)
{
    struct logprobs got;
    struct err err = {0};
    struct json_object *ids = json_object_object_get(step, "ids");
    struct json_object *values = json_object_object_get(step, "logprobs");
    assert_int_equal(json_object_array_length(ids), TOP);
    if (!logprob_row(&got, logits, c->vocab, 0, TOP, &err)) fail_msg("%s", err.text);
    double norm = logprob_norm(logits, c->vocab);
    for (size_t k = 0; k < TOP; k++) {
        uint32_t id = (uint32_t)json_object_get_int(json_object_array_get_idx(ids, k));
        double want = json_object_get_double(json_object_array_get_idx(values, k)), own = logits[id] - norm;
        double apart = fabs(own - want);
        if (apart > c->worst) c->worst = apart;
        if (!(apart <= TOLERANCE))
            fail_msg("prompt %zu, step %zu, id %" PRIu32 ": %.6f instead of %.6f", prompt, at, id, own, want);
        /* Ours at this place may be another id only when the two are as good as equal. */
        if (got.top[k].id != id && fabs(got.top[k].value - want) > 2 * TOLERANCE)
            fail_msg("prompt %zu, step %zu: place %zu has id %" PRIu32 " (%.6f) instead of %" PRIu32 " (%.6f)", prompt,
                     at, k, got.top[k].id, got.top[k].value, id, want);
    }
}

static uint32_t argmax(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void compare_prompt(void *context, struct json_object *line, size_t number)
{
    struct comparing *c = context;
    struct session session;
    struct err err = {0};
    struct json_object *prompt = json_object_object_get(line, "prompt_ids");
    struct json_object *continuation = json_object_object_get(line, "continuation_ids");
    struct json_object *top = json_object_object_get(line, "top20");
    size_t n = json_object_array_length(prompt), n_steps = json_object_array_length(continuation);
    uint32_t *ids = calloc(n, sizeof *ids);
    assert_int_equal(json_object_array_length(top), n_steps);
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)json_object_get_int(json_object_array_get_idx(prompt, i));
    session_init(&session, c->engine);
    if (!session_feed(&session, ids, n, NULL, NULL, &err)) fail_msg("%s", err.text);
    for (size_t t = 0; t < n_steps; t++) {
        uint32_t want = (uint32_t)json_object_get_int(json_object_array_get_idx(continuation, t));
        compare_row(c, session.logits, json_object_array_get_idx(top, t), number, t);
        uint32_t got = argmax(session.logits, c->vocab);
        if (got != want) fail_msg("prompt %zu, step %zu: id %" PRIu32 " instead of %" PRIu32, number, t, got, want);
        if (!session_feed(&session, &want, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
        c->n_steps++;
    }
    session_fini(&session);
    free(ids);
    c->n_prompts++;
}

static const char *source_folder(void)
{
    static const char in_tree[] = "tests/fixtures/demo-src";
    const char *named = getenv("DEMO_SOURCE");
    return named ? named : file_present(file_system_real(), in_tree) ? in_tree : NULL;
}

static void ids_and_likelihoods_are_the_recorded_ones(void **state)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct comparing c = {0};
    struct engine_settings settings = engine_settings_default(source_folder());
    (void)state;
    if (!engine_open(&c.engine, &alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    c.vocab = engine_config(c.engine)->vocab;
    fixture_lines(&alloc, "tests/fixtures/demo/reference.jsonl", compare_prompt, &c);
    engine_close(c.engine);
    print_message("%zu prompts, %zu steps, %zu log-probabilities: at most %.2g apart\n", c.n_prompts, c.n_steps,
                  c.n_steps * TOP, c.worst);
    assert_int_equal(c.n_prompts, 21);
    assert_true(c.n_steps > 400);
    assert_int_equal(alloc.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_and_likelihoods_are_the_recorded_ones)};
    if (!source_folder()) {
        printf("skipped: there is no tests/fixtures/demo-src, and DEMO_SOURCE names no folder\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
