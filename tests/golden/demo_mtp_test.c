/* What the trained draft layer proposes.
 *
 * Against the bf16 checkpoint (see demo_source_test.c for where it is looked for): three chained drafts behind each of
 * 21 prompts, with the five largest logits of each, as recorded. On the bundled container: how many drafts come true
 * when jobs are answered greedily with one and with three of them. */
#include "plat/cpu.h"
#include "run/scheduler.h"
#include "support/check.h"
#include "support/lines.h"
#include "support/tiny_model.h"

#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#define REFERENCE "tests/fixtures/demo/reference_mtp.jsonl"
#define CONTAINER "models/demo"
#define LOGIT_TOLERANCE 2e-3

enum { CHUNK = 128, PROMPT_MAX = 2048, DRAFTS = 3 };

static const char *source_folder(void)
{
    struct stat st;
    const char *named = getenv("DEMO_SOURCE");
    if (named) return named;
    return stat("tests/fixtures/demo-src", &st) == 0 ? "tests/fixtures/demo-src" : NULL;
}

static uint32_t ids_of(struct json_object *array, uint32_t *ids, uint32_t n_max)
{
    uint32_t n = (uint32_t)json_object_array_length(array);
    assert_true(n <= n_max);
    for (uint32_t i = 0; i < n; i++) ids[i] = (uint32_t)json_object_get_int(json_object_array_get_idx(array, i));
    return n;
}

/* --- the checkpoint --- */

struct comparing {
    struct tiny_run run;
    double worst;
    size_t n_drafts;
};

/* Feeds the prompt and lets the MTP layer absorb all its pairs; the last one's row is the first draft. Returns its row.
 */
static size_t absorb_prompt(struct comparing *c, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t next)
{
    static float logits[CHUNK * 4096];
    struct forward_mtp_row rows[CHUNK];
    uint32_t taken = 0;
    for (uint32_t first = 0; first < n; first += CHUNK) {
        struct err err = {0};
        taken = n - first < CHUNK ? n - first : CHUNK;
        tiny_run_feed(&c->run, kv, ids + first, taken, taken, logits);
        for (uint32_t i = 0; i < taken; i++)
            rows[i] = (struct forward_mtp_row){.kv = kv,
                                               .token = first + i + 1 < n ? ids[first + i + 1] : next,
                                               .position = first + i,
                                               .hidden = forward_final(c->run.forward, i),
                                               .wants_logits = first + i + 1 == n};
        if (!forward_mtp(c->run.forward, rows, taken, &err)) fail_msg("%s", err.text);
    }
    return taken - 1;
}

static void compare_logits(struct comparing *c, const float *logits, struct json_object *top)
{
    struct json_object *ids = json_object_object_get(top, "ids"), *want = json_object_object_get(top, "logits");
    for (size_t k = 0; k < json_object_array_length(ids); k++) {
        int id = json_object_get_int(json_object_array_get_idx(ids, k));
        double apart = fabs(logits[id] - json_object_get_double(json_object_array_get_idx(want, k)));
        if (apart > c->worst) c->worst = apart;
        if (!(apart <= LOGIT_TOLERANCE)) fail_msg("logit of id %d is %.5f off", id, apart);
    }
}

static void compare_prompt(void *context, struct json_object *line, size_t number)
{
    struct comparing *c = context;
    static uint32_t ids[PROMPT_MAX];
    uint32_t n = ids_of(json_object_object_get(line, "prompt_ids"), ids, PROMPT_MAX), drafts[DRAFTS];
    uint32_t next = (uint32_t)json_object_get_int(json_object_object_get(line, "first_token"));
    ids_of(json_object_object_get(line, "drafts"), drafts, DRAFTS);
    struct json_object *top = json_object_object_get(line, "top5");
    struct kv kv;
    kv_init(&kv, forward_kv_pool(c->run.forward));
    size_t row = absorb_prompt(c, &kv, ids, n, next);
    for (uint32_t g = 0; g < DRAFTS; g++) {
        struct err err = {0};
        const float *logits = forward_logits(c->run.forward, row);
        compare_logits(c, logits, json_object_array_get_idx(top, g));
        uint32_t draft = forward_argmax(logits, c->run.model->config.vocab);
        if (draft != drafts[g]) fail_msg("prompt %zu: draft %u is %u instead of %u", number, g, draft, drafts[g]);
        c->n_drafts++;
        struct forward_mtp_row link = {.kv = &kv,
                                       .token = draft,
                                       .position = n + g,
                                       .hidden = forward_stream(c->run.forward, row),
                                       .wants_logits = true};
        if (!forward_mtp(c->run.forward, &link, 1, &err)) fail_msg("%s", err.text);
        row = 0;
    }
    kv_fini(&kv);
}

static void the_checkpoint_drafts_as_recorded(void **state)
{
    (void)state;
    const char *dir = source_folder();
    struct tiny_model model;
    struct comparing c = {0};
    const struct forward_options options = {
        .rows_max = CHUNK, .logit_rows_max = CHUNK, .positions_max = PROMPT_MAX + 16, .mtp_is_dense = true};
    if (!dir) {
        print_message("the checkpoint is not here: nothing was compared\n");
        skip();
    }
    tiny_model_open(&model, dir);
    tiny_run_init(&c.run, &model, NULL, 2, cpu_mask(), &options);
    assert_int_equal(model.config.mtp_chain, MTP_CHAIN_BLOCK_OUTPUT);
    size_t n = fixture_lines(&model.alloc, REFERENCE, compare_prompt, &c);
    print_message("%zu prompts, %zu drafts, largest difference of a logit %.1e\n", n, c.n_drafts, c.worst);
    assert_int_equal(n, 21);
    tiny_run_fini(&c.run);
    tiny_model_close(&model);
}

/* --- the container --- */

struct answering {
    struct engine *engine;
    uint32_t n_drafts;
    struct {
        uint64_t n_drafted, n_accepted, n_generated, n_passes;
    } of[2]; /* chat and the like; text */
};

static enum stop_reason go_on(void *context, const struct sampled *sampled)
{
    (void)context;
    (void)sampled;
    return STOP_NONE;
}

static void take_result(void *context, const struct job_result *result)
{
    *(struct job_result *)context = *result;
}

static void answer_prompt(void *context, struct json_object *line, size_t number)
{
    struct answering *a = context;
    static uint32_t ids[PROMPT_MAX];
    struct err err = {0};
    struct scheduler *scheduler;
    struct job_result result = {0};
    struct sampling sampling = sampling_built_in();
    const struct config *config = engine_config(a->engine);
    bool is_text = strcmp(json_object_get_string(json_object_object_get(line, "kind")), "text") == 0;
    (void)number;
    sampling.temperature = 0;
    sampling.max_tokens = 48;
    const struct sampler_rules rules = {.sampling = &sampling, .eos = config->eos, .n_eos = config->n_eos};
    const struct scheduler_settings settings = {.n_tokens = config->vocab,
                                                .n_running_max = 1,
                                                .n_waiting_max = 1,
                                                .draft = DRAFT_MTP,
                                                .n_drafts_max = a->n_drafts,
                                                .clock = clock_real()};
    struct job job = {.prompt = ids,
                      .n_prompt = ids_of(json_object_object_get(line, "prompt_ids"), ids, PROMPT_MAX),
                      .rules = &rules,
                      .events = {.context = &result, .token = go_on, .done = take_result}};
    if (!scheduler_new(&scheduler, a->engine, &settings, &err) || !scheduler_submit(scheduler, &job, &err))
        fail_msg("%s", err.text);
    while (scheduler_step(scheduler)) continue;
    scheduler_free(scheduler);
    if (result.reason == STOP_ERROR) fail_msg("%s", result.err.text);
    a->of[is_text].n_drafted += result.usage.n_drafted;
    a->of[is_text].n_accepted += result.usage.n_accepted;
    a->of[is_text].n_generated += result.usage.n_generated;
    a->of[is_text].n_passes += result.usage.n_passes;
}

static void most_drafts_of_the_container_come_true(void **state)
{
    (void)state;
    for (uint32_t n_drafts = 1; n_drafts <= 3; n_drafts += 2) {
        struct alloc alloc = {0};
        struct answering a = {.n_drafts = n_drafts};
        struct err err = {0};
        struct engine_settings settings = engine_settings_default(CONTAINER);
        settings.context_tokens = PROMPT_MAX + 64;
        settings.ram_budget_bytes = UINT64_C(2) << 30;
        if (!engine_open(&a.engine, &alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
        fixture_lines(&alloc, REFERENCE, answer_prompt, &a);
        for (int t = 0; t < 2; t++)
            print_message("%u drafts, %s: %llu of %llu accepted, %.2f ids a pass\n", n_drafts, t ? "text" : "replies",
                          (unsigned long long)a.of[t].n_accepted, (unsigned long long)a.of[t].n_drafted,
                          (double)a.of[t].n_generated / (double)a.of[t].n_passes);
        /* Drafts of an end-of-turn id come true without being emitted, so the count stays below the true share. */
        assert_true(a.of[0].n_accepted * 10 > a.of[0].n_drafted * 7);
        engine_close(a.engine);
        assert_int_equal(alloc.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checkpoint_drafts_as_recorded),
        cmocka_unit_test(most_drafts_of_the_container_come_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
