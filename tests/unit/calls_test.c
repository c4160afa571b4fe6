/* Tool calls: marks by id, names, arguments by schema, in every form that a request can ask for. */
#include "gram/matcher.h"

#include "fmt/output_parser.h"
#include "support/check.h"
#include "support/constrained.h"
#include "support/schema_check.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\"},\"unit\":{\"type\":\"string\",\"enum\":[\"c\",\"f\"]},\"days\":{\"type\":"
    "\"integer\","
    "\"minimum\":1,\"maximum\":7}},\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
    "\"type\":\"array\",\"items\":{\"type\":\"integer\"}},\"ab\":{\"type\":[\"string\",\"null\"]},\"any\":{},\"b\":{"
    "\"anyOf\":[{\"type\":\"boolean\"},{\"const\":\"maybe\"}]},\"code\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}$"
    "\"},"
    "\"short\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":3}},\"required\":[\"a\",\"b\"]}}}]";

struct scene {
    struct constrained c;
    struct json_object *list;
    struct chat_tools tools;
};

static void scene_init(struct scene *s)
{
    struct err err = {0};
    constrained_init(&s->c);
    s->list = json_of(tools_text);
    if (!chat_tools_init(&s->tools, &s->c.alloc, s->list, &err)) fail_msg("%s", err.text);
}

static void scene_fini(struct scene *s)
{
    chat_tools_fini(&s->tools);
    json_object_put(s->list);
    constrained_fini(&s->c);
}

static struct constraint *compile(struct scene *s, struct constraint_request request)
{
    struct err err = {0};
    struct constraint *constraint;
    if (!request.tools) request.tools = &s->tools;
    if (!constraint_new(&constraint, &s->c.alloc, &request, &s->c.ids, &err)) fail_msg("%s", err.text);
    return constraint;
}

/* In a script, these stand for control tokens; all else is text, byte by byte. */
static uint32_t id_of(char c)
{
    static const char marks[] = "\1\2\3\4\5\6\7\10";
    static const uint32_t ids[] = {ID_CALL,  ID_CALL_END,  ID_KEY, ID_KEY_END,
                                   ID_VALUE, ID_VALUE_END, ID_EOS, ID_THINK_END};
    const char *found = c ? strchr(marks, c) : NULL;
    return found ? ids[found - marks] : (unsigned char)c;
}
#define CALL "\1"
#define END "\2"
#define ARG(key, value) "\3" key "\4\5" value "\6"
#define EOS "\7"
#define THINK_END "\10"

/* How far a script is taken. */
static size_t run(struct matcher *m, const char *script)
{
    for (size_t i = 0; script[i]; i++) {
        struct err err = {0};
        bool taken;
        if (!matcher_advance(m, id_of(script[i]), &taken, &err)) fail_msg("%s", err.text);
        if (!taken) return i;
    }
    return strlen(script);
}

static void check(struct scene *s, struct constraint *constraint, const char *script, bool want)
{
    struct matcher *m = constrained_start(&s->c, constraint_hold(constraint));
    size_t n = strlen(script);
    bool takes = run(m, script) == n && (matcher_accepts(m) || (n && script[n - 1] == '\7'));
    if (takes != want) fail_msg("should %sbe taken: %s", want ? "" : "not ", script);
    matcher_free(m);
}

static void required_calls_follow_their_schemas(void **state)
{
    (void)state;
    static const char *const good[] = {
        CALL "get_weather" ARG("city", "Paris") END,
        CALL "get_weather" ARG("days", "7") ARG("city", "a <b> \n{}") ARG("unit", "f") END EOS,
        CALL "get_weather" ARG("city", "") END CALL "get_time" END EOS,
        CALL "get_time" END,
        CALL "get" ARG("a", "[1, 2]") ARG("b", "true") END,
        CALL "get" ARG("b", "maybe") ARG("ab", "null") ARG("a", "[]") ARG("any", "what ever") END,
        CALL "get" ARG("code", "AB") ARG("short", "é日x") ARG("a", "[]") ARG("b", "false") END,
    };
    static const char *const bad[] = {
        "",
        "hello",
        EOS,
        "\n" CALL "get_time" END,
        CALL "get_tim" END,
        CALL "get_times" END,
        CALL " get_time" END,
        CALL "get_time\n" END,
        CALL "get_time" ARG("a", "1") END,
        CALL "get_weather" END, /* a required argument is missing */
        CALL "get_weather" ARG("unit", "c") END,
        CALL "get_weather" ARG("city", "x") ARG("city", "y") END,
        CALL "get_weather" ARG("city", "x") ARG("unit", "k") END,
        CALL "get_weather" ARG("city", "x") ARG("days", "8") END,
        CALL "get_weather" ARG("city", "x") ARG("days", "\"3\"") END,
        CALL "get_weather" ARG("town", "x") END,
        CALL "get_weather" ARG("city", "\xff") END,
        CALL "get" ARG("a", "[1.5]") ARG("b", "true") END,
        CALL "get" ARG("a", "[]") ARG("b", "\"maybe\"") END,
        CALL "get" ARG("a", "[]") END,
        CALL "get" ARG("a", "[]") ARG("b", "true") ARG("code", "ABC") END,
        CALL "get" ARG("a", "[]") ARG("b", "true") ARG("short", "") END,
        CALL "get" ARG("a", "[]") ARG("b", "true") ARG("short", "abcd") END,
        CALL "get_time" END "\n",
        CALL "get_time" END "text",
        CALL "get_time",
        CALL "get_time" EOS,
    };
    struct scene s;
    scene_init(&s);
    struct constraint *constraint = compile(&s, (struct constraint_request){.calls = CALLS_REQUIRED});
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) check(&s, constraint, good[i], true);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) check(&s, constraint, bad[i], false);
    constraint_drop(constraint);
    scene_fini(&s);
}

static void one_call_is_all(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    struct constraint *constraint = compile(&s, (struct constraint_request){.calls = CALLS_REQUIRED, .one_call = true});
    struct matcher *m = constrained_start(&s.c, constraint);
    assert_int_equal(run(m, CALL "get_time"), 9);
    assert_false(matcher_accepts(m));
    assert_int_equal(run(m, END), 1);
    assert_true(matcher_is_complete(m)); /* no end-of-answer id is needed */
    matcher_free(m);
    scene_fini(&s);
}

static void a_named_tool_is_the_only_one(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    struct chat_tools named = s.tools;
    named.tools = &s.tools.tools[1];
    named.n_tools = 1;
    struct constraint *constraint = compile(&s, (struct constraint_request){.calls = CALLS_REQUIRED, .tools = &named});
    check(&s, constraint, CALL "get_time" END, true);
    check(&s, constraint, CALL "get_weather" ARG("city", "x") END, false);
    /* The whole name is forced, once the call is. */
    struct matcher *m = constrained_start(&s.c, constraint);
    struct err err = {0};
    uint32_t id;
    bool forced;
    assert_true(matcher_forced(m, &id, &forced, &err) && forced && id == ID_CALL);
    matcher_free(m);
    scene_fini(&s);
}

static void a_call_or_a_value(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    struct constraint *constraint =
        compile(&s, (struct constraint_request){.kind = CONSTRAINT_JSON_OBJECT, .calls = CALLS_AUTO});
    check(&s, constraint, "{\"a\":1}", true);
    check(&s, constraint, "{\"a\":1}" EOS, true);
    check(&s, constraint, CALL "get_time" END, true);
    check(&s, constraint, "{}" CALL "get_time" END, false);
    check(&s, constraint, "text", false);
    check(&s, constraint, "", false);
    constraint_drop(constraint);
    scene_fini(&s);
}

static void strict_tools_leave_text_free(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s);
    bool strict[3] = {true, false, false};
    struct constraint *constraint =
        compile(&s, (struct constraint_request){.calls = CALLS_AUTO, .strict_tools = strict});
    check(&s, constraint, "", true);
    check(&s, constraint, "any text, <tool_call> spelled out too" EOS, true);
    check(&s, constraint, "first " CALL "get_weather" ARG("city", "x") END, true);
    check(&s, constraint, CALL "get_weather" ARG("city", "x") ARG("days", "9") END, false);
    check(&s, constraint, CALL "get_weather" END, false);
    check(&s, constraint, CALL "get" ARG("whatever", "9") ARG("whatever", "") END CALL "get_time" END, true);
    check(&s, constraint, CALL "get_other" END, false);
    constraint_drop(constraint);
    scene_fini(&s);
}

static void calls_begin_behind_the_thoughts(void **state)
{
    (void)state;
    struct scene s;
    struct err err = {0};
    scene_init(&s);
    struct constraint *constraint = compile(&s, (struct constraint_request){.calls = CALLS_REQUIRED});
    const struct matcher_rules rules = {constraint, s.c.cache, &s.c.ids, true};
    struct matcher *m = matcher_new(&s.c.alloc, &rules, &err);
    assert_non_null(m);
    assert_int_equal(run(m, "hm" CALL), 2); /* not inside the thoughts */
    assert_int_equal(run(m, THINK_END "\n"), 1);
    assert_int_equal(run(m, CALL "get_time" END EOS), 11);
    matcher_free(m);
    constraint_drop(constraint);
    scene_fini(&s);
}

/* ---- walks, read back by the parser of answers ---- */

struct seen {
    struct scene *s;
    uint32_t n_calls;
    bool wrong;
};

static bool on_event(void *context, const struct output_event *event, struct err *err)
{
    struct seen *seen = context;
    char why[256];
    (void)err;
    if (event->kind != OUTPUT_CALL) {
        seen->wrong = true;
        return true;
    }
    struct json_object *arguments = json_of(event->text);
    seen->n_calls++;
    if (event->tool->parameters && !schema_holds(event->tool->parameters, event->tool->parameters, arguments, why)) {
        print_error("%s: %.*s violates %s\n", event->tool->name, (int)event->bytes, event->text, why);
        seen->wrong = true;
    }
    json_object_put(arguments);
    return true;
}

static bool allowed(const uint64_t *mask, uint32_t id)
{
    return mask[id / 64] >> (id % 64) & 1;
}

/* Marks early and often: a walk that draws evenly would hardly ever leave a text. */
static bool draw(struct numbers *k, const uint64_t *mask, bool in_haste, uint32_t *id)
{
    static const uint32_t closing[] = {ID_EOS, ID_VALUE_END, ID_CALL_END};
    for (int i = 0; i < 3; i++)
        if (allowed(mask, closing[i]) && (in_haste || numbers_below(k, 4) == 0)) {
            *id = closing[i];
            return true;
        }
    for (int tries = 0; tries < 20000; tries++) {
        *id = numbers_below(k, ID_END);
        if (*id < 256 && in_haste && *id != ']' && *id != '"' && numbers_below(k, 4)) continue;
        if (allowed(mask, *id)) return true;
    }
    return false;
}

static void random_calls_are_read_back_as_valid_calls(void **state)
{
    (void)state;
    struct scene s;
    struct numbers k = {.key = 66};
    struct seen seen = {&s, 0, false};
    struct chat_ids ids;
    uint32_t n_walks = 0, n_checked = 0;
    scene_init(&s);
    for (int i = 0; i < CHAT_CONTROL_COUNT; i++) ids.id[i] = UINT32_MAX;
    ids.id[CHAT_THINK_END] = ID_THINK_END;
    ids.id[CHAT_CALL] = ID_CALL;
    ids.id[CHAT_CALL_END] = ID_CALL_END;
    ids.id[CHAT_KEY] = ID_KEY;
    ids.id[CHAT_KEY_END] = ID_KEY_END;
    ids.id[CHAT_VALUE] = ID_VALUE;
    ids.id[CHAT_VALUE_END] = ID_VALUE_END;
    struct constraint *constraint = compile(&s, (struct constraint_request){.calls = CALLS_REQUIRED});
    for (int round = 0; round < 60; round++) {
        struct err err = {0};
        uint64_t mask[VOCABULARY_MAX / 64 + 1], brute[VOCABULARY_MAX / 64 + 1];
        const struct output_rules rules = {.ids = &ids, .tools = &s.tools, .emit = on_event, .context = &seen};
        struct output_parser *parser = output_parser_new(&s.c.alloc, &rules, &err);
        struct matcher *m = constrained_start(&s.c, constraint_hold(constraint));
        struct matcher *scratch = constrained_start(&s.c, constraint_hold(constraint));
        bool ended = false;
        for (uint32_t n = 0; n < 600 && !ended; n++) {
            uint32_t id;
            bool taken;
            if (!matcher_allowed(m, mask, &err)) fail_msg("%s", err.text);
            if (n % 7 == 0) {
                brute_mask(&s.c, m, scratch, brute);
                assert_memory_equal(mask, brute, token_trie_words(s.c.trie) * sizeof *mask);
                n_checked++;
            }
            if (!draw(&k, mask, n > 60, &id)) fail_msg("nothing is allowed");
            assert_true(matcher_advance(m, id, &taken, &err) && taken);
            ended = control_ids_ends(&s.c.ids, id);
            if (!ended) assert_true(output_parser_feed(parser, id, s.c.tokens[id], &err));
        }
        assert_true(output_parser_end(parser, ended ? OUTPUT_END_EOS : OUTPUT_END_CUT, &err));
        if (!ended) fail_msg("a walk did not end");
        assert_false(seen.wrong);
        n_walks++;
        output_parser_free(parser);
        matcher_free(m);
        matcher_free(scratch);
    }
    print_message("key %llu: %u walks, %u calls, %u masks equal to brute force\n", (unsigned long long)k.key, n_walks,
                  seen.n_calls, n_checked);
    assert_true(seen.n_calls >= n_walks);
    constraint_drop(constraint);
    scene_fini(&s);
}

static void what_is_wrong_names_the_tool(void **state)
{
    (void)state;
    static const struct {
        const char *parameters, *text;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"x\":{\"not\":{}}}}", "unsupported_schema: tool f#/properties/x/not: "},
        {"{\"type\":\"string\"}", "unsupported_schema: tool f#: the arguments of a tool must be an object"},
        {"{\"anyOf\":[{\"type\":\"object\"}]}", "unsupported_schema: tool f#/anyOf: "},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct constraint *constraint;
        struct json_object *parameters = json_of(cases[i].parameters);
        struct chat_tool tool = {.name = "f", .name_bytes = 1, .parameters = parameters};
        const struct chat_tools tools = {.tools = &tool, .n_tools = 1};
        const struct constraint_request request = {.calls = CALLS_REQUIRED, .tools = &tools};
        assert_false(constraint_new(&constraint, &c.alloc, &request, &c.ids, &err));
        assert_int_equal(err.kind, ERR_USER);
        if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("\"%s\", expected \"%s\"", err.text, cases[i].text);
        json_object_put(parameters);
    }
    constrained_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(required_calls_follow_their_schemas),
        cmocka_unit_test(one_call_is_all),
        cmocka_unit_test(a_named_tool_is_the_only_one),
        cmocka_unit_test(a_call_or_a_value),
        cmocka_unit_test(strict_tools_leave_text_free),
        cmocka_unit_test(calls_begin_behind_the_thoughts),
        cmocka_unit_test(random_calls_are_read_back_as_valid_calls),
        cmocka_unit_test(what_is_wrong_names_the_tool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
