/* Prompts in, text out, on the demo model: the same text for any number of threads and passes, whatever was held before
 * and however a former answer ended. */
#include "run/dialogue.h"

#include "fmt/detokenizer.h"
#include "run/random.h"
#include "support/check.h"
#include "support/lines.h"

#include <json-c/json_object.h>

#define DEMO "models/demo"

struct subject {
    struct alloc alloc;
    struct engine *engine;
    struct text_model model;
    struct encoder *encoder;
    struct dialogue *dialogue;
    struct sampling sampling;
    struct token_list prompt;
    struct buf text; /* what came out, piece by piece */
    uint64_t n_events;
    uint64_t key;
    atomic_bool cancel;
    uint64_t cancel_at; /* ids, then the flag is set; 0: never */
};

static bool note(void *context, const struct answer_event *event, struct err *err)
{
    struct subject *s = context;
    size_t bad;
    assert_true(utf8_check(event->text, event->bytes, &bad));
    s->n_events++;
    return buf_add(&s->text, event->text, event->bytes, err);
}

static void subject_open_drafting(struct subject *s, unsigned n_threads, uint32_t pass_rows, uint32_t context,
                                  const struct draft_choice *drafts)
{
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(DEMO);
    *s = (struct subject){.key = random_key_from_seed(7)};
    settings.n_threads = n_threads;
    settings.pass_rows = pass_rows;
    settings.context_tokens = context;
    settings.drafts = *drafts;
    if (!engine_open(&s->engine, &s->alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    if (!text_model_open(&s->model, &s->alloc, file_system_real(), DEMO, engine_config(s->engine), &err))
        fail_msg("%s", err.text);
    s->encoder = encoder_new(&s->alloc, s->model.tokenizer, NULL, &err);
    if (!dialogue_new(&s->dialogue, s->engine, &s->model, clock_real(), &err)) fail_msg("%s", err.text);
    token_list_init(&s->prompt, &s->alloc, 1 << 20);
    buf_init(&s->text, &s->alloc, 1 << 20);
    s->sampling = s->model.defaults;
    s->sampling.max_tokens = 40;
}

static void subject_open(struct subject *s, unsigned n_threads, uint32_t pass_rows, uint32_t context)
{
    subject_open_drafting(s, n_threads, pass_rows, context, &(struct draft_choice){.kind = DRAFT_OFF});
}

static void subject_close(struct subject *s)
{
    buf_fini(&s->text);
    token_list_fini(&s->prompt);
    dialogue_free(s->dialogue);
    dialogue_free(NULL);
    encoder_free(s->encoder);
    text_model_close(&s->model);
    engine_close(s->engine);
    assert_int_equal(s->alloc.live, 0);
}

static void put_chat(struct subject *s, const char *messages)
{
    struct err err = {0};
    bool thinks;
    struct chat_request request = {.messages = fixture_json(&s->alloc, messages)};
    s->prompt.n = 0;
    if (!text_model_encode_chat(&s->model, s->encoder, &request, &s->prompt, &thinks, &err)) fail_msg("%s", err.text);
    json_object_put(request.messages);
}

/* Answers s->prompt; the ids that came out, in *ids, may be NULL. */
static const struct dialogue_result *answer(struct subject *s, struct token_list *ids)
{
    struct err err = {0};
    struct answer_request chat = {.is_chat = true, .emit = note, .context = s};
    const struct dialogue_request request = {.prompt = s->prompt.ids,
                                             .n_prompt = (uint32_t)s->prompt.n,
                                             .sampling = &s->sampling,
                                             .answer = &chat,
                                             .key = s->key,
                                             .cancel = &s->cancel};
    const struct dialogue_result *result = dialogue_result(s->dialogue);
    buf_clear(&s->text);
    s->n_events = 0;
    if (!dialogue_start(s->dialogue, &request, &err)) fail_msg("%s", err.text);
    for (uint64_t n = 1;; n++) {
        struct sampled token;
        if (!dialogue_next(s->dialogue, &token, &err)) fail_msg("%s", err.text);
        if (result->reason != STOP_NONE) break;
        if (ids && !token_list_add(ids, &token.id, 1, &err)) fail_msg("%s", err.text);
        if (n == s->cancel_at) atomic_store(&s->cancel, true);
    }
    assert_true(dialogue_next(s->dialogue, NULL, &err)); /* an answer that is over stays so */
    return result;
}

#define ASK "[{\"role\":\"user\",\"content\":\"Tell me a story about a fox named Lena.\"}]"

#define MORE "Then tell me another one, about a donkey that lived by the sea and found a golden key. "
#define LONG "[{\"role\":\"user\",\"content\":\"" MORE MORE MORE MORE MORE MORE "\"}]"

static void a_seed_fixes_the_text(void **state)
{
    struct subject s;
    char want[2000];
    (void)state;
    subject_open(&s, 1, 128, 512);
    put_chat(&s, ASK);
    answer(&s, NULL);
    snprintf(want, sizeof want, "%s", s.text.data);
    print_message("%s\n", want);
    assert_true(strlen(want) > 40);
    assert_true(s.n_events > 10); /* it came in pieces */
    s.key = random_key_from_seed(8);
    answer(&s, NULL);
    assert_string_not_equal(s.text.data, want);
    subject_close(&s);
    for (unsigned threads = 1; threads <= 3; threads++) {
        subject_open(&s, threads, threads == 3 ? 5 : 64, 512);
        put_chat(&s, ASK);
        for (int again = 0; again < 2; again++) { /* the second time all of the prompt is held */
            const struct dialogue_result *r = answer(&s, NULL);
            assert_string_equal(s.text.data, want);
            assert_int_equal(r->n_reused, again ? s.prompt.n - 1 : 0);
        }
        subject_close(&s);
    }
}

/* Whoever drafts, and however much: the same ids and pieces, one by one, and the same reuse in the second turn. */
static void drafts_change_nothing(void **state)
{
    static const struct draft_choice choices[] = {
        {.kind = DRAFT_OFF},
        {.kind = DRAFT_MTP, .n_max = 1},
        {.kind = DRAFT_MTP, .n_max = 3},
        {.kind = DRAFT_MTP, .n_max = 7},
        {.kind = DRAFT_MTP, .n_max = 7, .is_weighed = true},
        {.kind = DRAFT_NGRAM, .n_max = 10, .ngram_min = 1, .ngram_max = 3},
        {.kind = DRAFT_NGRAM, .n_max = 10, .ngram_min = 1, .ngram_max = 3, .is_weighed = true},
    };
    struct subject s;
    char want[2][2000] = {{0}};
    uint64_t n_events[2] = {0};
    uint32_t n_reused[2] = {0};
    (void)state;
    for (size_t c = 0; c < sizeof choices / sizeof *choices; c++) {
        subject_open_drafting(&s, 2, 64, 512, &choices[c]);
        struct job_usage usage = {0};
        for (int turn = 0; turn < 2; turn++) {
            put_chat(&s, turn ? LONG : ASK);
            const struct dialogue_result *r = answer(&s, NULL);
            if (c == 0) {
                snprintf(want[turn], sizeof want[turn], "%s", s.text.data);
                n_events[turn] = s.n_events;
                n_reused[turn] = r->n_reused;
            }
            assert_string_equal(s.text.data, want[turn]);
            assert_int_equal(s.n_events, n_events[turn]);
            assert_int_equal(r->n_reused, n_reused[turn]);
            assert_int_equal(r->n_generated, r->usage.n_generated);
            usage.n_drafted += r->usage.n_drafted;
            usage.n_accepted += r->usage.n_accepted;
            usage.n_passes += r->usage.n_passes;
        }
        print_message("drafts of kind %d, up to %u: %u of %u accepted, %u passes\n", choices[c].kind, choices[c].n_max,
                      usage.n_accepted, usage.n_drafted, usage.n_passes);
        /* or nothing was seen; how much is drafted when it is weighed depends on the clock */
        assert_true(choices[c].kind != DRAFT_MTP || choices[c].is_weighed || usage.n_accepted > 5);
        subject_close(&s);
    }
}

static void the_pieces_are_the_text_of_the_ids(void **state)
{
    struct subject s;
    struct token_list ids;
    struct err err = {0};
    struct buf whole;
    (void)state;
    subject_open(&s, 2, 128, 512);
    s.sampling.temperature = 2; /* text of all kinds, broken code points too */
    s.sampling.top_p = 1;
    for (int seed = 0; seed < 5; seed++) {
        token_list_init(&ids, &s.alloc, 1000);
        buf_init(&whole, &s.alloc, 1 << 20);
        s.key = random_key_from_seed(seed);
        put_chat(&s, "[{\"role\":\"user\",\"content\":\"Tell me a joke.\"}]");
        const struct dialogue_result *r = answer(&s, &ids);
        assert_int_equal(ids.n, r->n_generated);
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] == s.model.chat.id[CHAT_THINK] || ids.ids[i] == s.model.chat.id[CHAT_THINK_END])
                ids.ids[i] = 4061; /* structure, and no text: as good as a special token */
        assert_true(detokenizer_decode(s.model.tokenizer, ids.ids, ids.n, true, &whole, &err));
        print_message("%u ids: %s\n", r->n_generated, whole.data);
        assert_string_equal(s.text.data, whole.data);
        buf_fini(&whole);
        token_list_fini(&ids);
    }
    subject_close(&s);
}

#define TURN1 "{\"role\":\"user\",\"content\":\"My name is Robert.\"}"
#define TURN2 TURN1 ",{\"role\":\"assistant\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"What is my name?\"}"

static void only_the_new_turn_is_read(void **state)
{
    struct subject s, fresh;
    char messages[1000];
    (void)state;
    subject_open(&s, 2, 128, 512);
    s.sampling.temperature = 0;
    put_chat(&s, "[" TURN1 "]");
    const struct dialogue_result *r = answer(&s, NULL);
    uint32_t held = (uint32_t)s.prompt.n + r->n_generated;
    assert_int_equal(r->reason, STOP_EOS);
    snprintf(messages, sizeof messages, "[" TURN2 "]", s.text.data);
    put_chat(&s, messages);
    r = answer(&s, NULL);
    print_message("%s: %u of %u ids were held; %s\n", messages, r->n_reused, r->n_prompt, s.text.data);
    assert_int_equal(r->n_reused, held);
    assert_non_null(strstr(s.text.data, "Robert"));

    subject_open(&fresh, 2, 128, 512);
    fresh.sampling.temperature = 0;
    put_chat(&fresh, messages);
    answer(&fresh, NULL);
    assert_string_equal(fresh.text.data, s.text.data);
    /* back to the first turn, which differs from what is held now in its end only */
    put_chat(&s, "[" TURN1 "]");
    r = answer(&s, NULL);
    assert_int_equal(r->n_reused, s.prompt.n - 1);
    subject_close(&fresh);
    subject_close(&s);
}

static void it_can_be_stopped_anywhere(void **state)
{
    struct subject s;
    char want[2000];
    (void)state;
    subject_open(&s, 2, 4, 512);
    put_chat(&s, ASK);
    answer(&s, NULL);
    snprintf(want, sizeof want, "%s", s.text.data);
    for (uint64_t at = 1; at < 8; at += 3) {
        atomic_store(&s.cancel, false);
        s.cancel_at = at;
        const struct dialogue_result *r = answer(&s, NULL);
        assert_int_equal(r->reason, STOP_CANCELLED);
        assert_int_equal(r->n_generated, at);
        assert_memory_equal(s.text.data, want, s.text.bytes);
    }
    subject_close(&s);

    subject_open(&s, 2, 4, 512); /* before anything was read */
    put_chat(&s, ASK);
    atomic_store(&s.cancel, true);
    const struct dialogue_result *r = answer(&s, NULL);
    assert_int_equal(r->reason, STOP_CANCELLED);
    assert_int_equal(r->n_generated, 0);
    atomic_store(&s.cancel, false);
    answer(&s, NULL);
    assert_string_equal(s.text.data, want);
    subject_close(&s);
}

struct progress {
    struct subject *s;
    uint32_t n_read, n_calls, cancel_at;
};

static void see_progress(void *context, uint32_t n_read, uint32_t n_prompt)
{
    struct progress *p = context;
    assert_int_equal(n_prompt, p->s->prompt.n);
    assert_true(n_read > p->n_read && n_read < n_prompt);
    p->n_read = n_read;
    if (++p->n_calls == p->cancel_at) atomic_store(&p->s->cancel, true);
}

/* A prompt of several passes tells how far it is; called off, what was read stays for the next time. */
static void reading_can_be_stopped_too(void **state)
{
    struct subject s;
    struct err err = {0};
    struct sampled token;
    struct answer_request chat = {.is_chat = true, .emit = note};
    (void)state;
    subject_open(&s, 2, 4, 512);
    put_chat(&s, LONG);
    uint32_t rows = engine_settings_of(s.engine)->pass_rows;
    struct progress p = {.s = &s};
    chat.context = &s;
    struct dialogue_request request = {.prompt = s.prompt.ids,
                                       .n_prompt = (uint32_t)s.prompt.n,
                                       .sampling = &s.sampling,
                                       .answer = &chat,
                                       .key = s.key,
                                       .cancel = &s.cancel,
                                       .progress = see_progress,
                                       .progress_context = &p};
    assert_true(dialogue_start(s.dialogue, &request, &err));
    print_message("%u passes before the last one\n", p.n_calls);
    assert_int_equal(p.n_calls, (s.prompt.n - 1) / rows);
    uint32_t n_calls = p.n_calls;
    subject_close(&s);

    subject_open(&s, 2, 4, 512);
    put_chat(&s, LONG);
    p = (struct progress){.s = &s, .cancel_at = 2};
    request.prompt = s.prompt.ids;
    request.sampling = &s.sampling;
    assert_true(n_calls > 2);
    assert_true(dialogue_start(s.dialogue, &request, &err));
    atomic_store(&s.cancel, false); /* too late: this answer is called off */
    assert_true(dialogue_next(s.dialogue, &token, &err));
    assert_int_equal(dialogue_result(s.dialogue)->reason, STOP_CANCELLED);
    p = (struct progress){.s = &s, .n_read = 2 * rows};
    assert_true(dialogue_start(s.dialogue, &request, &err));
    assert_int_equal(dialogue_result(s.dialogue)->n_reused, 2 * rows);
    assert_int_equal(p.n_calls, n_calls - 2);
    subject_close(&s);
}

static bool set_later(void *context, const struct answer_event *event, struct err *err)
{
    struct subject *s = context;
    (void)event;
    (void)err;
    if (++s->n_events == 2) atomic_store(&s->cancel, true);
    return true;
}

/* The flag is also looked at inside a pass; the text that was out is kept, and nothing more comes. */
static void an_answer_stops_inside_a_pass(void **state)
{
    struct subject s;
    struct err err = {0};
    struct sampled token;
    struct answer_request chat = {.is_chat = true, .emit = set_later};
    (void)state;
    subject_open(&s, 1, 128, 512);
    put_chat(&s, ASK);
    chat.context = &s;
    const struct dialogue_request request = {.prompt = s.prompt.ids,
                                             .n_prompt = (uint32_t)s.prompt.n,
                                             .sampling = &s.sampling,
                                             .answer = &chat,
                                             .cancel = &s.cancel};
    assert_true(dialogue_start(s.dialogue, &request, &err));
    while (dialogue_result(s.dialogue)->reason == STOP_NONE) assert_true(dialogue_next(s.dialogue, &token, &err));
    assert_int_equal(dialogue_result(s.dialogue)->reason, STOP_CANCELLED);
    assert_in_range(s.n_events, 2, 3); /* a held piece may still come out */
    subject_close(&s);
}

static void limits_end_it(void **state)
{
    struct subject s;
    char whole[2000];
    (void)state;
    subject_open(&s, 2, 128, 512);
    s.sampling.temperature = 0;
    put_chat(&s, ASK);
    s.sampling.max_tokens = 3;
    const struct dialogue_result *r = answer(&s, NULL);
    assert_int_equal(r->reason, STOP_LENGTH);
    assert_int_equal(r->n_generated, 3);
    s.sampling.max_tokens = 40;
    answer(&s, NULL);
    snprintf(whole, sizeof whole, "%s", s.text.data);
    for (size_t at = 1; at + 20 < strlen(whole); at += 9) { /* any part of the answer may be a stop string */
        const struct stop_string stop = {.bytes = whole + at, .n_bytes = 3 + at % 5};
        size_t first = at;
        for (size_t i = 0; i < at; i++)
            if (memcmp(whole + i, stop.bytes, stop.n_bytes) == 0 && i < first) first = i;
        s.sampling.stop = &stop;
        s.sampling.n_stop = 1;
        r = answer(&s, NULL);
        print_message("%s|\n", s.text.data);
        assert_int_equal(r->reason, STOP_STRING);
        assert_ptr_equal(r->stop_string, &stop);
        assert_int_equal(s.text.bytes, first);
        assert_memory_equal(s.text.data, whole, first);
    }
    s.sampling.n_stop = 0;
    subject_close(&s);

    subject_open(&s, 2, 128, 24); /* a context that ends before the answer does */
    s.sampling.temperature = 0;
    put_chat(&s, ASK);
    r = answer(&s, NULL);
    assert_int_equal(r->reason, STOP_LENGTH);
    assert_int_equal(r->n_generated, 24 - s.prompt.n);
    subject_close(&s);
}

static void a_prompt_that_does_not_fit_is_refused(void **state)
{
    struct subject s;
    struct err err = {0};
    uint32_t many[64] = {0};
    struct answer_request raw = {0};
    struct dialogue_request request = {.prompt = many, .n_prompt = 24, .answer = &raw};
    (void)state;
    subject_open(&s, 2, 128, 24);
    request.sampling = &s.sampling;
    put_chat(&s, "[{\"role\":\"user\",\"content\":\"Hello!\"}]");
    answer(&s, NULL); /* something is held */
    assert_false(dialogue_start(s.dialogue, &request, &err));
    print_message("%s\n", err.text);
    assert_int_equal(err.kind, ERR_USER);
    assert_non_null(strstr(err.text, "24 tokens"));
    assert_non_null(strstr(err.text, "--context-length"));
    assert_int_equal(dialogue_result(s.dialogue)->reason, STOP_ERROR);
    request.n_prompt = 0;
    assert_false(dialogue_start(s.dialogue, &request, &err));
    assert_int_equal(err.kind, ERR_USER);
    request.n_prompt = 3;
    many[2] = 4096; /* no such row */
    assert_false(dialogue_start(s.dialogue, &request, &err));
    put_chat(&s, "[{\"role\":\"user\",\"content\":\"Hello!\"}]");
    assert_int_equal(answer(&s, NULL)->n_reused, s.prompt.n - 1); /* it still answers, and nothing was forgotten */
    subject_close(&s);
}

/* Tokens of the model's own that end a turn come out nowhere; those of a conversation's structure neither. */
static void tool_calls_come_out_whole(void **state)
{
    static const char tools[] =
        "[{\"name\":\"get_weather\",\"description\":\"Get the current weather of a city\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"City name\"}},\"required\":"
        "[\"city\"]}}]";
    struct subject s;
    struct err err = {0};
    struct chat_tools declared;
    struct sampled token;
    bool thinks;
    (void)state;
    subject_open(&s, 2, 128, 1024);
    struct chat_request chat = {
        .messages = fixture_json(&s.alloc, "[{\"role\":\"user\",\"content\":\"What is the weather in Osaka?\"}]"),
        .tools = fixture_json(&s.alloc, tools)};
    assert_true(chat_tools_init(&declared, &s.alloc, chat.tools, &err));
    if (!text_model_encode_chat(&s.model, s.encoder, &chat, &s.prompt, &thinks, &err)) fail_msg("%s", err.text);
    s.sampling.temperature = 0;
    struct answer_request with_tools = {.is_chat = true, .tools = &declared, .emit = note, .context = &s};
    const struct dialogue_request request = {
        .prompt = s.prompt.ids, .n_prompt = (uint32_t)s.prompt.n, .sampling = &s.sampling, .answer = &with_tools};
    assert_true(dialogue_start(s.dialogue, &request, &err));
    while (dialogue_result(s.dialogue)->reason == STOP_NONE)
        if (!dialogue_next(s.dialogue, &token, &err)) fail_msg("%s", err.text);
    print_message("%s\n", s.text.data);
    assert_string_equal(s.text.data, "{\"city\":\"Osaka\"}");
    assert_int_equal(s.n_events, 1);
    assert_int_equal(dialogue_result(s.dialogue)->reason, STOP_TOOL);
    chat_tools_fini(&declared);
    json_object_put(chat.messages);
    json_object_put(chat.tools);
    subject_close(&s);
}

/* Every allocation of a dialogue and its first answer fails in turn, on an engine that stays and keeps its blocks. */
static void memory_may_run_out_anywhere(void **state)
{
    struct subject s;
    struct err none = {0};
    (void)state;
    subject_open(&s, 1, 128, 64);
    put_chat(&s, "[{\"role\":\"user\",\"content\":\"Hello!\"}]");
    answer(&s, NULL);
    dialogue_free(s.dialogue);
    s.dialogue = NULL;
    uint64_t live = s.alloc.live, n_points = 0;
    for (;; n_points++) {
        struct err err = {0};
        struct dialogue *d = NULL;
        struct sampled token;
        struct answer_request chat = {.is_chat = true};
        const struct dialogue_request request = {
            .prompt = s.prompt.ids, .n_prompt = (uint32_t)s.prompt.n, .sampling = &s.sampling, .answer = &chat};
        s.alloc.fail_at = s.alloc.calls + 1 + n_points;
        bool ok = dialogue_new(&d, s.engine, &s.model, clock_real(), &err) && dialogue_start(d, &request, &err);
        while (ok && dialogue_result(d)->reason == STOP_NONE) ok = dialogue_next(d, &token, &err);
        bool ran_to_the_end = s.alloc.calls < s.alloc.fail_at;
        s.alloc.fail_at = 0;
        dialogue_free(d);
        assert_int_equal(s.alloc.live, live);
        if (ran_to_the_end) {
            assert_true(ok);
            break;
        }
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM); /* what only saves time may do without its memory */
    }
    print_message("%ju points\n", (uintmax_t)n_points);
    assert_true(n_points > 5);
    assert_true(dialogue_new(&s.dialogue, s.engine, &s.model, clock_real(), &none));
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_fixes_the_text),
        cmocka_unit_test(drafts_change_nothing),
        cmocka_unit_test(the_pieces_are_the_text_of_the_ids),
        cmocka_unit_test(only_the_new_turn_is_read),
        cmocka_unit_test(it_can_be_stopped_anywhere),
        cmocka_unit_test(reading_can_be_stopped_too),
        cmocka_unit_test(an_answer_stops_inside_a_pass),
        cmocka_unit_test(limits_end_it),
        cmocka_unit_test(a_prompt_that_does_not_fit_is_refused),
        cmocka_unit_test(tool_calls_come_out_whole),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
