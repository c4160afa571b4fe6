/* The k-th allocation fails, for every k, through a whole use of the library: with a model and its text, and with an
 * engine, its answers, their state on disk and a score. Each time the call that needed it says so, what is open goes on
 * working, and in the end nothing is left. */
#include "lib/lib_int.h"
#include "support/check.h"
#include "support/temp_folder.h"

#define DEMO "models/demo"
#define TINY "tests/fixtures/glm52-tiny/mtp"

/* A failure of memory, told as one. */
static void expect_told(enum weir_status status, const struct weir_error *error)
{
    if (status != WEIR_NOMEM) fail_msg("%s: %s", weir_status_name(status), error->text);
    assert_non_null(strstr(error->text, "memory"));
}

static bool check(enum weir_status status, const struct weir_error *error, unsigned *n_failed)
{
    if (status == WEIR_OK) return true;
    expect_told(status, error);
    (*n_failed)++;
    return false;
}

/* ---- a model and its text ---- */

static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],"
                           "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]}";

static unsigned use_text(struct weir_model *model)
{
    struct weir_error error;
    struct weir_prompt *prompt;
    struct weir_plan *plan;
    struct weir_settings settings;
    struct weir_request request;
    uint32_t *ids;
    size_t n;
    char *text;
    unsigned n_failed = 0;
    if (check(weir_tokenize(model, "Norway", WEIR_WHOLE, WEIR_MARKERS_ARE_TEXT, &ids, &n, &error), &error, &n_failed)) {
        if (check(weir_detokenize(model, ids, n, true, &text, NULL, &error), &error, &n_failed)) weir_free(text);
        weir_free(ids);
    }
    if (check(weir_prompt_of_chat(&prompt, model, chat, WEIR_WHOLE, NULL, &error), &error, &n_failed))
        weir_prompt_free(prompt);
    if (check(weir_prompt_of_text(&prompt, model, "Norway", WEIR_WHOLE, &error), &error, &n_failed))
        weir_prompt_free(prompt);
    if (check(weir_model_template_note(model, &text, &error), &error, &n_failed)) weir_free(text);
    check(weir_request_init(&request, sizeof request, model, &error), &error, &n_failed);
    weir_settings_init(&settings, sizeof settings);
    settings.ram_budget_bytes = UINT64_C(1) << 30; /* stated: facts about the machine may then be unknown */
    if (check(weir_plan_make(&plan, model, &settings, 0, 0, &error), &error, &n_failed)) weir_plan_free(plan);
    return n_failed;
}

static void text_survives_every_allocation(void **state)
{
    uint64_t k = 1;
    unsigned n_told = 0;
    (void)state;
    for (bool reached = true; reached; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct weir_model *model = NULL;
        unsigned n_failed = 1;
        if (lib_model_open(&model, &alloc, file_system_real(), DEMO, &err)) {
            n_failed = use_text(model);
            assert_int_equal(weir_model_close(model, NULL), WEIR_OK);
        }
        reached = atomic_load(&alloc.calls) >= k;
        assert_true(n_failed <= 1);
        if (reached) n_told += n_failed;
        assert_int_equal(atomic_load(&alloc.live), 0);
    }
    /* The facts about the machine and a cache of the tokenizer do without what they cannot get. */
    print_message("%lu allocations, of which %u made a call fail\n", (unsigned long)k - 2, n_told);
    assert_true(k > 40 && n_told > (k - 2) * 3 / 4);
}

/* ---- an engine ---- */

static int ignore_event(void *context, const struct weir_event *event)
{
    (void)event;
    ++*(unsigned *)context;
    return 0;
}

static void use_session(struct weir_model *model, struct weir_session *session, struct weir_engine *engine,
                        const char *path)
{
    static const uint32_t ids[] = {1, 2, 3, 4, 5};
    struct weir_error error;
    struct weir_prompt *prompt;
    struct weir_request request;
    struct weir_score_result score = {.size = sizeof score};
    unsigned n_failed = 0, n_events = 0;
    if (!check(weir_prompt_of_ids(&prompt, model, ids, 5, &error), &error, &n_failed)) return;
    if (check(weir_request_init(&request, sizeof request, model, &error), &error, &n_failed)) {
        request.event = ignore_event;
        request.context = &n_events;
        request.max_tokens = 3;
        request.ignore_eos = true;
        check(weir_generate(session, prompt, &request, NULL, &error), &error, &n_failed);
        /* A state that could not be kept is not there to be saved; that is no failure of memory any more. */
        enum weir_status saved = n_failed ? WEIR_NOMEM : weir_session_save(session, path, NULL, &error);
        if (saved != WEIR_OK && saved != WEIR_FAILED && !n_failed) check(saved, &error, &n_failed);
        if (saved == WEIR_OK) check(weir_session_restore(session, path, NULL, &error), &error, &n_failed);
        /* It goes on after every failure. */
        enum weir_status again = weir_generate(session, prompt, &request, NULL, &error);
        if (n_failed) assert_int_equal(again, WEIR_OK);
        if (!n_failed) check(again, &error, &n_failed);
    }
    check(weir_score(engine, prompt, NULL, &score, &error), &error, &n_failed);
    weir_prompt_free(prompt);
}

static void engines_survive_every_allocation(void **state)
{
    struct temp_folder folder;
    uint64_t k = 1;
    (void)state;
    temp_folder_make(&folder);
    for (bool reached = true; reached; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct weir_error error;
        struct weir_model *model = NULL;
        struct weir_engine *engine = NULL;
        struct weir_session *session = NULL;
        struct weir_settings settings;
        unsigned n_failed = 0;
        weir_settings_init(&settings, sizeof settings);
        settings.n_threads = 2;
        settings.context_tokens = 64;
        settings.prefill_chunk = 16;
        if (lib_model_open(&model, &alloc, file_system_real(), TINY, &err)) {
            if (check(weir_engine_open(&engine, model, &settings, &error), &error, &n_failed) &&
                check(weir_session_new(&session, engine, &error), &error, &n_failed))
                use_session(model, session, engine, temp_path(&folder, "state"));
            assert_int_equal(weir_session_free(session, NULL), WEIR_OK);
            assert_int_equal(weir_engine_close(engine, NULL), WEIR_OK);
            assert_int_equal(weir_model_close(model, NULL), WEIR_OK);
        }
        reached = atomic_load(&alloc.calls) >= k;
        assert_int_equal(atomic_load(&alloc.live), 0);
    }
    print_message("%lu allocations\n", (unsigned long)k - 2);
    assert_true(k > 100);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_survives_every_allocation),
        cmocka_unit_test(engines_survive_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
