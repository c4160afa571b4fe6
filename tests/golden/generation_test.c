/* The whole program's way of generating, on a reference model: greedy ids are the recorded ones, and neither threads
 * nor passes, neither an interruption nor a prompt that is partly there already changes an id. */
#include "support/generation.h"
#include "run/random.h"
#include "support/check.h"
#include "support/reference.h"
#include <stdlib.h>

#define DIR "tests/fixtures/glm52-tiny/indexshare"

enum { N = 24 };

struct subject {
    struct alloc alloc;
    struct engine *engine;
    struct session session;
    struct sampling sampling;
    struct sampler_rules rules;
};

static void subject_open(struct subject *s, unsigned n_threads, uint32_t pass_rows, double temperature)
{
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(DIR);
    *s = (struct subject){0};
    settings.n_threads = n_threads;
    settings.pass_rows = pass_rows;
    if (!engine_open(&s->engine, &s->alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    session_init(&s->session, s->engine);
    s->sampling = sampling_built_in();
    s->sampling.temperature = temperature;
    s->sampling.max_tokens = N;
    s->rules = (struct sampler_rules){.sampling = &s->sampling, .key = random_key_from_seed(7)};
}

static void subject_close(struct subject *s)
{
    session_fini(&s->session);
    engine_close(s->engine);
    assert_int_equal(s->alloc.live, 0);
}

static void generate(struct subject *s, const uint32_t *prompt, size_t n, uint32_t out[N])
{
    struct err err = {0};
    struct generation g;
    struct sampled token;
    if (!generation_init(&g, &s->session, &s->rules, engine_config(s->engine)->vocab, &err)) fail_msg("%s", err.text);
    if (!generation_start(&g, prompt, (uint32_t)n, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < N; i++) {
        if (!generation_next(&g, &token, &err)) fail_msg("%s", err.text);
        assert_int_equal(g.reason, STOP_NONE);
        out[i] = token.id;
    }
    if (!generation_next(&g, &token, &err)) fail_msg("%s", err.text);
    assert_int_equal(g.reason, STOP_LENGTH);
    generation_fini(&g);
}

static void greedy_ids_are_the_recorded_ones(void **state)
{
    (void)state;
    struct reference reference;
    reference_open(&reference, DIR);
    static const char *const prompts[] = {"short", "edge", "long"};
    for (size_t p = 0; p < 3; p++) {
        size_t n, n_want;
        uint32_t *ids = reference_ids(&reference, prompts[p], "ids", &n);
        uint32_t *want = reference_ids(&reference, prompts[p], "continuation", &n_want), got[N];
        assert_int_equal(n_want, N);
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct subject s;
            subject_open(&s, threads, threads == 1 ? 128 : 5, 0);
            generate(&s, ids, n, got);
            assert_memory_equal(got, want, sizeof got);
            session_rewind(&s.session, (uint32_t)n); /* the prompt is there: only its last token is fed again */
            generate(&s, ids, n, got);
            assert_memory_equal(got, want, sizeof got);
            subject_close(&s);
        }
        free(want);
        free(ids);
    }
    reference_close(&reference);
}

static void a_seed_fixes_the_ids(void **state)
{
    (void)state;
    uint32_t prompt[40], want[N], got[N];
    for (uint32_t i = 0; i < 40; i++) prompt[i] = (i * 31 + 3) % 290;
    struct subject s;
    subject_open(&s, 1, 128, 1.0);
    generate(&s, prompt, 40, want);
    subject_close(&s);
    for (unsigned threads = 1; threads <= 3; threads++) {
        subject_open(&s, threads, 3, 1.0);
        generate(&s, prompt, 40, got);
        assert_memory_equal(got, want, sizeof got);
        session_rewind(&s.session, 17); /* the rest of the prompt is fed again */
        generate(&s, prompt, 40, got);
        assert_memory_equal(got, want, sizeof got);
        s.rules.key = random_key_from_seed(8);
        session_rewind(&s.session, 0);
        generate(&s, prompt, 40, got);
        assert_memory_not_equal(got, want, sizeof got); /* another seed is another text, or the seed is not used */
        subject_close(&s);
    }
}

/* In one pass as in many: passes may be as long as the plan finds room for. */
static void a_long_prompt_may_be_one_pass(void **state)
{
    (void)state;
    enum { LONG = 1500 };
    static const uint32_t chunks[] = {97, ENGINE_CHUNK_MAX};
    static uint32_t prompt[LONG];
    struct err err = {0};
    float *logits[2];
    size_t bytes = 0;
    for (uint32_t i = 0; i < LONG; i++) prompt[i] = (i * 31 + i / 7) % 290;
    for (int i = 0; i < 2; i++) {
        struct subject s;
        subject_open(&s, 2, chunks[i], 0);
        assert_in_range(engine_settings_of(s.engine)->pass_rows, chunks[i], chunks[i] + 64);
        if (!session_feed(&s.session, prompt, LONG, NULL, NULL, &err)) fail_msg("%s", err.text);
        bytes = engine_config(s.engine)->vocab * sizeof(float);
        logits[i] = malloc(bytes);
        memcpy(logits[i], s.session.logits, bytes);
        subject_close(&s);
    }
    assert_memory_equal(logits[0], logits[1], bytes);
    free(logits[0]);
    free(logits[1]);
}

static void a_prompt_must_leave_room(void **state)
{
    (void)state;
    struct subject s;
    struct generation g;
    struct err err = {0};
    static uint32_t prompt[4096];
    subject_open(&s, 1, 128, 0);
    assert_true(generation_init(&g, &s.session, &s.rules, engine_config(s.engine)->vocab, &err));
    assert_false(generation_start(&g, prompt, 4096, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_non_null(strstr(err.text, "--context-length"));
    assert_false(generation_start(&g, prompt, 0, &err));
    prompt[1] = 100000;
    assert_false(generation_start(&g, prompt, 2, &err));
    assert_non_null(strstr(err.text, "100000"));
    generation_fini(&g);
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_ids_are_the_recorded_ones),
        cmocka_unit_test(a_seed_fixes_the_ids),
        cmocka_unit_test(a_long_prompt_may_be_one_pass),
        cmocka_unit_test(a_prompt_must_leave_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
