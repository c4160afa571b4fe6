/* Who may ask: names of the server, origins of pages, keys. */
#include "serve/access.h"
#include "support/check.h"

static bool source_is_allowed(const struct access_rules *rules, struct access_request request, const char **origin)
{
    struct problem problem = {0};
    bool ok = access_check_source(rules, &request, origin, &problem);
    assert_int_equal(problem.kind, ok ? PROBLEM_NONE : PROBLEM_FORBIDDEN);
    return ok;
}

static void only_our_names_are_ours(void **state)
{
    (void)state;
    static const char *const names[] = {"box.lan"};
    const struct access_rules rules = {.bound_host = "192.168.1.5", .hosts = names, .n_hosts = 1};
    static const struct {
        const char *host;
        bool is_ours;
    } cases[] = {
        {"localhost", true},
        {"LOCALHOST:8080", true},
        {"127.0.0.1:1", true},
        {"[::1]:8080", true},
        {"192.168.1.5", true},
        {"box.lan:80", true},
        {"evil.example", false},
        {"box.lan.evil.example", false},
        {"localhost.evil", false},
        {"127.0.0.1.evil", false},
        {"", false},
        {"localhost:", false},
        {"localhost:80x", false},
        {"[::1", false},
        {"10.0.0.1", false},
        {"@localhost", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *origin;
        bool ok = source_is_allowed(&rules, (struct access_request){.host = cases[i].host}, &origin);
        if (ok != cases[i].is_ours) fail_msg("'%s' is %sallowed", cases[i].host, ok ? "" : "not ");
    }
    /* Behind a wildcard any address is one of ours, and still no name. */
    const struct access_rules any = {.bound_host = "0.0.0.0"};
    const char *origin;
    assert_true(source_is_allowed(&any, (struct access_request){.host = "10.0.0.1:8080"}, &origin));
    assert_false(source_is_allowed(&any, (struct access_request){.host = "evil.example"}, &origin));
}

static void pages_need_an_allowed_origin(void **state)
{
    (void)state;
    static const char *const origins[] = {"https://ui.example"};
    const struct access_rules rules = {.bound_host = "127.0.0.1", .origins = origins, .n_origins = 1};
    static const struct {
        const char *origin, *fetch_site;
        bool ok;
    } cases[] = {
        {NULL, NULL, true},
        {NULL, "same-origin", true},
        {NULL, "cross-site", false},
        {"http://localhost:8080", NULL, true}, /* the same as the Host */
        {"http://localhost:9090", NULL, false},
        {"https://ui.example", "cross-site", true},
        {"https://ui.example.evil", NULL, false},
        {"null", NULL, false},
        {"file://", NULL, false},
        {"vscode-webview://x", NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct access_request request = {
            .host = "localhost:8080", .origin = cases[i].origin, .fetch_site = cases[i].fetch_site};
        const char *origin;
        bool ok = source_is_allowed(&rules, request, &origin);
        if (ok != cases[i].ok) fail_msg("case %zu is %sallowed", i, ok ? "" : "not ");
        if (ok && cases[i].origin) assert_string_equal(origin, cases[i].origin);
    }
}

static bool key_is_good(const struct access_rules *rules, const char *authorization, const char *x_api_key)
{
    struct problem problem = {0};
    const struct access_request request = {.authorization = authorization, .x_api_key = x_api_key};
    bool ok = access_check_key(rules, &request, &problem);
    if (!ok) assert_int_equal(problem.kind, PROBLEM_KEY);
    if (!ok) assert_null(strstr(problem.text, "wrong-key")); /* keys are never echoed */
    return ok;
}

static void keys_are_compared_whole(void **state)
{
    (void)state;
    static struct access_rules rules, none;
    struct err err = {0};
    assert_true(access_add_keys(&rules, "keys", "# ours\n\n  first \r\nsecond\n", &err));
    assert_int_equal(rules.n_keys, 2);
    assert_true(key_is_good(&rules, "Bearer first", NULL));
    assert_true(key_is_good(&rules, "bearer second", NULL));
    assert_true(key_is_good(&rules, NULL, "first"));
    assert_false(key_is_good(&rules, NULL, NULL));
    assert_false(key_is_good(&rules, "Bearer firs", NULL));
    assert_false(key_is_good(&rules, "Bearer first ", NULL));
    assert_false(key_is_good(&rules, "Basic first", NULL));
    assert_false(key_is_good(&rules, NULL, "wrong-key"));
    assert_false(key_is_good(&rules, NULL, ""));
    assert_true(key_is_good(&none, "Bearer anything", NULL)); /* no key is configured */
    assert_false(access_add_keys(&none, "keys", "# only words\n", &err));
    assert_int_equal(err.kind, ERR_USER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_our_names_are_ours),
        cmocka_unit_test(pages_need_an_allowed_origin),
        cmocka_unit_test(keys_are_compared_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
