#include "fmt/output_parser.h"

#include "base/utf8.h"
#include "support/check.h"
#include "support/lines.h"

/* Scripts are written as the text of the output: the texts of control tokens in it are control tokens, everything else
 * is ordinary tokens of a given number of bytes, which may cut code points. A \1 is nothing, but keeps a marker from
 * being one. Events are logged as R[...] C[...] and T[name arguments], neighbours of the same kind joined. */
enum { FIRST_ID = 1000, WORD_ID = 5 };

static struct alloc heap;

static const char tools_json[] =
    "[{\"name\":\"get_time\"},"
    " {\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"required\":[\"city\"],\"properties\":{"
    "   \"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"on\":{\"type\":\"boolean\"}}}},"
    " {\"name\":\"edit\",\"parameters\":{\"properties\":{\"text\":{\"type\":\"string\"}}}}]";

struct log {
    struct buf text;
    enum output_kind last;
    bool has_last;
};

static bool note(void *context, const struct output_event *event, struct err *err)
{
    struct log *log = context;
    static const char letters[] = "RCT";
    size_t bad;
    assert_true(utf8_check(event->text, event->bytes, &bad));
    assert_true(event->bytes > 0);
    if (log->has_last && log->last == event->kind && event->kind != OUTPUT_CALL) {
        log->text.data[--log->text.bytes] = 0; /* take the bracket off again */
    } else if (!buf_printf(&log->text, err, "%c[", letters[event->kind])) {
        return false;
    }
    log->last = event->kind;
    log->has_last = true;
    if (event->kind == OUTPUT_CALL && !buf_printf(&log->text, err, "%s ", event->tool->name)) return false;
    return buf_add(&log->text, event->text, event->bytes, err) && buf_add_char(&log->text, ']', err);
}

static struct chat_ids make_ids(void)
{
    struct chat_ids ids;
    for (int i = 0; i < CHAT_CONTROL_COUNT; i++) ids.id[i] = (uint32_t)(FIRST_ID + i);
    return ids;
}

static enum chat_control control_at(const char *text)
{
    for (int i = 0; i < CHAT_CONTROL_COUNT; i++)
        if (strncmp(text, chat_control_text((enum chat_control)i), strlen(chat_control_text((enum chat_control)i))) ==
            0)
            return (enum chat_control)i;
    return CHAT_TEXT;
}

static bool feed_script(struct output_parser *parser, const char *script, size_t chunk, struct err *err)
{
    while (*script) {
        enum chat_control control = control_at(script);
        struct token token = {.kind = TOKEN_BASE};
        char bytes[64];
        uint32_t id = WORD_ID;
        if (control != CHAT_TEXT) {
            token.bytes = script;
            token.n_bytes = (uint32_t)strlen(chat_control_text(control));
            token.kind = control <= CHAT_OBSERVATION ? TOKEN_SPECIAL : TOKEN_ADDED;
            id = (uint32_t)(FIRST_ID + (int)control);
            script += token.n_bytes;
        } else {
            token.bytes = bytes;
            while (*script && control_at(script) == CHAT_TEXT && token.n_bytes < chunk &&
                   token.n_bytes < sizeof bytes) {
                if (*script != 1) bytes[token.n_bytes++] = *script;
                script++;
            }
        }
        if (!output_parser_feed(parser, id, token, err)) return false;
    }
    return true;
}

struct run {
    bool think, cut, one_call, no_tools, at_once;
    uint32_t reasoning; /* expected tokens, when chunk is 1; 0: not checked */
};

static bool run_script(struct alloc *alloc, const char *script, const struct run *run, size_t chunk, struct log *log,
                       uint32_t *reasoning, struct err *err)
{
    struct chat_ids ids = make_ids();
    struct chat_tools tools;
    struct json_object *list = fixture_json(&heap, tools_json);
    struct output_rules rules = {.ids = &ids,
                                 .tools = run->no_tools ? NULL : &tools,
                                 .starts_in_think = run->think,
                                 .starts_at_once = run->at_once,
                                 .one_call = run->one_call,
                                 .emit = note,
                                 .context = log};
    struct output_parser *parser = NULL;
    *log = (struct log){0};
    buf_init(&log->text, &heap, 1 << 20);
    assert_true(chat_tools_init(&tools, &heap, list, err));
    parser = output_parser_new(alloc, &rules, err);
    bool ok = parser && feed_script(parser, script, chunk, err) &&
              output_parser_end(parser, run->cut ? OUTPUT_END_CUT : OUTPUT_END_EOS, err);
    if (ok) *reasoning = output_parser_reasoning_tokens(parser);
    output_parser_free(parser);
    chat_tools_fini(&tools);
    json_object_put(list);
    return ok;
}

#define THINK         \
    {                 \
        .think = true \
    }
#define ANSWER \
    {          \
        0      \
    }
#define CUT         \
    {               \
        .cut = true \
    }

static const struct {
    const char *script;
    struct run run;
    const char *events;
} cases[] = {
    /* Reasoning and content. */
    {"hello", ANSWER, "C[hello]"},
    {"", ANSWER, ""},
    {"why</think>answer", {.think = true, .reasoning = 3}, "R[why]C[answer]"},
    {"why</think>\n\nanswer\n", THINK, "R[why]C[answer\n]"},
    {"\n\n why \n</think> answer", THINK, "R[\n\n why \n]C[ answer]"},
    {"never closed", {.think = true, .cut = true, .reasoning = 12}, "R[never closed]"},
    {"a<think>b</think>c", {.think = true, .reasoning = 2}, "R[ab]C[c]"},
    {"a</think>b</think>c", THINK, "R[a]C[bc]"},
    {"</think>b", THINK, "C[b]"},
    {"a<think>r</think>b", ANSWER, "C[a]R[r]C[b]"},
    {"\n\nhi", ANSWER, "C[hi]"},
    {"\n\nhi", {.at_once = true}, "C[\n\nhi]"},
    {"why</think>\n\nhi\n", {.at_once = true, .think = true}, "R[why]C[\n\nhi\n]"},
    {"\n<tool_call>get_time</tool_call>", {.at_once = true}, "T[get_time {}]"},
    {"<\1think>x</\1think>y", ANSWER, "C[<think>x</think>y]"},
    {"a<|begin_of_box|>42<|end_of_box|>b", ANSWER, "C[a42b]"},
    {"a<arg_key>b</arg_key></tool_response>", ANSWER, "C[a<arg_key>b</arg_key></tool_response>]"},
    {"x<|user|>y<|observation|>", ANSWER, "C[xy]"},
    {"\xE6\x97\xA5\xE6\x9C\xAC\xF0\x9F\x98\x80", ANSWER, "C[\xE6\x97\xA5\xE6\x9C\xAC\xF0\x9F\x98\x80]"},
    {"r\xE6\x97</think>c\xF0\x9F", THINK, "R[r\xEF\xBF\xBD]C[c\xEF\xBF\xBD]"},
    {"  spaces  stay  ", ANSWER, "C[  spaces  stay  ]"},

    /* Calls. */
    {"<tool_call>get_time</tool_call>", ANSWER, "T[get_time {}]"},
    {"<tool_call> get_time\n</tool_call>", ANSWER, "T[get_time {}]"},
    {"<tool_call>get_time</tool_call><tool_call>get_time</tool_call>", ANSWER, "T[get_time {}]T[get_time {}]"},
    {"<tool_call>get_time</tool_call>\n<tool_call>get_time</tool_call>\n", ANSWER, "T[get_time {}]T[get_time {}]"},
    {"I look.\n\n<tool_call>get_time</tool_call>", ANSWER, "C[I look.]T[get_time {}]"},
    {"<tool_call>get_time</tool_call>\nand more\n", ANSWER, "T[get_time {}]C[\nand more\n]"},
    {"<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3"
     "</arg_value></tool_call>",
     ANSWER, "T[weather {\"city\":\"Paris\",\"days\":3}]"},
    {"<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3"
     "</arg_value>\n</tool_call>",
     ANSWER, "T[weather {\"city\":\"Paris\",\"days\":3}]"},
    {"<tool_call>weather<arg_key>city</arg_key><arg_value> 7 </arg_value><arg_key>on</arg_key><arg_value>True"
     "</arg_value><arg_key>extra</arg_key><arg_value>[1, 2]</arg_value></tool_call>",
     ANSWER, "T[weather {\"city\":\" 7 \",\"on\":true,\"extra\":[1,2]}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>a</arg_value><arg_key>k</arg_key><arg_value>1</arg_value>"
     "<arg_key>text</arg_key><arg_value>b</arg_value></tool_call>",
     ANSWER, "T[edit {\"text\":\"b\",\"k\":1}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value></arg_value></tool_call>", ANSWER, "T[edit {\"text\":\"\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key>no opening</arg_value></tool_call>", ANSWER,
     "T[edit {\"text\":\"no opening\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key></arg_value></tool_call>", ANSWER, "T[edit {\"text\":\"\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>\"q\" \\ \n\x1b \xC3\xA4</arg_value></tool_call>", ANSWER,
     "T[edit {\"text\":\"\\\"q\\\" \\\\ \\n\\u001b \xC3\xA4\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>cut \xC3</arg_value></tool_call>", ANSWER,
     "T[edit {\"text\":\"cut \xEF\xBF\xBD\"}]"},

    /* Markers inside values are text. */
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>a</tool_call>b<tool_call>c<think>d</think>e<arg_key>f</arg_key>"
     "</arg_value></tool_call>",
     ANSWER, "T[edit {\"text\":\"a</tool_call>b<tool_call>c<think>d</think>e<arg_key>f</arg_key>\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>a</arg_value>b</arg_value> \n</tool_call>", ANSWER,
     "T[edit {\"text\":\"a</arg_value>b\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>a</arg_value>\n</arg_value></tool_call>", ANSWER,
     "T[edit {\"text\":\"a</arg_value>\\n\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>say <|user|> and <|assistant|></arg_value></tool_call>", ANSWER,
     "T[edit {\"text\":\"say <|user|> and <|assistant|>\"}]"},

    /* Calls inside an open think block. */
    {"plan\n<tool_call>get_time</tool_call>", {.think = true, .reasoning = 5}, "R[plan\n]T[get_time {}]"},
    {"plan<tool_call>get_time</tool_call></think>done", THINK, "R[plan]T[get_time {}]C[done]"},
    {"I write `<tool_call>get_time</tool_call>` then</think>real", THINK,
     "R[I write `<tool_call>get_time</tool_call>` then]C[real]"},
    {"see ```\n```<tool_call>get_time</tool_call>", THINK, "R[see ```\n```]T[get_time {}]"},
    {"half <tool_call>get_ti", {.think = true, .cut = true, .reasoning = 12}, "R[half <tool_call>get_ti]"},
    {"use <tool_call> for calls</think>real", THINK, "R[use <tool_call> for calls]C[real]"},
    {"use <tool_call>nothing</tool_call> ok</think>real", THINK, "R[use <tool_call>nothing</tool_call> ok]C[real]"},

    /* What is no call. */
    {"<tool_call>get_tim</tool_call>", ANSWER, "C[<tool_call>get_tim</tool_call>]"},
    {"<tool_call>Get_time</tool_call>", ANSWER, "C[<tool_call>Get_time</tool_call>]"},
    {"a \n<tool_call>nope<arg_key>k</arg_key><arg_value>v</arg_value></tool_call> b", ANSWER,
     "C[a \n<tool_call>nope<arg_key>k</arg_key><arg_value>v</arg_value></tool_call> b]"},
    {"<tool_call></tool_call>", ANSWER, "C[<tool_call></tool_call>]"},
    {"<tool_call>get_time<arg_value>x</tool_call>", ANSWER, "C[<tool_call>get_time<arg_value>x</tool_call>]"},
    {"<tool_call>edit<arg_key>text</tool_call>", ANSWER, "C[<tool_call>edit<arg_key>text</tool_call>]"},
    {"<tool_call>edit<arg_key>text</arg_key></tool_call>", ANSWER,
     "C[<tool_call>edit<arg_key>text</arg_key></tool_call>]"},
    {"<tool_call>mentioned in<tool_call>get_time</tool_call>", ANSWER, "C[<tool_call>mentioned in]T[get_time {}]"},
    {"<tool_call>mentioned<think>hm</think>yes", ANSWER, "C[<tool_call>mentioned]R[hm]C[yes]"},

    /* The end inside a call. */
    {"<tool_call>get_time", ANSWER, "T[get_time {}]"},
    {"<tool_call>get_time", CUT, "C[<tool_call>get_time]"},
    {"<tool_call>weather", ANSWER, "C[<tool_call>weather]"},
    {"text <tool_call>get_time and so on", ANSWER, "C[text <tool_call>get_time and so on]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>v</arg_value>", ANSWER, "T[edit {\"text\":\"v\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>v</arg_value>", CUT,
     "C[<tool_call>edit<arg_key>text</arg_key><arg_value>v</arg_value>]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>v", ANSWER, "T[edit {\"text\":\"v\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>v</tool_call>\n", ANSWER, "T[edit {\"text\":\"v\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>v</tool_call>w", ANSWER,
     "T[edit {\"text\":\"v</tool_call>w\"}]"},
    {"<tool_call>edit<arg_key>text</arg_key><arg_value>v", CUT,
     "C[<tool_call>edit<arg_key>text</arg_key><arg_value>v]"},
    {"<tool_call>edit<arg_key>text", ANSWER, "C[<tool_call>edit<arg_key>text]"},
    {"<tool_call>edit<arg_key>text</arg_key>", ANSWER, "C[<tool_call>edit<arg_key>text</arg_key>]"},
    {"<tool_call>nope<arg_key>text</arg_key><arg_value>v</arg_value>", ANSWER,
     "C[<tool_call>nope<arg_key>text</arg_key><arg_value>v</arg_value>]"},
    {"a  ", ANSWER, "C[a  ]"},
    {"<tool_call>get_time</tool_call> \n ", ANSWER, "T[get_time {}]"},

    /* Rules. */
    {"<tool_call>get_time</tool_call><tool_call>get_time</tool_call>tail", {.one_call = true}, "T[get_time {}]"},
    {"a <tool_call>get_time</tool_call> b", {.no_tools = true}, "C[a <tool_call>get_time</tool_call> b]"},
    {"a <tool_call>x</think>b", {.think = true, .no_tools = true}, "R[a <tool_call>x]C[b]"},
};

static void scripts_give_the_same_events_however_they_are_cut(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 2, 3, 7, 64};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            struct log log;
            struct err err = {0};
            uint32_t reasoning = 0;
            bool ok = run_script(&heap, cases[i].script, &cases[i].run, chunks[c], &log, &reasoning, &err);
            const char *got = log.text.data ? log.text.data : "";
            if (!ok || strcmp(got, cases[i].events) != 0)
                print_error("case %zu, %zu bytes a token: %s\nwant %s\n got %s %s\n", i, chunks[c], cases[i].script,
                            cases[i].events, got, err.text);
            assert_true(ok);
            assert_string_equal(got, cases[i].events);
            if (chunks[c] == 1 && cases[i].run.reasoning) assert_int_equal(reasoning, cases[i].run.reasoning);
            buf_fini(&log.text);
        }
    }
    print_message("%zu scripts\n", sizeof cases / sizeof *cases);
    assert_int_equal(heap.live, 0);
}

/* Without think marks, blanks and what the log adds. */
static void squeeze(char *out, const char *text)
{
    for (; *text; text++) {
        enum chat_control control = control_at(text);
        if (control == CHAT_THINK || control == CHAT_THINK_END)
            text += strlen(chat_control_text(control)) - 1;
        else if (!strchr("RC[] \n", *text))
            *out++ = *text;
    }
    *out = 0;
}

/* Random rows of markers and words: nothing crashes, events do not depend on the cutting, and when no call is accepted
 * nothing that was generated gets lost. */
static void random_scripts_lose_nothing(void **state)
{
    (void)state;
    static const char *const words[] = {"<think>",
                                        "</think>",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "<arg_key>",
                                        "</arg_key>",
                                        "<arg_value>",
                                        "</arg_value>",
                                        "<tool_call>get_time",
                                        "<arg_key>text</arg_key><arg_value>",
                                        "get_time",
                                        "edit",
                                        "a",
                                        " ",
                                        "\n",
                                        "\xC3\xA4",
                                        "`"};
    uint64_t seed = 7, random = seed;
    uint32_t n_calls = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 4000; round++) {
        char script[512] = "", want[512], got[1024];
        for (int n = 0; n < 12; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const char *word = words[(random >> 33) % (sizeof words / sizeof *words)];
            memcpy(script + strlen(script), word, strlen(word) + 1);
        }
        struct run run = {.think = round & 1, .cut = round & 2};
        struct log one, all;
        struct err err = {0};
        uint32_t reasoning;
        assert_true(run_script(&heap, script, &run, 1, &one, &reasoning, &err));
        assert_true(run_script(&heap, script, &run, 64, &all, &reasoning, &err));
        const char *a = one.text.data ? one.text.data : "", *b = all.text.data ? all.text.data : "";
        if (strcmp(a, b) != 0) print_error("%s\n", script);
        assert_string_equal(a, b);
        bool has_call = strstr(a, "T[") != NULL;
        n_calls += has_call;
        squeeze(want, script);
        squeeze(got, a);
        if (!has_call) assert_string_equal(got, want);
        buf_fini(&one.text);
        buf_fini(&all.text);
    }
    print_message("%u scripts with calls\n", n_calls);
    assert_true(n_calls > 50);
    assert_int_equal(heap.live, 0);
}

static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    const char *script = "why</think>a <tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value>y</arg_value>"
                         "<arg_key>days</arg_key><arg_value>[\"a\"]</arg_value></tool_call> <tool_call>bad</tool_call>";
    struct run run = {.think = true};
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct log log;
        struct err err = {0};
        uint32_t reasoning;
        bool ok = run_script(&alloc, script, &run, 7, &log, &reasoning, &err);
        buf_fini(&log.text);
        assert_int_equal(alloc.live, 0);
        if (ok) {
            assert_true(k > 8);
            break;
        }
        assert_int_equal(err.kind, ERR_NOMEM);
    }
}

static bool refuse(void *context, const struct output_event *event, struct err *err)
{
    (void)context;
    (void)event;
    return err_set(err, ERR_CANCELLED, "the client left");
}

static void a_reader_that_refuses_ends_the_parser(void **state)
{
    (void)state;
    struct chat_ids ids = make_ids();
    struct output_rules rules = {.ids = &ids, .emit = refuse};
    struct err err = {0};
    struct output_parser *parser = output_parser_new(&heap, &rules, &err);
    assert_non_null(parser);
    assert_false(feed_script(parser, "x", 1, &err));
    assert_int_equal(err.kind, ERR_CANCELLED);
    output_parser_free(parser);
}

static void calls_are_seen_from_outside(void **state)
{
    (void)state;
    struct chat_ids ids = make_ids();
    struct chat_tools tools;
    struct json_object *list = fixture_json(&heap, tools_json);
    struct log log = {0};
    struct err err = {0};
    buf_init(&log.text, &heap, 1 << 20);
    assert_true(chat_tools_init(&tools, &heap, list, &err));
    struct output_rules rules = {.ids = &ids, .tools = &tools, .one_call = true, .emit = note, .context = &log};
    struct output_parser *parser = output_parser_new(&heap, &rules, &err);
    assert_non_null(parser);
    assert_false(output_parser_in_call(parser));
    assert_true(feed_script(parser, "<tool_call>get", 3, &err));
    assert_true(output_parser_in_call(parser));
    assert_int_equal(output_parser_calls(parser), 0);
    assert_true(feed_script(parser, "_time</tool_call>", 3, &err));
    assert_false(output_parser_in_call(parser));
    assert_true(output_parser_is_done(parser));
    assert_int_equal(output_parser_calls(parser), 1);
    assert_true(output_parser_end(parser, OUTPUT_END_CUT, &err));
    output_parser_free(parser);
    chat_tools_fini(&tools);
    json_object_put(list);
    buf_fini(&log.text);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_give_the_same_events_however_they_are_cut),
        cmocka_unit_test(random_scripts_lose_nothing),
        cmocka_unit_test(failed_allocations_leave_nothing),
        cmocka_unit_test(a_reader_that_refuses_ends_the_parser),
        cmocka_unit_test(calls_are_seen_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
