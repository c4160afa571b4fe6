/* Turns in the model's own tokens: kept, found when a prompt repeats them, and not found when it changes them. */
#include "serve/own_turns.h"
#include "support/check.h"

#include <json-c/json.h>

static const uint32_t thought[] = {1, 2}, rest[] = {3, 4, 5};

static void keep(struct own_turns *turns, const char *id)
{
    char calls[256];
    snprintf(calls, sizeof calls,
             "[{\"id\":\"%s\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1,\\\"b\\\":[2]}\"}}]", id);
    const struct own_turn turn = {.reasoning = "why",
                                  .reasoning_bytes = 3,
                                  .content = " text\n",
                                  .content_bytes = 6,
                                  .calls = json_tokener_parse(calls),
                                  .thought = thought,
                                  .n_thought = 2,
                                  .rest = rest,
                                  .n_rest = 3};
    own_turns_keep(turns, &turn);
    json_object_put(turn.calls);
}

static size_t n_found(struct own_turns *turns, struct alloc *alloc, const char *messages)
{
    struct arena arena;
    struct err err = {0};
    const struct chat_own_turn *list;
    size_t n;
    struct json_object *parsed = json_tokener_parse(messages);
    assert_non_null(parsed);
    arena_init(&arena, alloc, 1 << 20);
    assert_true(own_turns_find(turns, &arena, parsed, &list, &n, &err));
    if (n == 1) {
        assert_int_equal(list->message, 1);
        assert_memory_equal(list->thought, thought, sizeof thought);
        assert_memory_equal(list->rest, rest, sizeof rest);
        assert_memory_equal(list->reasoning, "why", 3);
    }
    arena_fini(&arena);
    json_object_put(parsed);
    return n;
}

#define TURN(role, content, id, name, arguments)                                         \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"" role "\",\"content\":" content \
    ",\"tool_calls\":[{\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}]}]"
#define SAME "\"{\\\"b\\\": [2], \\\"a\\\": 1}\""

static void a_turn_is_found_while_it_says_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *messages;
        size_t n;
    } cases[] = {
        {TURN("assistant", "\"text\"", "c1", "f", SAME), 1},
        {TURN("assistant", "\"\\n text \"", "c1", "f", "{\"a\":1,\"b\":[2]}"), 1},
        {TURN("assistant", "[{\"type\":\"text\",\"text\":\"te\"},{\"type\":\"text\",\"text\":\"xt\"}]", "c1", "f",
              SAME),
         1},
        {TURN("assistant", "\"other\"", "c1", "f", SAME), 0},
        {TURN("assistant", "null", "c1", "f", SAME), 0},
        {TURN("assistant", "\"text\"", "c2", "f", SAME), 0},
        {TURN("assistant", "\"text\"", "c1", "g", SAME), 0},
        {TURN("assistant", "\"text\"", "c1", "f", "\"{\\\"a\\\":2,\\\"b\\\":[2]}\""), 0},
        {TURN("assistant", "\"text\"", "c1", "f", "\"nonsense\""), 0},
        {TURN("user", "\"text\"", "c1", "f", SAME), 0},
        {"[{\"role\":\"assistant\",\"content\":\"text\"}]", 0},
        {"[]", 0},
        {"[1,null]", 0},
        {"{}", 0},
    };
    struct alloc alloc = {0};
    struct err err = {0};
    struct own_turns *turns;
    assert_true(own_turns_new(&turns, &alloc, 1 << 16, &err));
    keep(turns, "c1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = n_found(turns, &alloc, cases[i].messages);
        if (n != cases[i].n) fail_msg("%s: %zu found", cases[i].messages, n);
    }
    assert_int_equal(own_turns_stats(turns).n_reused, 3);
    own_turns_free(turns);
    assert_int_equal(alloc.live, 0);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct own_turns *turns;
    assert_true(own_turns_new(&turns, &alloc, 1 << 16, &err));
    keep(turns, "c1");
    uint64_t each = own_turns_stats(turns).bytes;
    own_turns_free(turns);
    assert_true(own_turns_new(&turns, &alloc, 3 * each, &err));
    keep(turns, "c1");
    keep(turns, "c2");
    keep(turns, "c3");
    assert_int_equal(n_found(turns, &alloc, TURN("assistant", "\"text\"", "c1", "f", SAME)), 1);
    keep(turns, "c4");
    assert_int_equal(own_turns_stats(turns).n, 3);
    assert_true(own_turns_stats(turns).bytes <= 3 * each);
    assert_int_equal(n_found(turns, &alloc, TURN("assistant", "\"text\"", "c1", "f", SAME)), 1);
    assert_int_equal(n_found(turns, &alloc, TURN("assistant", "\"text\"", "c2", "f", SAME)), 0);
    own_turns_free(turns);
    assert_true(own_turns_new(&turns, &alloc, each - 1, &err)); /* too small for any */
    keep(turns, "c1");
    assert_int_equal(own_turns_stats(turns).n, 0);
    own_turns_free(turns);
    assert_int_equal(alloc.live, 0);
}

/* Without memory a turn is not kept, or the request is told. */
static void nothing_leaks_without_memory(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k}, plain = {0};
        struct err err = {0};
        struct own_turns *turns = NULL;
        bool ok = own_turns_new(&turns, &alloc, 1 << 16, &err);
        if (ok) keep(turns, "c1");
        if (ok) n_found(turns, &plain, TURN("assistant", "\"text\"", "c1", "f", SAME));
        own_turns_free(turns);
        assert_int_equal(alloc.live, 0);
        if (alloc.calls < k) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_is_found_while_it_says_the_same),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(nothing_leaks_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
