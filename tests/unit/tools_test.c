/* Tools of a request in the forms of three protocols: what is shown, dropped, refused, chosen. */
#include "serve/tools.h"
#include "support/check.h"

#include <json-c/json.h>

struct outcome {
    struct problem problem;
    struct tools tools;
    struct arena arena;
    struct alloc alloc;
};

static bool read_tools(struct outcome *o, enum tools_wire wire, bool strict, const char *json)
{
    memset(o, 0, sizeof *o);
    arena_init(&o->arena, &o->alloc, 1 << 20);
    struct json_object *body = json_tokener_parse(json);
    assert_non_null(body);
    const struct tools_reader reader = {.alloc = &o->alloc, .arena = &o->arena, .wire = wire, .strict = strict};
    bool ok = tools_read(&o->tools, &reader, body, &o->problem);
    assert_int_equal(ok, o->problem.kind == PROBLEM_NONE);
    json_object_put(body);
    return ok;
}

static void forget(struct outcome *o)
{
    tools_fini(&o->tools);
    arena_fini(&o->arena);
    assert_int_equal(o->alloc.live, 0);
}

#define F(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define R(name) "{\"type\":\"function\",\"name\":\"" name "\"}"
#define M(name) "{\"name\":\"" name "\",\"input_schema\":{\"type\":\"object\"}}"

static void what_is_refused_is_named(void **state)
{
    (void)state;
    static const struct {
        enum tools_wire wire;
        const char *json, *param;
        enum problem_kind kind;
        bool strict;
    } cases[] = {
        {TOOLS_CHAT, "{\"tools\":{}}", "tools", PROBLEM_INVALID_TYPE, false},
        {TOOLS_CHAT, "{\"tools\":[1]}", "tools[0]", PROBLEM_INVALID_TYPE, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a b") "]}", "tools[0]", PROBLEM_INVALID_VALUE, false},
        {TOOLS_CHAT, "{\"tools\":[" F("") "]}", "tools[0]", PROBLEM_INVALID_VALUE, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "," F("a") "]}", "tools", PROBLEM_INVALID_VALUE, false},
        {TOOLS_CHAT, "{\"tool_choice\":\"required\"}", "tool_choice", PROBLEM_INVALID_VALUE, false},
        {TOOLS_CHAT, "{\"tools\":[{\"type\":\"web_search\"}],\"tool_choice\":\"required\"}", "tool_choice",
         PROBLEM_INVALID_VALUE, false},
        {TOOLS_CHAT, "{\"tools\":[{\"type\":\"web_search\"}]}", "tools[0]", PROBLEM_UNSUPPORTED, true},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"b\"}}}",
         "tool_choice", PROBLEM_INVALID_VALUE, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "],\"tool_choice\":{\"type\":\"web_search\"}}", "tool_choice",
         PROBLEM_UNSUPPORTED, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "],\"parallel_tool_calls\":1}", "parallel_tool_calls", PROBLEM_INVALID_TYPE,
         false},
        {TOOLS_RESPONSES, "{\"tools\":[{\"type\":\"local_shell\"}]}", "tools[0]", PROBLEM_UNSUPPORTED, false},
        {TOOLS_RESPONSES, "{\"tools\":[{\"type\":\"custom\",\"name\":\"x\",\"strict\":true}]}", "tools[0]",
         PROBLEM_UNSUPPORTED, false},
        {TOOLS_RESPONSES, "{\"tools\":[{\"type\":\"namespace\",\"tools\":[" R("a") "]}]}", "tools[0]",
         PROBLEM_INVALID_VALUE, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome o;
        bool ok = read_tools(&o, cases[i].wire, cases[i].strict, cases[i].json);
        if (ok || o.problem.kind != cases[i].kind || strcmp(o.problem.param, cases[i].param) != 0)
            fail_msg("%s: kind %d, param '%s': %s", cases[i].json, o.problem.kind, o.problem.param, o.problem.text);
        forget(&o);
    }
}

static void choices_are_understood_in_every_form(void **state)
{
    (void)state;
    static const struct {
        enum tools_wire wire;
        const char *json;
        enum tools_choice choice;
        const char *named;
        size_t n_shown;
        bool one_call;
    } cases[] = {
        {TOOLS_CHAT, "{}", TOOLS_AUTO, NULL, 0, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "," F("b") "]}", TOOLS_AUTO, NULL, 2, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "],\"tool_choice\":\"none\"}", TOOLS_NONE, NULL, 1, false},
        {TOOLS_CHAT, "{\"tools\":[" F("a") "],\"tool_choice\":\"required\",\"parallel_tool_calls\":false}",
         TOOLS_REQUIRED, NULL, 1, true},
        {TOOLS_CHAT,
         "{\"tools\":[" F("a") "," F("b") "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"b\"}}}",
         TOOLS_NAMED, "b", 2, false},
        {TOOLS_CHAT,
         "{\"tools\":[" F("a") "," F("b") "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":"
                                          "\"required\",\"tools\":[" F("b") "]}}}",
         TOOLS_REQUIRED, NULL, 1, false},
        {TOOLS_MESSAGES,
         "{\"tools\":[" M("a") "],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}",
         TOOLS_REQUIRED, NULL, 1, true},
        {TOOLS_MESSAGES, "{\"tools\":[" M("a") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"a\"}}", TOOLS_NAMED,
         "a", 1, false},
        {TOOLS_RESPONSES, "{\"tools\":[" R("a") "],\"tool_choice\":{\"type\":\"function\",\"name\":\"a\"}}",
         TOOLS_NAMED, "a", 1, false},
        {TOOLS_RESPONSES,
         "{\"tools\":[{\"type\":\"namespace\",\"name\":\"maps\",\"tools\":[" R(
             "find") "]}],\"tool_choice\":{\"type\":"
                     "\"function\",\"name\":\"find\",\"namespace\":\"maps\"}}",
         TOOLS_NAMED, "maps__find", 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome o;
        if (!read_tools(&o, cases[i].wire, false, cases[i].json)) fail_msg("%s: %s", cases[i].json, o.problem.text);
        assert_int_equal(o.tools.choice, cases[i].choice);
        assert_int_equal(o.tools.chat.n_tools, cases[i].n_shown);
        assert_int_equal(o.tools.one_call, cases[i].one_call);
        if (cases[i].named) assert_string_equal(o.tools.named->name, cases[i].named);
        forget(&o);
    }
}

static void hosted_tools_are_dropped_and_told(void **state)
{
    (void)state;
    struct outcome o;
    assert_true(read_tools(&o, TOOLS_MESSAGES, false,
                           "{\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}," M(
                               "mine") ","
                                       "{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}"));
    assert_int_equal(o.tools.chat.n_tools, 1);
    assert_string_equal(o.tools.dropped.data, "web_search_20250305, bash_20250124");
    forget(&o);
}

static void origins_tell_how_the_client_calls_it(void **state)
{
    (void)state;
    struct outcome o;
    assert_true(
        read_tools(&o, TOOLS_RESPONSES, false,
                   "{\"tools\":[{\"type\":\"namespace\",\"name\":\"maps\",\"tools\":[" R(
                       "find") "]},{\"type\":\"custom\",\"name\":\"patch\",\"format\":{\"type\":\"grammar\",\"syntax\":"
                               "\"lark\",\"definition\":\"start: x\"}}]}"));
    const struct tool_origin *find = tools_origin(&o.tools, &o.tools.chat.tools[0]);
    const struct tool_origin *patch = tools_origin(&o.tools, &o.tools.chat.tools[1]);
    assert_string_equal(find->name, "find");
    assert_string_equal(find->namespace, "maps");
    assert_true(patch->is_custom);
    assert_non_null(strstr(json_object_to_json_string(o.tools.chat.tools[1].function), "start: x"));
    forget(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(choices_are_understood_in_every_form),
        cmocka_unit_test(hosted_tools_are_dropped_and_told),
        cmocka_unit_test(origins_tell_how_the_client_calls_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
