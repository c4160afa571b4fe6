/* libweir as programs use it: through weir/weir.h alone, on the bundled model. What a call refuses and how it says so,
 * that answers do not depend on what a session knew, who else answers, or a restart, and that an answer can be ended
 * from another thread at any point. */
#include "support/check.h"
#include "support/temp_folder.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <weir/weir.h>

#define DEMO "models/demo"
#define TINY "tests/fixtures/glm52-tiny/mtp" /* a checkpoint without a tokenizer */

enum { TEXT_MAX = 8192, IDS_MAX = 512 };

/* What came out of one answer. */
struct heard {
    char text[TEXT_MAX], reasoning[TEXT_MAX], call[TEXT_MAX];
    size_t n_text, n_reasoning, n_call;
    uint32_t ids[IDS_MAX];
    size_t n_ids, n_progress;
    double logprob_sum;
    size_t stop_after; /* ids, then the callback refuses; 0: never */
};

static void append(char *to, size_t *n, const struct weir_event *event)
{
    assert_true(*n + event->bytes < TEXT_MAX);
    assert_int_equal(event->text[event->bytes], 0);
    memcpy(to + *n, event->text, event->bytes);
    *n += event->bytes;
    to[*n] = 0;
}

static int hear(void *context, const struct weir_event *event)
{
    struct heard *h = context;
    switch (event->kind) {
    case WEIR_EVENT_PROGRESS: h->n_progress++; break;
    case WEIR_EVENT_TOKEN:
        assert_true(h->n_ids < IDS_MAX);
        h->ids[h->n_ids++] = event->id;
        h->logprob_sum += event->logprob;
        return h->stop_after && h->n_ids == h->stop_after;
    case WEIR_EVENT_REASONING: append(h->reasoning, &h->n_reasoning, event); break;
    case WEIR_EVENT_TEXT: append(h->text, &h->n_text, event); break;
    case WEIR_EVENT_CALL:
        append(h->call, &h->n_call, event);
        print_message("call of %s(%s)\n", event->name, event->text);
        break;
    }
    return 0;
}

static void must(enum weir_status status, const struct weir_error *error)
{
    if (status != WEIR_OK) fail_msg("%s: %s", weir_status_name(status), error->text);
}

/* The status, and a message that names what is wrong. */
static void must_refuse(enum weir_status got, enum weir_status want, const struct weir_error *error, const char *part)
{
    if (got != want)
        fail_msg("%s instead of %s about %s: %s", weir_status_name(got), weir_status_name(want), part, error->text);
    assert_int_equal(error->status, want);
    if (!strstr(error->text, part)) fail_msg("'%s' is not in: %s", part, error->text);
}

/* ---- a model with an engine ---- */

struct subject {
    struct weir_model *model;
    struct weir_engine *engine;
    struct weir_session *session;
    struct weir_request request;
    struct heard heard;
};

static struct weir_settings small(void)
{
    struct weir_settings settings;
    weir_settings_init(&settings, sizeof settings);
    settings.context_tokens = 512;
    settings.n_threads = 2;
    settings.experts_resident = 0.25; /* some of them stream */
    settings.draft = WEIR_DRAFT_OFF;  /* one id comes of each pass, as tests that count passes expect */
    return settings;
}

static void subject_open(struct subject *s, const struct weir_settings *settings)
{
    struct weir_error error;
    memset(s, 0, sizeof *s);
    must(weir_model_open(&s->model, DEMO, &error), &error);
    must(weir_engine_open(&s->engine, s->model, settings, &error), &error);
    must(weir_session_new(&s->session, s->engine, &error), &error);
    must(weir_request_init(&s->request, sizeof s->request, s->model, &error), &error);
    s->request.event = hear;
    s->request.context = &s->heard;
    s->request.has_seed = true;
    s->request.seed = 7;
    s->request.max_tokens = 40;
}

static void subject_close(struct subject *s)
{
    struct weir_error error;
    must(weir_session_free(s->session, &error), &error);
    must(weir_engine_close(s->engine, &error), &error);
    must(weir_model_close(s->model, &error), &error);
}

static struct weir_prompt *ask(struct weir_model *model, const char *json, const struct weir_chat_options *options)
{
    struct weir_error error;
    struct weir_prompt *prompt;
    must(weir_prompt_of_chat(&prompt, model, json, WEIR_WHOLE, options, &error), &error);
    return prompt;
}

static struct weir_result answer(struct subject *s, struct weir_session *session, const struct weir_prompt *prompt)
{
    struct weir_error error;
    struct weir_result result = {.size = sizeof result};
    size_t stop_after = s->heard.stop_after;
    memset(&s->heard, 0, sizeof s->heard);
    s->heard.stop_after = stop_after;
    must(weir_generate(session, prompt, &s->request, &result, &error), &error);
    return result;
}

#define OSLO "[{\"role\":\"user\",\"content\":\"What is the capital of Norway?\"}]"
#define FOX "[{\"role\":\"user\",\"content\":\"Tell me a story about a fox named Lena.\"}]"

static void a_question_is_answered(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_counters counters = {.size = sizeof counters};
    struct weir_error error;
    char *text;
    size_t bytes;
    (void)state;
    subject_open(&s, &settings);
    s.request.temperature = 0;
    s.request.wants_logprobs = true;
    s.request.n_top_logprobs = 3;
    struct weir_prompt *prompt = ask(s.model, OSLO, NULL);
    struct weir_result result = answer(&s, s.session, prompt);
    assert_string_equal(s.heard.text, "The capital of Norway is Oslo.");
    assert_int_equal(result.reason, WEIR_REASON_END);
    assert_int_equal(result.n_generated, s.heard.n_ids);
    assert_true(s.heard.n_progress > 0);
    assert_true(s.heard.logprob_sum < 0);
    must(weir_detokenize(s.model, s.heard.ids, s.heard.n_ids, true, &text, &bytes, &error), &error);
    assert_string_equal(text, s.heard.text);
    assert_int_equal(bytes, s.heard.n_text);
    weir_free(text);
    must(weir_engine_counters(s.engine, &counters, &error), &error);
    assert_true(counters.is_streamed);
    assert_true(counters.expert_bytes_read > 0);
    assert_int_equal(counters.n_generated, result.n_generated);
    weir_prompt_free(prompt);
    subject_close(&s);
}

/* The same answer again needs to read one token only, and is the same. */
static void what_is_known_is_not_read_again(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    char first[TEXT_MAX];
    (void)state;
    subject_open(&s, &settings);
    struct weir_prompt *prompt = ask(s.model, FOX, NULL);
    struct weir_result a = answer(&s, s.session, prompt);
    memcpy(first, s.heard.text, sizeof first);
    struct weir_result b = answer(&s, s.session, prompt);
    print_message("%s\nread %u, then %u\n", first, a.n_prompt - a.n_cached, b.n_prompt - b.n_cached);
    assert_string_equal(first, s.heard.text);
    assert_int_equal(a.n_cached, 0);
    assert_int_equal(b.n_cached, b.n_prompt - 1);
    assert_int_equal(weir_session_tokens(s.session), b.n_prompt + b.n_generated);
    s.request.seed = 8;
    answer(&s, s.session, prompt);
    assert_string_not_equal(first, s.heard.text); /* or the seed would mean nothing */
    weir_prompt_free(prompt);
    subject_close(&s);
}

static void drafts_change_no_answer(void **state)
{
    static const enum weir_draft drafts[] = {WEIR_DRAFT_OFF, WEIR_DRAFT_AUTO, WEIR_DRAFT_MTP, WEIR_DRAFT_NGRAM};
    struct weir_settings settings = small();
    struct heard plain = {0};
    (void)state;
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        struct subject s;
        settings.draft = drafts[i];
        settings.n_drafts = drafts[i] == WEIR_DRAFT_MTP ? 3 : 0;
        subject_open(&s, &settings);
        struct weir_prompt *prompt = ask(s.model, FOX, NULL);
        struct weir_result result = answer(&s, s.session, prompt);
        print_message("%u tokens in %u passes, %u of %u drafts held\n", result.n_generated, result.n_passes,
                      result.n_accepted, result.n_drafted);
        if (i == 0) plain = s.heard;
        assert_int_equal(s.heard.n_ids, plain.n_ids);
        assert_memory_equal(s.heard.ids, plain.ids, plain.n_ids * sizeof *plain.ids);
        assert_string_equal(s.heard.text, plain.text);
        if (drafts[i] == WEIR_DRAFT_OFF) assert_int_equal(result.n_drafted, 0);
        if (drafts[i] == WEIR_DRAFT_MTP) assert_true(result.n_accepted > 0 && result.n_passes < result.n_generated);
        weir_prompt_free(prompt);
        subject_close(&s);
    }
}

/* ---- refusals ---- */

static void paths_that_hold_no_model(void **state)
{
    struct weir_model *model = (struct weir_model *)8;
    struct weir_error error;
    struct weir_engine *engine;
    struct temp_folder folder;
    (void)state;
    must_refuse(weir_model_open(&model, "/nowhere/at/all", &error), WEIR_DATA, &error,
                "/nowhere/at/all: cannot open: No such file");
    assert_null(model);
    must_refuse(weir_model_open(&model, NULL, &error), WEIR_USER, &error, "path is NULL");
    must_refuse(weir_model_open(NULL, DEMO, &error), WEIR_USER, &error, "model is NULL");

    temp_folder_make(&folder);
    must(weir_model_open(&model, folder.path, &error), &error);
    must_refuse(weir_engine_open(&engine, model, NULL, &error), WEIR_DATA, &error, "config.json");
    assert_null(engine);
    uint32_t *ids;
    size_t n;
    must_refuse(weir_tokenize(model, "x", WEIR_WHOLE, WEIR_MARKERS_ARE_TEXT, &ids, &n, &error), WEIR_DATA, &error,
                "tokenizer.json");
    must(weir_model_close(model, &error), &error);
    temp_folder_remove(&folder);

    must(weir_model_open(&model, DEMO "/tokenizer.json", &error), &error);
    must_refuse(weir_engine_open(&engine, model, NULL, &error), WEIR_USER, &error, "a tokenizer alone");
    must(weir_model_close(model, NULL), NULL);
    assert_int_equal(weir_model_close(NULL, &error), WEIR_OK);
}

static void settings_that_are_wrong(void **state)
{
    struct weir_model *model;
    struct weir_error error;
    struct weir_engine *engine;
    struct weir_settings fine;
    (void)state;
    must(weir_model_open(&model, DEMO, &error), &error);
    weir_settings_init(&fine, sizeof fine);
#define REFUSED(field, value, part)                                                             \
    do {                                                                                        \
        struct weir_settings wrong = fine;                                                      \
        wrong.field = value;                                                                    \
        must_refuse(weir_engine_open(&engine, model, &wrong, &error), WEIR_USER, &error, part); \
        assert_null(engine);                                                                    \
    } while (0)
    REFUSED(experts_resident, 1.5, "experts_resident is 1.5");
    REFUSED(experts_resident, NAN, "experts_resident");
    REFUSED(context_tokens, 1u << 21, "context_tokens");
    REFUSED(n_sequences, 65, "n_sequences is 65, and may be 64");
    REFUSED(prefill_chunk, 4097, "prefill_chunk");
    REFUSED(numerics, (enum weir_numerics)2, "numerics is 2");
    REFUSED(kv, (enum weir_kv)3, "kv is 3");
    REFUSED(draft, (enum weir_draft)4, "draft is 4");
    REFUSED(n_drafts, 8, "n_drafts is 8, and may be 7");
    REFUSED(ngram_max, 2, "WEIR_DRAFT_NGRAM only");
    REFUSED(n_mirrors, 1, "mirrors is NULL");
    REFUSED(policy, "lur", "lru");
    REFUSED(without_cpu, "avx3", "the nearest is 'avx2'");
    REFUSED(latent_norm_eps, 2, "latent_norm_eps");
    REFUSED(ssd_cache_bytes_max, 1, "without ssd_cache");
    REFUSED(size, 0, "has no size");
    must(weir_model_close(model, &error), &error);
}

/* Structs of programs that were built with older and with newer headers. */
static void structs_of_other_versions(void **state)
{
    struct weir_model *model;
    struct weir_error error;
    struct weir_plan *plan;
    struct {
        struct weir_settings known;
        uint64_t added;
    } newer = {0};
    struct {
        size_t size;
        uint64_t ram_budget_bytes;
    } older = {sizeof older, UINT64_C(1) << 30};
    (void)state;
    must(weir_model_open(&model, DEMO, &error), &error);
    weir_settings_init(&newer.known, sizeof newer);
    must(weir_plan_make(&plan, model, &newer.known, 0, 0, &error), &error);
    weir_plan_free(plan);
    newer.added = 1;
    must_refuse(weir_plan_make(&plan, model, &newer.known, 0, 0, &error), WEIR_USER, &error, "built for a newer one");
    assert_null(plan);

    must(weir_plan_make(&plan, model, (const struct weir_settings *)(const void *)&older, 0, 0, &error), &error);
    struct {
        size_t size;
        bool fits;
        uint64_t budget_bytes;
        uint64_t guard;
    } old_facts = {.size = offsetof(struct weir_plan_facts, used_bytes), .guard = 12345};
    must(weir_plan_describe(plan, (struct weir_plan_facts *)(void *)&old_facts, &error), &error);
    assert_true(old_facts.fits);
    assert_int_equal(old_facts.budget_bytes, UINT64_C(1) << 30);
    assert_int_equal(old_facts.guard, 12345);
    weir_plan_free(plan);
    must(weir_model_close(model, &error), &error);
}

static void a_plan_says_what_would_fit(void **state)
{
    struct weir_model *model;
    struct weir_error error;
    struct weir_plan *plan;
    struct weir_engine *engine;
    struct weir_plan_facts facts = {.size = sizeof facts};
    struct weir_settings settings = small();
    uint64_t sum = 0;
    (void)state;
    must(weir_model_open(&model, DEMO, &error), &error);
    must(weir_plan_make(&plan, model, &settings, UINT64_C(8) << 30, 1000000000, &error), &error);
    must(weir_plan_describe(plan, &facts, &error), &error);
    assert_true(facts.fits && facts.n_slots > 0 && facts.rate_high > 0);
    assert_non_null(strstr(facts.budget_source, "8 GiB"));
    for (uint32_t i = 0; i < facts.n_items; i++) {
        const char *name, *derivation;
        uint64_t bytes;
        must(weir_plan_item(plan, i, &name, &bytes, &derivation, &error), &error);
        assert_true(strlen(name) > 0 && strlen(derivation) > 0);
        sum += bytes;
    }
    assert_int_equal(sum, facts.used_bytes);
    must_refuse(weir_plan_item(plan, facts.n_items, NULL, NULL, NULL, &error), WEIR_USER, &error, "line");
    must_refuse(weir_model_close(model, &error), WEIR_BUSY, &error, "still there");
    weir_plan_free(plan);

    settings.ram_budget_bytes = 4 << 20;
    must_refuse(weir_plan_make(&plan, model, &settings, 0, 0, &error), WEIR_FIT, &error, "--ram-budget");
    print_message("%s\n", error.text);
    must(weir_plan_describe(plan, &facts, &error), &error);
    assert_true(!facts.fits && facts.n_items > 3 && facts.used_bytes > facts.budget_bytes);
    weir_plan_free(plan);
    must_refuse(weir_engine_open(&engine, model, &settings, &error), WEIR_FIT, &error, "--ram-budget");
    assert_null(engine);
    must(weir_model_close(model, &error), &error);
}

static void requests_that_are_wrong(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_result result = {.size = sizeof result};
    static const char *const empty[] = {""};
    (void)state;
    subject_open(&s, &settings);
    struct weir_prompt *prompt = ask(s.model, OSLO, NULL);
    const struct weir_request fine = s.request;
#define WRONG(field, value, part)                                                                     \
    do {                                                                                              \
        struct weir_request wrong = fine;                                                             \
        wrong.field = value;                                                                          \
        must_refuse(weir_generate(s.session, prompt, &wrong, NULL, &error), WEIR_USER, &error, part); \
    } while (0)
    WRONG(temperature, 3, "temperature");
    WRONG(temperature, NAN, "temperature");
    WRONG(top_p, -1, "top_p");
    WRONG(min_tokens, 41, "min_tokens");
    WRONG(top_k, 1 << 30, "top_k");
    WRONG(presence_window, -3, "presence_window");
    WRONG(n_stop, 1, "stop is NULL");
    WRONG(n_top_logprobs, 3, "wants_logprobs");
    WRONG(has_seed, false, "has_seed");
    WRONG(constraint, (enum weir_constraint)9, "constraint");
    WRONG(constraint, WEIR_CONSTRAINT_REGEX, "constraint_text is NULL");
    WRONG(size, 3, "weir_request has no size");
    struct weir_request wrong = fine;
    wrong.stop = empty;
    wrong.n_stop = 1;
    must_refuse(weir_generate(s.session, prompt, &wrong, NULL, &error), WEIR_USER, &error, "stop");
    wrong = fine;
    wrong.constraint = WEIR_CONSTRAINT_SCHEMA;
    wrong.constraint_text = "{\"type\":\"nonsense\"}";
    wrong.constraint_bytes = WEIR_WHOLE;
    must_refuse(weir_generate(s.session, prompt, &wrong, NULL, &error), WEIR_USER, &error, "constraint: ");
    must(weir_request_check(&fine, s.model, &error), &error);
    wrong = fine;
    wrong.temperature = 3;
    must_refuse(weir_request_check(&wrong, s.model, &error), WEIR_USER, &error, "temperature");
    result.size = 0;
    must_refuse(weir_generate(s.session, prompt, &fine, &result, &error), WEIR_USER, &error, "weir_result");
    assert_int_equal(weir_generate(s.session, NULL, &fine, NULL, NULL), WEIR_USER);
    assert_int_equal(weir_generate(NULL, prompt, &fine, NULL, NULL), WEIR_USER);
    assert_int_equal(weir_session_tokens(s.session), 0); /* nothing was begun */
    answer(&s, s.session, prompt);
    assert_true(s.heard.n_text > 0);
    weir_prompt_free(prompt);
    subject_close(&s);
}

static void prompts_that_are_wrong(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_prompt *prompt;
    static const uint32_t dead[] = {1, UINT32_MAX};
    static const struct weir_message robot = {.role = "robot", .text = "hm", .bytes = 2};
    (void)state;
    subject_open(&s, &settings);
#define CHAT(json, part)                                                                                         \
    must_refuse(weir_prompt_of_chat(&prompt, s.model, json, WEIR_WHOLE, NULL, &error), WEIR_USER, &error, part); \
    assert_null(prompt)
    CHAT("[", "request");
    CHAT("3", "neither");
    CHAT("[]", "at least one message");
    CHAT("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":1}", "'temperature' has no effect");
    CHAT("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "messages[0]");
    must_refuse(weir_prompt_of_messages(&prompt, s.model, &robot, 1, NULL, &error), WEIR_USER, &error, "messages[0]");
    must_refuse(weir_prompt_of_ids(&prompt, s.model, dead, 2, &error), WEIR_USER, &error, "number 2 of the ids");
    must_refuse(weir_prompt_of_text(&prompt, s.model, "\xff", 1, &error), WEIR_USER, &error, "UTF-8");

    char *longer = malloc(8000);
    memset(longer, 0, 8000);
    for (int i = 0; i < 1000; i++) memcpy(longer + 7 * i, " hello.", 8);
    must(weir_prompt_of_text(&prompt, s.model, longer, WEIR_WHOLE, &error), &error);
    must_refuse(weir_generate(s.session, prompt, &s.request, NULL, &error), WEIR_USER, &error, "the context holds 512");
    weir_prompt_free(prompt);
    free(longer);

    struct weir_model *other;
    must(weir_model_open(&other, DEMO, &error), &error);
    prompt = ask(other, OSLO, NULL);
    must_refuse(weir_generate(s.session, prompt, &s.request, NULL, &error), WEIR_USER, &error, "another model");
    weir_prompt_free(prompt);
    must(weir_model_close(other, &error), &error);
    subject_close(&s);
}

/* ---- out of order ---- */

struct nosy {
    struct subject *s;
    const struct weir_prompt *prompt;
    unsigned n_tried;
};

/* Whatever a callback tries on its engine is refused, and does no harm. */
static int try_everything(void *context, const struct weir_event *event)
{
    struct nosy *n = context;
    struct weir_session *session;
    struct weir_counters counters = {.size = sizeof counters};
    char note[64];
    (void)event;
    if (n->n_tried++ > 3) return 0;
    assert_int_equal(weir_generate(n->s->session, n->prompt, &n->s->request, NULL, NULL), WEIR_BUSY);
    assert_int_equal(weir_start(n->s->session, n->prompt, &n->s->request, NULL), WEIR_BUSY);
    assert_int_equal(weir_step(n->s->engine, NULL, NULL), WEIR_BUSY);
    assert_int_equal(weir_session_free(n->s->session, NULL), WEIR_BUSY);
    assert_int_equal(weir_session_new(&session, n->s->engine, NULL), WEIR_BUSY);
    assert_int_equal(weir_session_save(n->s->session, "/tmp/never", NULL, NULL), WEIR_BUSY);
    assert_int_equal(weir_session_restore(n->s->session, "/tmp/never", NULL, NULL), WEIR_BUSY);
    assert_int_equal(weir_engine_counters(n->s->engine, &counters, NULL), WEIR_BUSY);
    assert_int_equal(weir_score(n->s->engine, n->prompt, NULL, NULL, NULL), WEIR_BUSY);
    assert_int_equal(weir_engine_close(n->s->engine, NULL), WEIR_BUSY);
    assert_false(weir_engine_note(n->s->engine, note, sizeof note));
    return 0;
}

static void calls_out_of_order(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_result result = {.size = sizeof result};
    size_t going_on;
    (void)state;
    subject_open(&s, &settings);
    struct weir_prompt *prompt = ask(s.model, OSLO, NULL);
    struct nosy nosy = {&s, prompt, 0};
    must(weir_session_result(s.session, &result, &error), &error);
    assert_int_equal(result.reason, WEIR_REASON_NONE);
    must_refuse(weir_session_save(s.session, "/tmp/never", NULL, &error), WEIR_USER, &error, "holds nothing");
    must(weir_step(s.engine, &going_on, &error), &error);
    assert_int_equal(going_on, 0);
    weir_cancel(s.session); /* nobody answers: no effect, also not on the next answer */
    weir_end_thinking(s.session);
    must_refuse(weir_engine_close(s.engine, &error), WEIR_BUSY, &error, "1 sessions");
    must_refuse(weir_model_close(s.model, &error), WEIR_BUSY, &error, "still there");

    s.request.event = try_everything;
    s.request.context = &nosy;
    must(weir_generate(s.session, prompt, &s.request, &result, &error), &error);
    assert_true(nosy.n_tried > 3);
    assert_int_equal(result.reason, WEIR_REASON_END);

    s.request.event = hear;
    s.request.context = &s.heard;
    must(weir_start(s.session, prompt, &s.request, &error), &error);
    must_refuse(weir_start(s.session, prompt, &s.request, &error), WEIR_BUSY, &error, "still answering");
    must_refuse(weir_generate(s.session, prompt, &s.request, NULL, &error), WEIR_BUSY, &error, "still answering");
    must_refuse(weir_session_save(s.session, "/tmp/never", NULL, &error), WEIR_BUSY, &error, "still answering");
    must_refuse(weir_score(s.engine, prompt, NULL, NULL, &error), WEIR_BUSY, &error, "answers are going on");
    must(weir_session_free(s.session, &error), &error); /* in the middle of an answer */
    s.session = NULL;
    weir_prompt_free(prompt);
    weir_prompt_free(NULL);
    subject_close(&s);
}

/* ---- ending ---- */

static void callbacks_and_stops_end_an_answer(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    static const char *const stops[] = {"Oslo", "never"};
    (void)state;
    subject_open(&s, &settings);
    s.request.temperature = 0;
    struct weir_prompt *prompt = ask(s.model, OSLO, NULL);
    s.request.stop = stops;
    s.request.n_stop = 2;
    struct weir_result result = answer(&s, s.session, prompt);
    assert_string_equal(s.heard.text, "The capital of Norway is ");
    assert_int_equal(result.reason, WEIR_REASON_STOP);
    assert_string_equal(result.stop, "Oslo");
    s.request.n_stop = 0;
    s.heard.stop_after = 2;
    result = answer(&s, s.session, prompt);
    assert_int_equal(result.reason, WEIR_REASON_CANCELLED);
    assert_int_equal(result.n_generated, 2);
    s.heard.stop_after = 0;
    s.request.max_tokens = 0; /* reads the prompt, no more */
    result = answer(&s, s.session, prompt);
    assert_int_equal(result.reason, WEIR_REASON_LENGTH);
    assert_int_equal(result.n_generated, 0);
    s.request.max_tokens = 3;
    result = answer(&s, s.session, prompt);
    assert_int_equal(result.reason, WEIR_REASON_LENGTH);
    assert_false(result.context_is_full);
    assert_int_equal(result.n_generated, 3);
    weir_prompt_free(prompt);
    subject_close(&s);
}

struct canceller {
    struct weir_session *session;
    atomic_bool is_asked, is_done;
};

static void *cancel_when_asked(void *context)
{
    struct canceller *c = context;
    while (!atomic_load(&c->is_asked)) continue;
    weir_cancel(c->session);
    atomic_store(&c->is_done, true);
    return NULL;
}

struct watched {
    struct heard heard;
    struct canceller *canceller;
};

/* Asks the other thread behind the second id, and lets the answer go on only when it has acted: then the answer must
 * end with this id, whoever is faster. */
static int ask_other_thread(void *context, const struct weir_event *event)
{
    struct watched *w = context;
    hear(&w->heard, event);
    if (event->kind != WEIR_EVENT_TOKEN || w->heard.n_ids != 2) return 0;
    atomic_store(&w->canceller->is_asked, true);
    while (!atomic_load(&w->canceller->is_done)) continue;
    return 0;
}

static void another_thread_ends_an_answer(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_result result = {.size = sizeof result};
    pthread_t thread;
    (void)state;
    subject_open(&s, &settings);
    struct weir_prompt *prompt = ask(s.model, FOX, NULL);
    struct canceller canceller = {.session = s.session};
    struct watched watched = {.canceller = &canceller};
    s.request.event = ask_other_thread;
    s.request.context = &watched;
    assert_int_equal(pthread_create(&thread, NULL, cancel_when_asked, &canceller), 0);
    must(weir_generate(s.session, prompt, &s.request, &result, &error), &error);
    pthread_join(thread, NULL);
    assert_int_equal(result.reason, WEIR_REASON_CANCELLED);
    assert_int_equal(result.n_generated, 2);

    /* A cancelled answer leaves nothing behind: the next one is as if it had not been. */
    s.request.event = hear;
    s.request.context = &s.heard;
    result = answer(&s, s.session, prompt);
    assert_int_equal(memcmp(s.heard.ids, watched.heard.ids, 2 * sizeof *s.heard.ids), 0);
    assert_true(result.reason != WEIR_REASON_CANCELLED);
    weir_prompt_free(prompt);
    subject_close(&s);
}

/* ---- several sessions ---- */

static void two_sessions_answer_together(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_session *second;
    struct heard alone[2], together = {0};
    struct weir_result result = {.size = sizeof result};
    size_t going_on = 2, n_both = 0;
    (void)state;
    settings.n_sequences = 2;
    subject_open(&s, &settings);
    struct weir_prompt *oslo = ask(s.model, OSLO, NULL), *fox = ask(s.model, FOX, NULL);
    answer(&s, s.session, oslo);
    alone[0] = s.heard;
    answer(&s, s.session, fox);
    alone[1] = s.heard;
    assert_true(alone[0].n_ids < alone[1].n_ids);

    must(weir_session_new(&second, s.engine, &error), &error);
    memset(&s.heard, 0, sizeof s.heard);
    must(weir_start(s.session, oslo, &s.request, &error), &error);
    s.request.context = &together;
    must(weir_start(second, fox, &s.request, &error), &error);
    while (going_on > 0) {
        must(weir_step(s.engine, &going_on, &error), &error);
        n_both += going_on == 2;
    }
    assert_true(n_both > 2); /* they really were in the same passes */
    assert_string_equal(s.heard.text, alone[0].text);
    assert_string_equal(together.text, alone[1].text);
    must(weir_session_result(second, &result, &error), &error);
    assert_int_equal(result.n_generated, alone[1].n_ids);
    must(weir_session_free(second, &error), &error);
    weir_prompt_free(oslo);
    weir_prompt_free(fox);
    subject_close(&s);
}

/* One session is freed in the middle; the other one does not notice. */
static void a_session_may_leave(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_session *second;
    struct heard alone;
    size_t going_on;
    (void)state;
    settings.n_sequences = 2;
    subject_open(&s, &settings);
    struct weir_prompt *fox = ask(s.model, FOX, NULL), *oslo = ask(s.model, OSLO, NULL);
    answer(&s, s.session, fox);
    alone = s.heard;
    must(weir_session_new(&second, s.engine, &error), &error);
    struct heard lost = {0};
    memset(&s.heard, 0, sizeof s.heard);
    must(weir_start(s.session, fox, &s.request, &error), &error);
    s.request.context = &lost;
    must(weir_start(second, oslo, &s.request, &error), &error);
    for (int i = 0; i < 4; i++) must(weir_step(s.engine, &going_on, &error), &error);
    size_t n_heard = lost.n_ids;
    must(weir_session_free(second, &error), &error);
    do must(weir_step(s.engine, &going_on, &error), &error);
    while (going_on > 0);
    assert_int_equal(lost.n_ids, n_heard);
    assert_string_equal(s.heard.text, alone.text);
    weir_prompt_free(oslo);
    weir_prompt_free(fox);
    subject_close(&s);
}

/* ---- save and restore ---- */

/* A conversation's second turn, after the answer that the first one got. */
static struct weir_prompt *second_turn(struct weir_model *model, const char *first_answer)
{
    struct weir_error error;
    struct weir_prompt *prompt;
    const struct weir_message messages[] = {
        {.role = "user", .text = "Tell me a story about a fox named Lena.", .bytes = WEIR_WHOLE},
        {.role = "assistant", .text = first_answer, .bytes = WEIR_WHOLE, .reasoning = "", .reasoning_bytes = 0},
        {.role = "user", .text = "What is the capital of Norway?", .bytes = WEIR_WHOLE},
    };
    must(weir_prompt_of_messages(&prompt, model, messages, 3, NULL, &error), &error);
    return prompt;
}

static void a_restored_session_goes_on_as_if_nothing_had_been(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct temp_folder folder;
    char path[300], first[TEXT_MAX];
    unsigned char *bytes;
    struct heard uninterrupted;
    size_t n_saved, n_restored;
    (void)state;
    temp_folder_make(&folder);
    snprintf(path, sizeof path, "%s", temp_path(&folder, "state"));

    subject_open(&s, &settings);
    struct weir_prompt *prompt = ask(s.model, FOX, NULL);
    struct weir_result result = answer(&s, s.session, prompt);
    memcpy(first, s.heard.text, sizeof first);
    must(weir_session_save(s.session, path, &n_saved, &error), &error);
    assert_true(n_saved + 1 >= result.n_prompt + result.n_generated); /* the last id may not have been fed */
    weir_prompt_free(prompt);
    prompt = second_turn(s.model, first);
    answer(&s, s.session, prompt);
    uninterrupted = s.heard;
    weir_prompt_free(prompt);
    subject_close(&s);

    /* Another engine, as in another process. */
    subject_open(&s, &settings);
    must(weir_session_restore(s.session, path, &n_restored, &error), &error);
    assert_int_equal(n_restored, n_saved);
    assert_int_equal(weir_session_tokens(s.session), n_saved);
    prompt = second_turn(s.model, first);
    result = answer(&s, s.session, prompt);
    print_message("%zu restored, %u of %u known: %s\n", n_restored, result.n_cached, result.n_prompt, s.heard.text);
    assert_true(result.n_cached > 10);
    assert_int_equal(s.heard.n_ids, uninterrupted.n_ids);
    assert_memory_equal(s.heard.ids, uninterrupted.ids, uninterrupted.n_ids * sizeof *uninterrupted.ids);
    assert_string_equal(s.heard.text, uninterrupted.text);

    /* Damage is told, and changes nothing. */
    size_t n, held = weir_session_tokens(s.session);
    bytes = take_file(path, &n);
    bytes[20] ^= 1;
    put_file(path, bytes, n);
    must_refuse(weir_session_restore(s.session, path, NULL, &error), WEIR_DATA, &error, path);
    assert_int_equal(weir_session_tokens(s.session), held);
    must_refuse(weir_session_restore(s.session, "/nowhere/state", NULL, &error), WEIR_DATA, &error, "/nowhere/state");
    must_refuse(weir_session_save(s.session, "/nowhere/state", NULL, &error), WEIR_IO, &error, "/nowhere");
    free(bytes);
    weir_prompt_free(prompt);
    subject_close(&s);
    temp_folder_remove(&folder);
}

/* States find their way through a folder by themselves. */
static void the_cache_on_disk_outlives_an_engine(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct temp_folder folder;
    char first[TEXT_MAX];
    struct weir_counters counters = {.size = sizeof counters};
    struct weir_error error;
    (void)state;
    temp_folder_make(&folder);
    settings.ssd_cache = folder.path;
    for (int round = 0; round < 2; round++) {
        subject_open(&s, &settings);
        struct weir_prompt *prompt = ask(s.model, FOX, NULL);
        struct weir_result result = answer(&s, s.session, prompt);
        must(weir_engine_counters(s.engine, &counters, &error), &error);
        assert_int_equal(counters.n_states_restored, round);
        assert_int_equal(result.n_cached > 0, round);
        if (round == 0) memcpy(first, s.heard.text, sizeof first);
        assert_string_equal(s.heard.text, first);
        weir_prompt_free(prompt);
        subject_close(&s);
    }
    temp_folder_remove(&folder);
}

/* ---- what an answer looks like ---- */

static void constraints_hold(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    (void)state;
    subject_open(&s, &settings);
    struct weir_prompt *prompt = ask(s.model, OSLO, NULL);
    s.request.constraint = WEIR_CONSTRAINT_CHOICE;
    s.request.constraint_text = "[\"yes\", \"no\"]";
    s.request.constraint_bytes = WEIR_WHOLE;
    answer(&s, s.session, prompt);
    print_message("of yes and no: %s\n", s.heard.text);
    assert_true(strcmp(s.heard.text, "yes") == 0 || strcmp(s.heard.text, "no") == 0);
    s.request.constraint = WEIR_CONSTRAINT_REGEX;
    s.request.constraint_text = "[0-9]{3}";
    struct weir_result result = answer(&s, s.session, prompt);
    assert_int_equal(strspn(s.heard.text, "0123456789"), 3);
    assert_int_equal(s.heard.n_text, 3);
    assert_true(result.reason == WEIR_REASON_COMPLETE || result.reason == WEIR_REASON_END);
    s.request.constraint_text = "\\n\\n[0-9]{3}"; /* line feeds are part of it */
    answer(&s, s.session, prompt);
    assert_int_equal(s.heard.n_text, 5);
    weir_prompt_free(prompt);
    subject_close(&s);
}

static void thinking_has_a_limit(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_chat_options options;
    (void)state;
    subject_open(&s, &settings);
    weir_chat_options_init(&options, sizeof options);
    options.thinking = WEIR_THINKING_MAX;
    s.request.temperature = 0;
    struct weir_prompt *prompt = ask(s.model, "[{\"role\":\"user\",\"content\":\"What is 12 times 7?\"}]", &options);
    struct weir_result free_result = answer(&s, s.session, prompt);
    print_message("thought %u tokens: %s\n", free_result.n_reasoning, s.heard.reasoning);
    assert_true(free_result.n_reasoning > 2);
    s.request.thinking_max = 2;
    struct weir_result result = answer(&s, s.session, prompt);
    assert_int_equal(result.n_reasoning, 2);
    assert_true(s.heard.n_text > 0);
    weir_prompt_free(prompt);
    subject_close(&s);
}

/* ---- scoring, ids, and a model without a tokenizer ---- */

struct scores {
    size_t n_tokens, n_logits;
    double sum;
    uint32_t stop_at;
};

static int see_score(void *context, const struct weir_scored *token)
{
    struct scores *s = context;
    assert_int_equal(token->has_logprob, token->position > 0);
    assert_int_equal(token->n_top, token->has_logprob ? 2 : 0);
    if (token->n_top) assert_true(token->top[0].logprob >= token->top[1].logprob);
    s->n_tokens++;
    s->sum += token->logprob;
    return s->stop_at && s->n_tokens == s->stop_at;
}

static int see_logits(void *context, uint32_t position, const float *logits, size_t n_logits)
{
    struct scores *s = context;
    assert_int_equal(position, s->n_logits);
    assert_true(isfinite(logits[n_logits - 1]));
    s->n_logits++;
    return 0;
}

static void texts_are_scored(void **state)
{
    struct subject s;
    struct weir_settings settings = small();
    struct weir_error error;
    struct weir_prompt *prompt;
    struct weir_score_request request;
    struct weir_score_result score = {.size = sizeof score};
    struct scores scores = {0};
    size_t n;
    (void)state;
    subject_open(&s, &settings);
    must(weir_prompt_of_text(&prompt, s.model, "The capital of Norway is Oslo.", WEIR_WHOLE, &error), &error);
    weir_prompt_ids(prompt, &n);
    weir_score_request_init(&request, sizeof request);
    request.n_top = 2;
    request.context = &scores;
    request.token = see_score;
    request.logits = see_logits;
    must(weir_score(s.engine, prompt, &request, &score, &error), &error);
    assert_int_equal(scores.n_tokens, n);
    assert_int_equal(scores.n_logits, n);
    assert_int_equal(score.n_scored, n - 1);
    assert_true(fabs(scores.sum - score.logprob) < 1e-9 && score.perplexity > 1);
    scores.stop_at = 3;
    scores.n_tokens = scores.n_logits = 0;
    must_refuse(weir_score(s.engine, prompt, &request, &score, &error), WEIR_CANCELLED, &error, "stopped");
    request.n_top = 1001;
    must_refuse(weir_score(s.engine, prompt, &request, &score, &error), WEIR_USER, &error, "n_top");
    weir_prompt_free(prompt);
    subject_close(&s);
}

static void a_model_without_a_tokenizer_is_driven_by_ids(void **state)
{
    struct weir_error error;
    struct weir_model *model;
    struct weir_engine *engine;
    struct weir_session *session;
    struct weir_prompt *prompt;
    struct weir_request request;
    struct weir_model_facts facts = {.size = sizeof facts};
    struct weir_result result = {.size = sizeof result};
    struct heard heard = {0};
    struct weir_plan *plan;
    static const uint32_t ids[] = {1, 2, 3};
    (void)state;
    must(weir_model_open(&model, TINY, &error), &error);
    must(weir_model_describe(model, &facts, &error), &error);
    assert_true(!facts.has_tokenizer && facts.n_logits > 0 && facts.n_tokens == 0);
    must(weir_engine_open(&engine, model, NULL, &error), &error);
    must_refuse(weir_engine_plan(engine, &plan, &error), WEIR_USER, &error, "checkpoint");
    must(weir_session_new(&session, engine, &error), &error);
    must(weir_request_init(&request, sizeof request, model, &error), &error);
    request.event = hear;
    request.context = &heard;
    request.max_tokens = 5;
    request.ignore_eos = true;
    must(weir_prompt_of_ids(&prompt, model, ids, 3, &error), &error);
    must(weir_generate(session, prompt, &request, &result, &error), &error);
    assert_int_equal(result.n_generated, 5);
    assert_int_equal(heard.n_ids, 5);
    assert_int_equal(heard.n_text, 0);
    request.constraint = WEIR_CONSTRAINT_JSON;
    must_refuse(weir_generate(session, prompt, &request, &result, &error), WEIR_USER, &error, "no tokenizer");
    weir_prompt_free(prompt);
    must(weir_session_free(session, &error), &error);
    must(weir_engine_close(engine, &error), &error);
    must(weir_model_close(model, &error), &error);
}

static void texts_and_ids(void **state)
{
    struct weir_error error;
    struct weir_model *model;
    uint32_t *ids, *marked;
    size_t n, n_marked, bytes;
    char *text;
    (void)state;
    must(weir_model_open(&model, DEMO "/tokenizer.json", &error), &error);
    must(weir_tokenize(model, "Norway<|user|>", WEIR_WHOLE, WEIR_MARKERS_ARE_TEXT, &ids, &n, &error), &error);
    must(weir_tokenize(model, "Norway<|user|>", WEIR_WHOLE, WEIR_MARKERS_ARE_TOKENS, &marked, &n_marked, &error),
         &error);
    assert_true(n_marked < n);
    must(weir_detokenize(model, ids, n, false, &text, &bytes, &error), &error);
    assert_string_equal(text, "Norway<|user|>");
    weir_free(text);
    must(weir_detokenize(model, marked, n_marked, true, &text, NULL, &error), &error);
    assert_string_equal(text, "Norway");
    weir_free(text);
    weir_free(ids);
    weir_free(marked);
    must(weir_tokenize(model, "", 0, WEIR_MARKERS_ARE_TEXT, &ids, &n, &error), &error);
    assert_int_equal(n, 0);
    must(weir_detokenize(model, NULL, 0, false, &text, &bytes, &error), &error);
    assert_int_equal(bytes, 0);
    weir_free(text);
    weir_free(ids);
    weir_free(NULL);
    /* A conversation can be rendered without a model too. */
    struct weir_prompt *prompt = ask(model, OSLO, NULL);
    assert_non_null(strstr(weir_prompt_text(prompt, NULL), "<|user|>What is the capital of Norway?"));
    weir_prompt_free(prompt);
    must(weir_model_close(model, &error), &error);
}

static void names(void **state)
{
    (void)state;
    for (int i = WEIR_OK; i <= WEIR_CANCELLED; i++)
        assert_string_not_equal(weir_status_name((enum weir_status)i), "unknown");
    for (int i = WEIR_REASON_NONE; i <= WEIR_REASON_ERROR; i++)
        assert_string_not_equal(weir_reason_name((enum weir_reason)i), "unknown");
    assert_string_equal(weir_status_name((enum weir_status)99), "unknown");
    assert_true(strlen(weir_version()) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_answered),
        cmocka_unit_test(what_is_known_is_not_read_again),
        cmocka_unit_test(drafts_change_no_answer),
        cmocka_unit_test(paths_that_hold_no_model),
        cmocka_unit_test(settings_that_are_wrong),
        cmocka_unit_test(structs_of_other_versions),
        cmocka_unit_test(a_plan_says_what_would_fit),
        cmocka_unit_test(requests_that_are_wrong),
        cmocka_unit_test(prompts_that_are_wrong),
        cmocka_unit_test(calls_out_of_order),
        cmocka_unit_test(callbacks_and_stops_end_an_answer),
        cmocka_unit_test(another_thread_ends_an_answer),
        cmocka_unit_test(two_sessions_answer_together),
        cmocka_unit_test(a_session_may_leave),
        cmocka_unit_test(a_restored_session_goes_on_as_if_nothing_had_been),
        cmocka_unit_test(the_cache_on_disk_outlives_an_engine),
        cmocka_unit_test(constraints_hold),
        cmocka_unit_test(thinking_has_a_limit),
        cmocka_unit_test(texts_are_scored),
        cmocka_unit_test(a_model_without_a_tokenizer_is_driven_by_ids),
        cmocka_unit_test(texts_and_ids),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
