/* The client alone: which addresses it speaks to, what an answer says, and memory. */
#include "fetch/http.h"
#include "support/check.h"
#include "support/hub_server.h"

#include <stdlib.h>

static const unsigned char text[] = "0123456789";
static struct hub_server server;
static struct alloc alloc;

static int start(void **state)
{
    (void)state;
    const struct hub_server_file files[] = {{.path = "f", .data = text, .bytes = 10}};
    hub_server_start(&server, files, 1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    hub_server_stop(&server);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    hub_server_reset(&server, 1);
    alloc = (struct alloc){0};
    return 0;
}

static struct http_options plain = {.agent = "weir/test", .allows_plain = true, .connect_s_max = 5, .stall_s_max = 5};

struct got {
    char bytes[64];
    size_t n;
    struct http_answer answer;
    unsigned n_begins;
    bool refuses;
};

static bool begins(void *context, const struct http_answer *answer)
{
    struct got *got = context;
    got->answer = *answer;
    got->n_begins++;
    return !got->refuses;
}

static bool takes(void *context, const void *data, size_t bytes)
{
    struct got *got = context;
    assert_true(got->n + bytes < sizeof got->bytes);
    memcpy(got->bytes + got->n, data, bytes);
    got->n += bytes;
    return true;
}

static struct http_done ask(const struct http_options *options, const char *url, uint64_t first, uint64_t bytes,
                            struct got *got)
{
    struct http *http;
    struct http_done done;
    struct err err = {0};
    if (!http_new(&http, &alloc, options, &err)) fail_msg("%s", err.text);
    const struct http_request request = {
        .url = url, .first = first, .bytes = bytes, .context = got, .begins = begins, .takes = takes};
    if (!http_start(http, &request, &err)) fail_msg("%s", err.text);
    assert_int_equal(http_active(http), 1);
    while (!http_take_done(http, &done))
        if (!http_wait(http, 100, &err)) fail_msg("%s", err.text);
    assert_int_equal(http_active(http), 0);
    assert_false(http_take_done(http, &done));
    assert_ptr_equal(done.context, got);
    http_free(http);
    assert_int_equal(alloc.live, 0);
    return done;
}

static const char *address(const char *path)
{
    static char url[256];
    snprintf(url, sizeof url, "%s%s", server.endpoint, path);
    return url;
}

static void a_part_of_a_file(void **state)
{
    (void)state;
    struct got got = {0};
    struct http_done done = ask(&plain, address("/m/resolve/c/f"), 3, 4, &got);
    assert_true(done.ok && !done.is_stopped && !done.can_retry);
    assert_int_equal(done.answer.status, 206);
    assert_int_equal(got.n, 4);
    assert_memory_equal(got.bytes, "3456", 4);
    assert_true(got.answer.has_range);
    assert_int_equal(got.answer.range_first, 3);
    assert_int_equal(got.answer.range_last, 6);
    assert_int_equal(got.answer.range_total, 10);
    assert_int_equal(got.n_begins, 1);
}

static void behind_a_redirect(void **state)
{
    (void)state;
    struct got got = {0};
    server.script->redirects = true;
    struct http_done done = ask(&plain, address("/m/resolve/c/f"), 0, 0, &got);
    assert_true(done.ok);
    assert_int_equal(done.answer.status, 200); /* of the last answer */
    assert_int_equal(got.n_begins, 1);
    assert_int_equal(got.n, 10);
    assert_false(done.answer.has_range);
    assert_true(done.answer.range_total == HTTP_UNKNOWN);
}

static void a_refusal_has_no_body_of_ours(void **state)
{
    (void)state;
    struct got got = {.refuses = true};
    struct http_done done = ask(&plain, address("/m/resolve/c/nothing"), 0, 0, &got);
    assert_true(!done.ok && done.is_stopped && !done.can_retry);
    assert_int_equal(done.answer.status, 404);
    assert_int_equal(got.n, 0);
    server.script->file_status = 503;
    server.script->n_file_status = 1;
    server.script->retry_after_s = 17;
    done = ask(&plain, address("/m/resolve/c/f"), 0, 0, &got);
    assert_int_equal(done.answer.retry_after_s, 17);
}

/* Whoever asked for a secure connection gets no other one, and other protocols are not spoken at all. */
static void only_what_is_allowed(void **state)
{
    (void)state;
    struct got got = {0};
    struct http_options secure = plain;
    secure.allows_plain = false;
    struct http_done done = ask(&secure, address("/m/resolve/c/f"), 0, 0, &got);
    print_message("%s\n", done.text);
    assert_true(!done.ok && !done.can_retry && !done.is_stopped);
    assert_non_null(strstr(done.text, "http"));
    assert_int_equal(server.script->n_files, 0);
    done = ask(&plain, "file:///etc/passwd", 0, 0, &got);
    assert_true(!done.ok && !done.can_retry);
    assert_int_equal(got.n, 0);
}

static void through_a_proxy(void **state)
{
    (void)state;
    struct got got = {0};
    struct http_options options = plain;
    options.proxy = "http://127.0.0.1:1"; /* nobody is there, so that it is used is seen by its failure */
    struct http_done done = ask(&options, address("/m/resolve/c/f"), 0, 0, &got);
    assert_true(!done.ok && done.can_retry);
    options.no_proxy = "localhost,127.0.0.1";
    done = ask(&options, address("/m/resolve/c/f"), 0, 0, &got);
    assert_true(done.ok);
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* what the process's environment says is not looked at */
    got = (struct got){0};
    done = ask(&plain, address("/m/resolve/c/f"), 0, 0, &got);
    unsetenv("http_proxy");
    assert_true(done.ok);
}

static void cancelled(void **state)
{
    (void)state;
    struct http *http;
    struct http_done done;
    struct err err = {0};
    struct got first = {0}, second = {0};
    server.script->stalls = true;
    assert_true(http_new(&http, &alloc, &plain, &err));
    const struct http_request one = {.url = address("/m/resolve/c/f"), .context = &first, .takes = takes};
    assert_true(http_start(http, &one, &err));
    const struct http_request two = {.url = address("/m/resolve/c/f"), .context = &second, .takes = takes};
    assert_true(http_start(http, &two, &err));
    while (first.n == 0 || second.n == 0) assert_true(http_wait(http, 100, &err));
    http_cancel(http, &first);
    assert_int_equal(http_active(http), 1);
    assert_false(http_take_done(http, &done));
    http_free(http); /* with one under way */
    http_free(NULL);
    assert_int_equal(alloc.live, 0);
    alloc.fail_at = alloc.calls + 1;
    assert_false(http_new(&http, &alloc, &plain, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
}

#define TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_part_of_a_file),     TEST(behind_a_redirect), TEST(a_refusal_has_no_body_of_ours),
        TEST(only_what_is_allowed), TEST(through_a_proxy),   TEST(cancelled),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
