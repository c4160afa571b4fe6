/* Stop strings against brute force: every byte, every string, no automaton. */
#include "run/stop_text.h"

#include "base/philox.h"
#include "support/check.h"
#include <stdlib.h>

struct numbers {
    uint64_t key, next;
};

static uint32_t below(struct numbers *numbers, uint32_t n)
{
    return (uint32_t)(philox_unit(numbers->key, numbers->next++) * n);
}

enum { TEXT_MAX = 4096 };

/* ---- the definition, spelled out ---- */

struct cut {
    size_t at; /* bytes of text that remain */
    int match; /* -1: none */
};

static struct cut brute_cut(const char *text, size_t n, const struct stop_string *stops, size_t n_stops)
{
    for (size_t end = 1; end <= n; end++) {
        struct cut cut = {0, -1};
        size_t longest = 0;
        for (size_t s = 0; s < n_stops; s++) {
            size_t bytes = stops[s].n_bytes;
            if (bytes > end || bytes <= longest || memcmp(text + end - bytes, stops[s].bytes, bytes) != 0) continue;
            longest = bytes;
            cut = (struct cut){end - bytes, (int)s};
        }
        if (cut.match >= 0) return cut;
    }
    return (struct cut){n, -1};
}

/* The longest suffix that is a proper prefix of some stop string. */
static size_t brute_held(const char *text, size_t n, const struct stop_string *stops, size_t n_stops)
{
    size_t held = 0;
    for (size_t s = 0; s < n_stops; s++)
        for (size_t k = held + 1; k < stops[s].n_bytes && k <= n; k++)
            if (memcmp(text + n - k, stops[s].bytes, k) == 0) held = k;
    return held;
}

/* What is sent of a text: decided bytes, bad ones replaced. With is_end a tail counts as bad too. */
static size_t brute_visible(char *out, const char *text, size_t n, bool is_end)
{
    size_t at = 0, n_out = 0;
    while (at < n) {
        uint32_t code;
        size_t used;
        enum utf8_kind kind = utf8_next(text + at, n - at, &code, &used);
        if (kind == UTF8_CUT && !is_end) break;
        n_out += utf8_put(out + n_out, code);
        at += used;
    }
    return n_out;
}

/* ---- one text, cut somehow ---- */

struct feed {
    struct alloc alloc;
    struct stop_set set;
    struct stop_text text;
    struct buf out;
    struct err err;
};

static void feed_init(struct feed *feed, const struct stop_string *stops, size_t n_stops)
{
    memset(feed, 0, sizeof *feed);
    buf_init(&feed->out, &feed->alloc, 4 * TEXT_MAX);
    assert_true(stop_set_init(&feed->set, &feed->alloc, stops, n_stops, &feed->err));
    stop_text_init(&feed->text, &feed->set);
}

static void feed_fini(struct feed *feed)
{
    stop_set_fini(&feed->set);
    stop_set_fini(&feed->set);
    buf_fini(&feed->out);
    assert_int_equal(feed->alloc.live, 0);
}

static void assert_out(const struct feed *feed, const char *want, size_t n)
{
    assert_int_equal(feed->out.bytes, n);
    if (n) assert_memory_equal(feed->out.data, want, n);
}

/* Feeds text[n] in pieces that end where bit i of `cuts` is set behind byte i, and looks at the stream after each. */
static void check_cutting(const char *text, size_t n, const uint8_t *ends, const struct stop_string *stops,
                          size_t n_stops)
{
    static char want[4 * TEXT_MAX];
    struct feed feed;
    feed_init(&feed, stops, n_stops);
    struct cut cut = brute_cut(text, n, stops, n_stops);
    size_t piece_at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ends[i] && i + 1 < n) continue;
        size_t before = feed.out.bytes, offset;
        assert_true(stop_text_add(&feed.text, &feed.out, text + piece_at, i + 1 - piece_at, &feed.err));
        piece_at = i + 1;
        /* Every piece is valid by itself. */
        if (feed.out.bytes > before) assert_true(utf8_check(feed.out.data + before, feed.out.bytes - before, &offset));
        if (feed.text.match != STOP_NO_STRING) {
            assert_int_equal(brute_cut(text, i + 1, stops, n_stops).match, feed.text.match);
            break;
        }
        /* Not a byte too many is held, and not one too few. */
        assert_int_equal(brute_cut(text, i + 1, stops, n_stops).match, -1);
        size_t held = brute_held(text, i + 1, stops, n_stops);
        assert_int_equal(stop_text_held(&feed.text), held);
        assert_out(&feed, want, brute_visible(want, text, i + 1 - held, false));
    }
    assert_int_equal(feed.text.match, cut.match < 0 ? STOP_NO_STRING : cut.match);
    assert_true(stop_text_end(&feed.text, &feed.out, &feed.err));
    assert_out(&feed, want, brute_visible(want, text, cut.at, true));
    feed_fini(&feed);
}

/* All ways to cut a short text, one after the other; else some random ones, with single bytes and the whole first. */
static void check_all_cuttings(struct numbers *numbers, const char *text, size_t n, const struct stop_string *stops,
                               size_t n_stops)
{
    static uint8_t ends[TEXT_MAX];
    if (n <= 9) {
        for (uint32_t cuts = 0; cuts < UINT32_C(1) << n; cuts++) {
            for (size_t i = 0; i < n; i++) ends[i] = cuts >> i & 1;
            check_cutting(text, n, ends, stops, n_stops);
        }
        return;
    }
    for (uint32_t round = 0; round < 6; round++) {
        for (size_t i = 0; i < n; i++) ends[i] = round == 0 || (round > 1 && below(numbers, round) == 0);
        check_cutting(text, n, ends, stops, n_stops);
    }
}

static struct stop_string stop_of(const char *text)
{
    return (struct stop_string){text, strlen(text)};
}

/* ---- tests ---- */

static void known_texts_are_cut_where_they_should(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stops[4], *left;
        int match;
    } cases[] = {
        {"abcd", {"abcd", "bc"}, "a", 1},   /* the earliest byte that completes one */
        {"abc", {"bc", "abc", "c"}, "", 1}, /* the longest of those that complete there */
        {"xyz", {"xyz"}, "", 0},            /* the whole text */
        {"xyzabc", {"xy"}, "", 0},          /* at the very start */
        {"abxyz", {"xyz"}, "ab", 0},
        {"aaab", {"aab"}, "a", 0},
        {"ababac", {"abac"}, "ab", 0},
        {"no stop here", {"stops", "herf"}, "no stop here", -1},
        {"tail that begins a st", {"stop"}, "tail that begins a st", -1},
        {"x\n\ny", {"\n\n"}, "x", 0},
        {"日本語", {"本"}, "日", 0},
        {"a😀b", {"😀"}, "a", 0},
        {"a😁b", {"😀"}, "a😁b", -1},          /* the first three bytes are equal */
        {"é", {"\xa9"}, "\xef\xbf\xbd", 0}, /* a stop inside of a character leaves half of it */
        {"\xe2\x82stop", {"stop"}, "\xef\xbf\xbd", 0},
        {"\xff\xfe ok", {"k"}, "\xef\xbf\xbd\xef\xbf\xbd o", 0},
        {"", {"x"}, "", -1},
        {"anything", {0}, "anything", -1},
        {"dup", {"up", "up"}, "d", 0},
    };
    struct numbers numbers = {.key = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stop_string stops[4];
        size_t n_stops = 0, n = strlen(cases[i].text);
        while (n_stops < 4 && cases[i].stops[n_stops]) stops[n_stops] = stop_of(cases[i].stops[n_stops]), n_stops++;
        struct feed feed;
        feed_init(&feed, stops, n_stops);
        assert_true(stop_text_add(&feed.text, &feed.out, cases[i].text, n, &feed.err));
        assert_true(stop_text_end(&feed.text, &feed.out, &feed.err));
        if (feed.out.bytes != strlen(cases[i].left)) print_error("\"%s\"\n", cases[i].text);
        assert_out(&feed, cases[i].left, strlen(cases[i].left));
        assert_int_equal(feed.text.match, cases[i].match < 0 ? STOP_NO_STRING : cases[i].match);
        feed_fini(&feed);
        check_all_cuttings(&numbers, cases[i].text, n, stops, n_stops);
    }
}

/* Texts and stops of few different pieces, so that they meet often; characters of one to four bytes, and bad bytes. */
static size_t random_text(struct numbers *numbers, char *out, uint32_t n_pieces)
{
    static const char *const pieces[] = {"a", "b", "ab", "\n", "é", "è", "日", "本", "😀", "😁", "\xf0\x9f", "\x80"};
    uint32_t kinds = below(numbers, 3) == 0 ? 12 : 2 + below(numbers, 8);
    size_t n = 0;
    for (uint32_t i = 0; i < n_pieces; i++) {
        const char *piece = pieces[below(numbers, kinds)];
        memcpy(out + n, piece, strlen(piece));
        n += strlen(piece);
    }
    return n;
}

static void every_cutting_of_random_texts_gives_the_same(void **state)
{
    (void)state;
    struct numbers numbers = {.key = 424242};
    uint32_t n_matched = 0, n_at_start = 0, n_whole = 0, n_unmatched = 0;
    for (uint32_t round = 0; round < 2500; round++) {
        char text[600], stop_bytes[16][160];
        struct stop_string stops[16];
        size_t n = random_text(&numbers, text, below(&numbers, round % 4 ? 6 : 100)), n_stops = below(&numbers, 17);
        for (size_t s = 0; s < n_stops; s++) {
            size_t bytes = random_text(&numbers, stop_bytes[s], 1 + below(&numbers, round % 3 ? 4 : 20));
            stops[s] = (struct stop_string){stop_bytes[s], bytes};
        }
        if (n && n_stops && round % 10 == 0) stops[0] = (struct stop_string){text, n}; /* the whole text */
        struct cut cut = brute_cut(text, n, stops, n_stops);
        n_matched += cut.match >= 0;
        n_unmatched += cut.match < 0;
        n_at_start += cut.match >= 0 && cut.at == 0;
        n_whole += cut.match >= 0 && stops[cut.match].n_bytes == n;
        check_all_cuttings(&numbers, text, n, stops, n_stops);
    }
    print_message("key %llu: %u texts with a match (%u at the very start, %u the whole text), %u without\n",
                  (unsigned long long)numbers.key, n_matched, n_at_start, n_whole, n_unmatched);
    assert_true(n_matched > 500 && n_unmatched > 500 && n_at_start > 100 && n_whole > 30);
}

static void long_strings_fail_back_correctly(void **state)
{
    (void)state;
    /* Sixteen strings of 1,024 bytes that differ in their last byte alone, and texts that almost reach them. */
    static char bytes[16][SAMPLING_STOP_BYTES_MAX], text[TEXT_MAX];
    struct stop_string stops[16];
    for (int s = 0; s < 16; s++) {
        memset(bytes[s], 'a', SAMPLING_STOP_BYTES_MAX);
        bytes[s][SAMPLING_STOP_BYTES_MAX - 1] = (char)('b' + s);
        stops[s] = (struct stop_string){bytes[s], SAMPLING_STOP_BYTES_MAX};
    }
    memset(text, 'a', sizeof text);
    text[1000] = 'z';
    text[1000 + 1023] = 'd'; /* one too early */
    text[3500] = 'c';
    struct feed feed;
    feed_init(&feed, stops, 16);
    assert_int_equal(feed.set.n_nodes, 1 + 1023 + 16);
    for (size_t i = 0; i < sizeof text; i++) assert_true(stop_text_add(&feed.text, &feed.out, text + i, 1, &feed.err));
    assert_int_equal(feed.text.match, 1);
    assert_out(&feed, text, 3500 - 1023);
    feed_fini(&feed);
}

static void ids_end_an_answer_for_their_own_reason(void **state)
{
    (void)state;
    static const uint32_t eos[] = {154820, 154827}, stop_ids[] = {11, 154827};
    struct sampling sampling = {.stop_ids = stop_ids, .n_stop_ids = 2};
    assert_int_equal(stop_on_id(154820, eos, 2, &sampling), STOP_EOS);
    assert_int_equal(stop_on_id(154827, eos, 2, &sampling), STOP_EOS);
    assert_int_equal(stop_on_id(11, eos, 2, &sampling), STOP_ID);
    assert_int_equal(stop_on_id(12, eos, 2, &sampling), STOP_NONE);
    assert_int_equal(stop_on_id(0, NULL, 0, &(struct sampling){0}), STOP_NONE);
    static const char *const names[] = {"none", "eos", "stop", "stop", "stop", "tool", "length", "cancelled", "error"};
    for (int reason = STOP_NONE; reason <= STOP_ERROR; reason++)
        assert_string_equal(stop_reason_name((enum stop_reason)reason), names[reason]);
}

static void failures_are_told_and_leak_nothing(void **state)
{
    (void)state;
    const struct stop_string stop = stop_of("stop");
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct stop_set set;
        struct err err = {0};
        bool ok = stop_set_init(&set, &alloc, &stop, 1, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        stop_set_fini(&set);
        assert_int_equal(alloc.live, 0);
        if (!ok) continue;
        assert_int_equal(k, 3);
        break;
    }

    /* An output that is full is an error, not a shorter text. */
    struct feed feed;
    feed_init(&feed, &stop, 1);
    feed.out.bytes_max = 4;
    assert_true(stop_text_add(&feed.text, &feed.out, "abc sto", 4, &feed.err));
    assert_false(stop_text_add(&feed.text, &feed.out, "longer than that", 16, &feed.err));
    assert_int_not_equal(feed.err.kind, ERR_NONE);
    feed_fini(&feed);
}

static void a_copy_is_a_snapshot(void **state)
{
    (void)state;
    const struct stop_string stop = stop_of("<end>");
    struct feed feed;
    feed_init(&feed, &stop, 1);
    assert_true(stop_text_add(&feed.text, &feed.out, "one <en", 7, &feed.err));
    struct stop_text snapshot = feed.text;
    assert_true(stop_text_add(&feed.text, &feed.out, "d>", 2, &feed.err));
    assert_int_equal(feed.text.match, 0);
    assert_out(&feed, "one ", 4);
    assert_true(stop_text_add(&snapshot, &feed.out, "emy", 3, &feed.err));
    assert_int_equal(snapshot.match, STOP_NO_STRING);
    assert_out(&feed, "one <enemy", 10);
    feed_fini(&feed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_are_cut_where_they_should),
        cmocka_unit_test(every_cutting_of_random_texts_gives_the_same),
        cmocka_unit_test(long_strings_fail_back_correctly),
        cmocka_unit_test(ids_end_an_answer_for_their_own_reason),
        cmocka_unit_test(failures_are_told_and_leak_nothing),
        cmocka_unit_test(a_copy_is_a_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
