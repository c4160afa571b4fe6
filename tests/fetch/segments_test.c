/* Segments: bytes are counted once, a text says exactly what is here, and the pace is that of the last seconds. */
#include "base/pace.h"
#include "fetch/segments.h"
#include "support/check.h"

#include <inttypes.h>

static struct alloc alloc;
static struct err err;

static void make(struct segments *s, uint64_t bytes, uint64_t segment_bytes)
{
    if (!segments_init(s, &alloc, bytes, segment_bytes, &err)) fail_msg("%s", err.text);
}

static void each_byte_is_asked_for_once(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 99, 100, 101, 1000, 1001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct segments s;
        uint32_t segment;
        uint64_t asked = 0, next = 0;
        make(&s, sizes[i], 100);
        while (segments_take(&s, &segment)) {
            assert_int_equal(segments_offset(&s, segment), next);
            next += segments_missing(&s, segment);
            asked += segments_missing(&s, segment);
        }
        print_message("%" PRIu64 " bytes: %u segments\n", sizes[i], s.n);
        assert_int_equal(asked, sizes[i]);
        segments_fini(&s);
        segments_fini(&s);
    }
    assert_int_equal(alloc.live, 0);
}

static void holes(void **state)
{
    (void)state;
    struct segments s;
    uint32_t first = 0, second = 0, third = 0;
    make(&s, 250, 100);
    assert_true(segments_take(&s, &first) && segments_take(&s, &second) && segments_take(&s, &third));
    assert_false(segments_take(&s, &first));
    segments_advance(&s, second, 100);
    segments_advance(&s, third, 10);
    assert_int_equal(segments_prefix(&s), 0);
    assert_int_equal(segments_extent(&s), 210);
    segments_advance(&s, 0, 60);
    assert_int_equal(segments_prefix(&s), 60);
    segments_advance(&s, 0, 40);
    assert_int_equal(segments_prefix(&s), 210);
    segments_untake(&s, third);
    assert_true(segments_take(&s, &first));
    assert_int_equal(first, third);
    assert_int_equal(segments_offset(&s, first), 210);
    assert_int_equal(segments_missing(&s, first), 40);
    segments_restart(&s);
    assert_int_equal(s.bytes_done, 0);
    assert_true(segments_take(&s, &first));
    assert_int_equal(segments_missing(&s, first), 250);
    segments_credit(&s, 70);
    segments_credit(&s, 30); /* less than is known takes nothing away */
    assert_int_equal(s.bytes_done, 70);
    segments_fini(&s);
}

static void a_text_and_back(void **state)
{
    (void)state;
    uint64_t seed = 5;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < 200; round++) {
        struct segments s, back;
        struct buf text;
        buf_init(&text, &alloc, 1 << 20);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        make(&s, (seed >> 40) % 5000, 1 + (seed >> 20) % 700);
        for (uint32_t i = 0; i < s.n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            segments_advance(&s, i, (seed >> 33) % (segments_missing(&s, i) + 1));
        }
        assert_true(segments_print(&s, &text, &err));
        assert_true(segments_parse(&back, &alloc, s.bytes, text.data, &err));
        assert_int_equal(back.bytes_done, s.bytes_done);
        assert_int_equal(back.n, s.n);
        if (s.n) assert_memory_equal(back.done, s.done, s.n * sizeof *s.done);
        segments_fini(&back);
        for (size_t cut = 0; cut < text.bytes; cut++) { /* a text that was cut anywhere is none */
            char kept = text.data[cut];
            text.data[cut] = 0;
            assert_false(segments_parse(&back, &alloc, s.bytes, text.data, &err));
            text.data[cut] = kept;
        }
        assert_false(segments_parse(&back, &alloc, s.bytes + 1, text.data, &err));
        segments_fini(&s);
        buf_fini(&text);
    }
    assert_int_equal(alloc.live, 0);
}

static void memory_runs_out(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 3; k++) {
        struct alloc poor = {.fail_at = k};
        struct segments s;
        struct err why = {0};
        bool ok = segments_parse(&s, &poor, 250, "weir-partial 1 250 100\n1 5\nend\n", &why);
        assert_int_equal(ok, k == 3);
        assert_int_equal(why.kind, ok ? ERR_NONE : ERR_NOMEM);
        if (ok) segments_fini(&s);
        assert_int_equal(poor.live, 0);
    }
}

static void a_huge_file_has_larger_segments(void **state)
{
    (void)state;
    struct segments s;
    make(&s, UINT64_C(1) << 50, 4096);
    assert_true(s.n <= 1 << 20);
    assert_int_equal(segments_missing(&s, 0), s.segment_bytes);
    segments_fini(&s);
}

static void the_pace(void **state)
{
    (void)state;
    struct pace pace = {0};
    assert_true(pace_per_second(&pace) < 0);
    assert_true(pace_seconds_left(&pace, 5) < 0);
    for (int i = 0; i < 400; i++) pace_add(&pace, i * INT64_C(100000000), (uint64_t)i * 1000); /* 10,000 a second */
    assert_true(pace_per_second(&pace) > 9999 && pace_per_second(&pace) < 10001);
    assert_true(pace_seconds_left(&pace, 50000) > 4.99 && pace_seconds_left(&pace, 50000) < 5.01);
    for (int i = 400; i < 600; i++) pace_add(&pace, i * INT64_C(100000000), 399000); /* nothing more comes */
    assert_true(pace_per_second(&pace) == 0);
    assert_true(pace_seconds_left(&pace, 50000) < 0);
    pace_add(&pace, INT64_C(70000000000), 5); /* it started over */
    assert_true(pace_per_second(&pace) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_is_asked_for_once),
        cmocka_unit_test(holes),
        cmocka_unit_test(a_text_and_back),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(a_huge_file_has_larger_segments),
        cmocka_unit_test(the_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
