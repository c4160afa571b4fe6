/* A pass asks often enough whether it is still wanted, and wherever it is called off, nothing of it stays: no sequence
 * has moved, no lease is out, and the same pass gives the same bits afterwards. */
#include "run/session.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <stdlib.h>

enum { TOKENS = 24, VOCAB = 40, QUESTIONS_MAX = 4096 };

static struct temp_folder folder;
static uint32_t tokens[TOKENS];

struct bench {
    struct alloc alloc;
    struct engine *engine;
    struct session session;
};

static int make_model(void **state)
{
    (void)state;
    struct made_model made;
    temp_folder_make(&folder);
    made_model_tiny(&made);
    made_write(&made, folder.path);
    made_model_fini(&made);
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = (i * 11 + 5) % VOCAB;
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void bench_open(struct bench *b)
{
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(folder.path);
    settings.n_threads = 1;
    settings.context_tokens = 32;
    settings.prompt_cache_bytes = 0;
    settings.ram_budget_bytes = UINT64_C(1) << 29;
    settings.experts_resident = 0.2; /* of so few experts: one or two slots */
    settings.streamed.direct = DIRECT_OFF;
    *b = (struct bench){0};
    if (!engine_open(&b->engine, &b->alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    assert_int_equal(engine_inventory(b->engine)->mtp, CAPABILITY_PRESENT);
    session_init(&b->session, b->engine);
}

static void bench_close(struct bench *b)
{
    session_fini(&b->session);
    engine_close(b->engine);
    assert_int_equal(b->alloc.live, 0);
}

/* Says no to the question number `last`, counted from 1; 0: never. */
struct patience {
    unsigned n_asked, last;
    uint32_t layer_min, layer_max; /* of the questions */
};

static bool asks_on(void *context, uint32_t layer)
{
    struct patience *p = context;
    p->n_asked++;
    if (layer < p->layer_min) p->layer_min = layer;
    if (layer > p->layer_max) p->layer_max = layer;
    return p->n_asked != p->last;
}

typedef bool pass_fn(struct bench *b, struct err *err);

static bool prompt_pass(struct bench *b, struct err *err)
{
    return session_feed(&b->session, tokens, TOKENS, NULL, NULL, err);
}

static float hidden[TOKENS][256]; /* what the MTP layer is given */

static bool mtp_pass(struct bench *b, struct err *err)
{
    struct forward_mtp_row rows[TOKENS - 1];
    for (uint32_t i = 0; i < TOKENS - 1; i++)
        rows[i] = (struct forward_mtp_row){.kv = &b->session.kv,
                                           .token = tokens[i + 1],
                                           .position = i,
                                           .hidden = hidden[i],
                                           .wants_logits = i == TOKENS - 2};
    return engine_mtp(b->engine, rows, TOKENS - 1, err);
}

/* Calls the pass off at each of its questions in turn. Returns how many there are. */
static unsigned call_off_everywhere(struct bench *b, pass_fn *pass, struct patience *seen)
{
    const struct kv *kv = &b->session.kv;
    uint32_t n_rows = kv->n_rows, n_mtp_rows = kv->n_mtp_rows;
    for (unsigned last = 1; last <= QUESTIONS_MAX; last++) {
        struct err err = {0};
        struct patience p = {.last = last, .layer_min = UINT32_MAX};
        forward_set_poll(engine_forward(b->engine), asks_on, &p);
        bool ok = pass(b, &err);
        forward_set_poll(engine_forward(b->engine), NULL, NULL);
        assert_int_equal(slots_stats(streamed_slots(engine_streamed(b->engine)))->n_leased, 0);
        if (ok) {
            *seen = p;
            return p.n_asked;
        }
        assert_int_equal(err.kind, ERR_CANCELLED);
        assert_int_equal(p.n_asked, last); /* nobody is asked again who said no */
        assert_int_equal(kv->n_rows, n_rows);
        assert_int_equal(kv->n_mtp_rows, n_mtp_rows);
    }
    fail_msg("more than %d questions", QUESTIONS_MAX);
    return 0;
}

static void a_pass_may_be_called_off_anywhere(void **state)
{
    (void)state;
    struct bench plain, b;
    struct err err = {0};
    struct patience seen;
    bench_open(&plain);
    if (!prompt_pass(&plain, &err)) fail_msg("%s", err.text);
    bench_open(&b);
    unsigned n = call_off_everywhere(&b, prompt_pass, &seen), n_layers = engine_config(b.engine)->n_layers;
    printf("%u questions in a pass of %d rows through %u layers\n", n, TOKENS, n_layers);
    assert_true(n >= TOKENS / 8 + 2 * n_layers); /* rows of the embedding; layers, and something inside of them */
    assert_int_equal(seen.layer_min, 0);
    assert_int_equal(seen.layer_max, n_layers - 1);
    assert_int_equal(b.session.kv.n_rows, TOKENS);
    assert_memory_equal(b.session.logits, plain.session.logits, VOCAB * sizeof(float));
    bench_close(&plain);
    bench_close(&b);
}

static void the_mtp_layer_may_be_called_off_too(void **state)
{
    (void)state;
    struct bench plain, b;
    struct err err = {0};
    struct patience seen;
    float truth[VOCAB];
    bench_open(&plain);
    bench_open(&b);
    uint32_t width = engine_config(b.engine)->hidden, n_layers = engine_config(b.engine)->n_layers;
    assert_true(width <= sizeof hidden[0] / sizeof(float));
    if (!prompt_pass(&plain, &err) || !prompt_pass(&b, &err)) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < TOKENS; i++)
        for (uint32_t k = 0; k < width; k++) hidden[i][k] = (float)((i * 37 + k * 11) % 23) / 23 - 0.5f;
    if (!mtp_pass(&plain, &err)) fail_msg("%s", err.text);
    memcpy(truth, forward_logits(engine_forward(plain.engine), TOKENS - 2), sizeof truth);
    unsigned n = call_off_everywhere(&b, mtp_pass, &seen);
    printf("%u questions in a step of %d rows of the MTP layer\n", n, TOKENS - 1);
    assert_true(n >= TOKENS / 8 + 2);
    assert_int_equal(seen.layer_min, n_layers);
    assert_int_equal(seen.layer_max, n_layers);
    assert_int_equal(b.session.kv.n_mtp_rows, TOKENS - 1);
    assert_memory_equal(truth, forward_logits(engine_forward(b.engine), TOKENS - 2), sizeof truth);
    bench_close(&plain);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_may_be_called_off_anywhere),
        cmocka_unit_test(the_mtp_layer_may_be_called_off_too),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
