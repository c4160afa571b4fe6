#include "fmt/template_check.h"
#include "fmt/json_text.h"
#include "support/check.h"
#include "support/lines.h"
#include "support/temp_folder.h"

static struct alloc heap;

static char *known_template(size_t *bytes)
{
    return fixture_read(&heap, "tests/fixtures/chat/chat_template.jinja", bytes);
}

static void expect(enum template_kind kind, const char *says, const char *text, size_t bytes)
{
    struct template_report report;
    template_check_text(&report, "t", text, bytes);
    if (report.kind != kind || !strstr(report.text, says)) print_error("%d: %s\n", report.kind, report.text);
    assert_int_equal(report.kind, kind);
    assert_non_null(strstr(report.text, says));
}

static void the_template_of_the_tests_is_known(void **state)
{
    (void)state;
    size_t bytes;
    char *text = known_template(&bytes);
    expect(TEMPLATE_KNOWN, "is the GLM-5.2 template that weir renders", text, bytes);
    text[bytes++] = '\n'; /* in place of the NUL */
    expect(TEMPLATE_KNOWN, "is the GLM-5.2 template", text, bytes);
    char *comment = strstr(text, "GLM-5.2 message");
    comment[0] = 'g';
    expect(TEMPLATE_ALIKE, "not byte for byte", text, bytes);
    alloc_put(&heap, text);
}

static void what_is_missing_tells_the_family(void **state)
{
    (void)state;
    static const struct {
        const char *gone, *says;
    } changes[] = {
        {"Reasoning Effort: ", "no reasoning effort line: that of GLM-4.7"},
        {"[gMASK]<sop>", "not a GLM template"},
        {"clear_thinking", "earlier reasoning cannot be kept"},
        {"<arg_key>", "tool calls in another form"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        size_t bytes;
        char *text = known_template(&bytes);
        for (char *at; (at = strstr(text, changes[i].gone));) at[1] = '~';
        expect(TEMPLATE_DIFFERS, changes[i].says, text, bytes);
        alloc_put(&heap, text);
    }
    static const char older[] = "[gMASK]<sop>{{ text + '/nothink' }}", other[] = "{{ messages }}";
    expect(TEMPLATE_DIFFERS, "GLM-4.5", older, sizeof older - 1);
    expect(TEMPLATE_DIFFERS, "not a GLM template", other, sizeof other - 1);
    expect(TEMPLATE_DIFFERS, "not a GLM template", "", 0);
}

static struct template_report check(const struct temp_folder *folder, bool want_ok)
{
    struct template_report report;
    struct err err = {0};
    bool ok = template_check(&report, &heap, file_system_real(), folder->path, &err);
    if (ok != want_ok) print_error("%s\n", err.text);
    assert_int_equal(ok, want_ok);
    if (!ok) assert_int_equal(err.kind, ERR_DATA);
    return report;
}

static void put_config(const struct temp_folder *folder, const char *before, const char *template, const char *after)
{
    struct buf out;
    struct err err = {0};
    buf_init(&out, &heap, 1 << 20);
    assert_true(buf_add_text(&out, before, &err));
    assert_true(json_text_add_string(&out, template, strlen(template), &err));
    assert_true(buf_add_text(&out, after, &err));
    put_file(temp_path(folder, "tokenizer_config.json"), out.data, out.bytes);
    buf_fini(&out);
}

static void folders_are_looked_through(void **state)
{
    (void)state;
    struct temp_folder folder;
    size_t bytes;
    char *text = known_template(&bytes);
    temp_folder_make(&folder);
    assert_int_equal(check(&folder, true).kind, TEMPLATE_ABSENT);
    put_file(temp_path(&folder, "tokenizer_config.json"), "{}", 2);
    assert_int_equal(check(&folder, true).kind, TEMPLATE_ABSENT);
    put_config(&folder, "{\"chat_template\":", text, "}");
    assert_int_equal(check(&folder, true).kind, TEMPLATE_KNOWN);
    put_config(&folder,
               "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"x\"},{\"name\":\"default\",\"template\":", text,
               "}]}");
    assert_int_equal(check(&folder, true).kind, TEMPLATE_KNOWN);
    put_file(temp_path(&folder, "tokenizer_config.json"), "{", 1);
    check(&folder, false);
    put_file(temp_path(&folder, "chat_template.jinja"), "hello", 5);
    assert_int_equal(check(&folder, true).kind, TEMPLATE_DIFFERS);
    put_file(temp_path(&folder, "chat_template.jinja"), text, bytes);
    assert_int_equal(check(&folder, true).kind, TEMPLATE_KNOWN);
    alloc_put(&heap, text);
    temp_folder_remove(&folder);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_template_of_the_tests_is_known),
        cmocka_unit_test(what_is_missing_tells_the_family),
        cmocka_unit_test(folders_are_looked_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
