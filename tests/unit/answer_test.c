/* One answer from ids to text: what is held back, what ends it, and that nothing depends on how the ids arrive. */
#include "run/answer.h"

#include "fmt/detokenizer.h"
#include "support/check.h"
#include "support/lines.h"
#include "support/random_text.h"

#include <json-c/json_object.h>

static const struct config demo = {.vocab = 4096, .eos = {4060, 4067, 4069}, .n_eos = 3};

/* What comes out, in one text: reasoning in {}, a } only before something else, content as it is, calls as [name
 * arguments]; | after each event. */
struct transcript {
    struct buf text;
    bool with_bars, in_reasoning;
    uint64_t fail_at, n; /* the n-th event fails; 0: none does */
};

static bool note(void *context, const struct answer_event *event, struct err *err)
{
    struct transcript *t = context;
    if (++t->n == t->fail_at) return err_set(err, ERR_IO, "the reader is gone");
    bool ok = true;
    assert_true(event->bytes > 0);
    bool is_reasoning = event->part == ANSWER_REASONING;
    if (is_reasoning != t->in_reasoning) ok = buf_add_char(&t->text, is_reasoning ? '{' : '}', err);
    t->in_reasoning = is_reasoning;
    if (ok && event->part == ANSWER_CALL)
        ok = buf_printf(&t->text, err, "[%.*s ", (int)event->tool->name_bytes, event->tool->name);
    ok = ok && buf_add(&t->text, event->text, event->bytes, err);
    if (event->part == ANSWER_CALL) ok = ok && buf_add_text(&t->text, "]", err);
    return ok && (!t->with_bars || buf_add_text(&t->text, "|", err));
}

struct subject {
    struct alloc alloc;
    struct text_model model;
    struct encoder *encoder;
    struct chat_tools tools;
    struct json_object *tool_list;
};

static int subject_open(void **state)
{
    static struct subject s;
    struct err err = {0};
    s = (struct subject){0};
    if (!text_model_open(&s.model, &s.alloc, file_system_real(), "models/demo", &demo, &err)) fail_msg("%s", err.text);
    s.encoder = encoder_new(&s.alloc, s.model.tokenizer, NULL, &err);
    s.tool_list = fixture_json(&s.alloc, "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
                                         "{\"x\":{\"type\":\"string\"}}}}]");
    assert_true(chat_tools_init(&s.tools, &s.alloc, s.tool_list, &err));
    *state = &s;
    return 0;
}

static int subject_close(void **state)
{
    struct subject *s = *state;
    chat_tools_fini(&s->tools);
    json_object_put(s->tool_list);
    encoder_free(s->encoder);
    text_model_close(&s->model);
    assert_int_equal(s->alloc.live, 0);
    return 0;
}

struct given {
    const char *text; /* what the model generates, markers included */
    const char *stop[3];
    bool raw, thinks, no_tools, one_call;
    enum stop_reason why; /* how generation ends when nothing else ends it; zeroed: STOP_EOS */
};

/* Plays a generation; returns the reason, the ids that were used in *n. */
static enum stop_reason play(struct subject *s, const struct given *given, struct transcript *t, size_t *n)
{
    struct err err = {0};
    struct token_list ids;
    struct answer *answer;
    struct stop_string stop[3];
    struct sampling sampling = {.stop = stop};
    const struct answer_request request = {.is_chat = !given->raw,
                                           .starts_in_think = given->thinks,
                                           .tools = given->no_tools ? NULL : &s->tools,
                                           .one_call = given->one_call,
                                           .emit = note,
                                           .context = t};
    for (; sampling.n_stop < 3 && given->stop[sampling.n_stop]; sampling.n_stop++)
        stop[sampling.n_stop] = (struct stop_string){.bytes = given->stop[sampling.n_stop],
                                                     .n_bytes = strlen(given->stop[sampling.n_stop])};
    token_list_init(&ids, &s->alloc, 100000);
    buf_init(&t->text, &s->alloc, 1 << 20);
    assert_true(encoder_encode(s->encoder, given->text, strlen(given->text), ENCODE_ALL, &ids, &err));
    if (!answer_new(&answer, &s->alloc, &s->model, &sampling, &request, &err)) fail_msg("%s", err.text);
    size_t i = 0;
    while (i < ids.n && answer_reason(answer) == STOP_NONE)
        if (!answer_add(answer, ids.ids[i++], &err)) fail_msg("%s", err.text);
    enum stop_reason why = answer_reason(answer) ? answer_reason(answer) : given->why ? given->why : STOP_EOS;
    if (!answer_end(answer, why, &err)) fail_msg("%s", err.text);
    enum stop_reason reason = answer_reason(answer);
    assert_true((answer_stop_string(answer) != NULL) == (reason == STOP_STRING || why == STOP_STRING));
    if (n) *n = ids.n - i;
    answer_free(answer);
    token_list_fini(&ids);
    return reason;
}

static void expect(struct subject *s, const struct given *given, const char *want, enum stop_reason want_reason)
{
    struct transcript t = {0};
    enum stop_reason reason = play(s, given, &t, NULL);
    const char *got = t.text.data ? t.text.data : "";
    print_message("'%s' gives '%s', %s\n", given->text, got, stop_reason_name(reason));
    assert_string_equal(got, want);
    assert_int_equal(reason, want_reason);
    buf_fini(&t.text);
}

static void parts_come_apart(void **state)
{
    struct subject *s = *state;
    expect(s, &(struct given){.text = "plain"}, "plain", STOP_EOS);
    expect(s, &(struct given){.text = "why</think>because", .thinks = true}, "{why}because", STOP_EOS);
    expect(s, &(struct given){.text = "still thinking", .thinks = true, .why = STOP_LENGTH}, "{still thinking",
           STOP_LENGTH);
    expect(s, &(struct given){.text = "a<|begin_of_image|>b"}, "ab", STOP_EOS);
    expect(s, &(struct given){.text = "x<tool_call>f<arg_key>x</arg_key><arg_value>5</arg_value></tool_call>"},
           "x[f {\"x\":\"5\"}]", STOP_TOOL);
    expect(s, &(struct given){.text = "<tool_call>g</tool_call>"}, "<tool_call>g</tool_call>", STOP_EOS);
    expect(s, &(struct given){.text = "<tool_call>f</tool_call>", .no_tools = true}, "<tool_call>f</tool_call>",
           STOP_EOS);
    expect(s, &(struct given){.text = "<tool_call>f<arg_key>x", .why = STOP_LENGTH}, "<tool_call>f<arg_key>x",
           STOP_LENGTH);
    expect(s, &(struct given){.text = "<tool_call>f</tool_call> and on and on", .one_call = true}, "[f {}]", STOP_TOOL);
}

static void a_raw_answer_is_all_content(void **state)
{
    struct subject *s = *state;
    expect(s, &(struct given){.text = "a</think>b<tool_call>c<|user|>d", .raw = true}, "a</think>b<tool_call>cd",
           STOP_EOS);
}

static void stop_strings_count_in_content_only(void **state)
{
    struct subject *s = *state;
    size_t left;
    struct transcript t = {0};
    expect(s, &(struct given){.text = "one two three", .stop = {"wo t"}}, "one t", STOP_STRING);
    expect(s, &(struct given){.text = "one two three", .stop = {"wo x"}}, "one two three", STOP_EOS);
    expect(s, &(struct given){.text = "abcd", .stop = {"abcd", "bc"}}, "a", STOP_STRING);
    expect(s, &(struct given){.text = "stop</think>go stop go", .thinks = true, .stop = {"stop"}}, "{stop}go ",
           STOP_STRING);
    expect(s,
           &(struct given){.text = "<tool_call>f<arg_key>x</arg_key><arg_value>stop</arg_value></tool_call>",
                           .stop = {"stop"}},
           "[f {\"x\":\"stop\"}]", STOP_TOOL);
    /* a call that turns out to be none is content */
    expect(s, &(struct given){.text = "<tool_call>stop", .stop = {"stop"}, .why = STOP_LENGTH}, "<tool_call>",
           STOP_STRING);
    /* what was held back stands in front of what comes after it */
    expect(s, &(struct given){.text = "st<tool_call>f</tool_call>op", .stop = {"stop"}}, "st[f {}]op", STOP_TOOL);
    expect(s, &(struct given){.text = "st", .stop = {"stop"}, .why = STOP_LENGTH}, "st", STOP_LENGTH);
    expect(s, &(struct given){.text = "a</think>b stop", .raw = true, .stop = {"</think>b"}}, "a", STOP_STRING);

    play(s, &(struct given){.text = "one two three four five", .stop = {"two"}}, &t, &left);
    assert_true(left > 0); /* ids behind the completing one are not even taken */
    buf_fini(&t.text);
}

/* Bytes of a code point come by two tokens: an event never holds half of one. */
static void pieces_are_whole(void **state)
{
    struct subject *s = *state;
    struct transcript t = {.with_bars = true};
    play(s, &(struct given){.text = "a \xF0\x9F\x98\x80 b", .raw = true}, &t, NULL);
    print_message("%s\n", t.text.data);
    size_t bad;
    assert_true(utf8_check(t.text.data, t.text.bytes, &bad));
    assert_non_null(strstr(t.text.data, "\xF0\x9F\x98\x80"));
    assert_true(t.n >= 2);
    buf_fini(&t.text);
}

static void role_markers_end_a_chat_but_not_a_call(void **state)
{
    struct subject *s = *state;
    struct err err = {0};
    struct answer *answer;
    struct sampling sampling = {0};
    struct answer_request request = {.is_chat = true, .tools = &s->tools};
    uint32_t n;
    assert_true(answer_new(&answer, &s->alloc, &s->model, &sampling, &request, &err));
    assert_ptr_equal(answer_ends(answer, &n), s->model.ends);
    assert_int_equal(n, 5);
    assert_true(answer_add(answer, s->model.chat.id[CHAT_CALL], &err));
    answer_ends(answer, &n);
    assert_int_equal(n, 3);
    assert_true(answer_add(answer, s->model.chat.id[CHAT_CALL_END], &err));
    answer_ends(answer, &n);
    assert_int_equal(n, 5);
    answer_free(answer);
    request.is_chat = false;
    assert_true(answer_new(&answer, &s->alloc, &s->model, &sampling, &request, &err));
    answer_ends(answer, &n);
    assert_int_equal(n, 3);
    answer_free(answer);
    answer_free(NULL);
}

/* Random texts, markers and stop strings: raw content is the decoded text, cut before the first stop string. */
static void raw_content_is_the_decoded_text(void **state)
{
    struct subject *s = *state;
    struct random random = {20260704};
    size_t n_cut = 0;
    print_message("seed %ju\n", (uintmax_t)random.state);
    for (int round = 0; round < 400; round++) {
        char text[301], stop[4] = {0};
        struct transcript t = {0};
        struct err err = {0};
        struct token_list ids;
        struct buf want;
        size_t bytes = random_text(&random, text, 300);
        for (size_t i = 0; i < bytes; i++)
            if (!text[i]) text[i] = ' ';
        text[bytes] = 0;
        size_t at = random_below(&random, (uint32_t)bytes + 1);
        for (size_t i = 0; i < 3 && at + i < bytes; i++) stop[i] = text[at + i]; /* may begin inside a code point */
        token_list_init(&ids, &s->alloc, 1000);
        buf_init(&want, &s->alloc, 10000);
        assert_true(encoder_encode(s->encoder, text, bytes, ENCODE_ALL, &ids, &err));
        assert_true(detokenizer_bytes(s->model.tokenizer, ids.ids, ids.n, true, &want, &err));
        struct utf8_stream stream = {0};
        struct buf clean;
        buf_init(&clean, &s->alloc, 30000);
        const char *found = *stop && want.data ? strstr(want.data, stop) : NULL;
        size_t n = found ? (size_t)(found - want.data) : want.bytes;
        if (n) assert_true(utf8_stream_add(&stream, &clean, want.data, n, &err));
        assert_true(utf8_stream_end(&stream, &clean, &err));

        enum stop_reason reason =
            play(s, &(struct given){.text = text, .raw = true, .stop = {*stop ? stop : NULL}}, &t, NULL);
        assert_int_equal(reason, found ? STOP_STRING : STOP_EOS);
        assert_int_equal(t.text.bytes, clean.bytes);
        if (clean.bytes) assert_memory_equal(t.text.data, clean.data, clean.bytes);
        n_cut += found != NULL;
        buf_fini(&t.text);
        buf_fini(&clean);
        buf_fini(&want);
        token_list_fini(&ids);
    }
    print_message("%zu of 400 were cut\n", n_cut);
    assert_in_range(n_cut, 100, 399);
}

static bool answer_all(struct subject *s, struct alloc *alloc, uint64_t event_fails, struct err *err)
{
    static const char text[] =
        "ab</think>cd<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>s<|user|>t";
    static const struct stop_string stop = {.bytes = "stop", .n_bytes = 4};
    const struct sampling sampling = {.stop = &stop, .n_stop = 1};
    struct transcript t = {.fail_at = event_fails};
    struct answer_request request = {
        .is_chat = true, .starts_in_think = true, .tools = &s->tools, .emit = note, .context = &t};
    struct token_list ids;
    struct answer *answer = NULL;
    struct err ignored = {0};
    token_list_init(&ids, &s->alloc, 1000);
    buf_init(&t.text, &s->alloc, 1 << 20);
    assert_true(encoder_encode(s->encoder, text, strlen(text), ENCODE_ALL, &ids, &ignored));
    bool ok = answer_new(&answer, alloc, &s->model, &sampling, &request, err);
    for (size_t i = 0; ok && i < ids.n; i++) ok = answer_add(answer, ids.ids[i], err);
    ok = ok && answer_end(answer, STOP_EOS, err);
    answer_free(answer);
    token_list_fini(&ids);
    buf_fini(&t.text);
    return ok;
}

static void every_failure_is_told(void **state)
{
    struct subject *s = *state;
    uint64_t k = 1, n_points = 0, n_events = 0;
    for (;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        bool ok = answer_all(s, &alloc, 0, &err);
        assert_int_equal(alloc.live, 0);
        if (ok && alloc.calls < k) break;
        assert_false(ok);
        assert_int_equal(err.kind, ERR_NOMEM);
        n_points++;
    }
    for (uint64_t e = 1;; e++) {
        struct alloc alloc = {0};
        struct err err = {0};
        bool ok = answer_all(s, &alloc, e, &err);
        assert_int_equal(alloc.live, 0);
        if (ok) break;
        assert_int_equal(err.kind, ERR_IO);
        n_events++;
    }
    print_message("%ju allocations and %ju events failed in turn\n", (uintmax_t)n_points, (uintmax_t)n_events);
    assert_true(n_points > 3);
    assert_true(n_events > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_apart),
        cmocka_unit_test(a_raw_answer_is_all_content),
        cmocka_unit_test(stop_strings_count_in_content_only),
        cmocka_unit_test(pieces_are_whole),
        cmocka_unit_test(role_markers_end_a_chat_but_not_a_call),
        cmocka_unit_test(raw_content_is_the_decoded_text),
        cmocka_unit_test(every_failure_is_told),
    };
    return cmocka_run_group_tests(tests, subject_open, subject_close);
}
