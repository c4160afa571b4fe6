#include "base/arena.h"
#include "support/check.h"

static void pieces_are_zeroed_aligned_and_given_back(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct arena arena;
    arena_init(&arena, &alloc, 1 << 20);
    for (size_t n = 0; n < 300; n++) {
        struct err err = {0};
        unsigned char *piece = arena_get(&arena, n, &err);
        assert_non_null(piece);
        assert_int_equal((uintptr_t)piece % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(piece[i], 0);
        memset(piece, 0xff, n);
    }
    arena_fini(&arena);
    arena_fini(&arena);
    assert_int_equal(alloc.live, 0);
}

static void the_ceiling_holds(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct arena arena;
    struct err err = {0};
    arena_init(&arena, &alloc, 1000);
    assert_non_null(arena_get(&arena, 999, &err));
    assert_null(arena_get(&arena, 2, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
    assert_null(arena_get_array(&arena, UINT64_MAX, 8, &err));
    assert_non_null(arena_get(&arena, 1, &err));
    arena_fini(&arena);
    assert_int_equal(alloc.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_given_back),
        cmocka_unit_test(the_ceiling_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
