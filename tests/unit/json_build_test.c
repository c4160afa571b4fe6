/* Pieces of documents: what comes out, and who holds what afterwards, also when a piece could not be made. */
#include "fmt/json_build.h"
#include "support/check.h"

/* References are counted by giving them back: the last one is told. */
static void check_holders(struct json_object *value, int n)
{
    for (int i = 1; i < n; i++) assert_int_equal(json_object_put(value), 0);
    assert_int_equal(json_object_put(value), 1);
}

static void pieces_become_a_document(void **state)
{
    (void)state;
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();
    assert_true(json_build_words(object, "words", "a\"b"));
    assert_true(json_build_text(object, "text", "a\0b", 3));
    assert_true(json_build_text(object, "nothing", NULL, 0));
    assert_true(json_build_share(object, "null", NULL));
    assert_true(json_build_member(object, "list", list));
    assert_true(json_build_element(list, json_object_new_int(7)));
    assert_true(json_build_share_element(list, NULL));
    assert_string_equal(
        json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN),
        "{\"words\":\"a\\\"b\",\"text\":\"a\\u0000b\",\"nothing\":\"\",\"null\":null,\"list\":[7,null]}");
    json_object_put(object);
}

static void a_value_changes_hands_or_is_shared(void **state)
{
    (void)state;
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();
    struct json_object *given = json_object_new_int(1), *shared = json_object_new_int(2);
    assert_true(json_build_member(object, "given", json_object_get(given)));
    assert_true(json_build_share(object, "shared", shared));
    assert_true(json_build_share_element(list, shared));
    json_object_put(object);
    check_holders(given, 1);
    json_object_put(list);
    check_holders(shared, 1);
}

static void what_could_not_be_made_is_no_null(void **state)
{
    (void)state;
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();
    assert_false(json_build_member(object, "key", NULL));
    assert_false(json_build_element(list, NULL));
    assert_int_equal(json_object_object_length(object), 0);
    assert_int_equal(json_object_array_length(list), 0);
    json_object_put(object);
    json_object_put(list);
}

/* json-c refuses to make an object its own member. */
static void what_is_not_taken_is_given_back(void **state)
{
    (void)state;
    struct json_object *object = json_object_new_object();
    assert_false(json_build_share(object, "self", object));
    assert_false(json_build_member(object, "self", json_object_get(object)));
    check_holders(object, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_become_a_document),
        cmocka_unit_test(a_value_changes_hands_or_is_shared),
        cmocka_unit_test(what_could_not_be_made_is_no_null),
        cmocka_unit_test(what_is_not_taken_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
