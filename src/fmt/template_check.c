#include "fmt/template_check.h"

#include "fmt/json_doc.h"
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

enum { TEMPLATE_BYTES_MAX = 1 << 20, CONFIG_BYTES_MAX = 16 << 20 };

/* SHA-256 of templates without white space at both ends. The expectations of our tests were rendered with them. */
static const unsigned char known[][SHA256_DIGEST_LENGTH] = {
    {0xf4, 0xb4, 0xb8, 0x9f, 0x9d, 0x86, 0x4e, 0x91, 0x7d, 0xa8, 0x92, 0x6a, 0x44, 0x28, 0x94, 0x60,
     0xf4, 0x01, 0x04, 0xcd, 0x62, 0x59, 0x37, 0xf8, 0x06, 0xb5, 0x71, 0x32, 0x3f, 0xf3, 0xef, 0x26},
};

/* What GLM-5.2's template must say somewhere, and what its absence means. */
static const struct {
    const char *mark, *means;
} marks[] = {
    {"[gMASK]<sop>", "prompts do not begin with [gMASK]<sop>: not a GLM template"},
    {"Reasoning Effort: ", "no reasoning effort line: that of GLM-4.7, GLM-5 or GLM-5.1"},
    {"reasoning_effort", "the reasoning effort cannot be chosen"},
    {"enable_thinking", "thinking cannot be turned off"},
    {"clear_thinking", "earlier reasoning cannot be kept"},
    {"<|observation|>", "no turns for tool results"},
    {"<tool_response>", "tool results are not marked"},
    {"For each function call, output the function name and arguments within the following XML format:",
     "another wording of the tools block"},
    {"<arg_key>", "tool calls in another form"},
    {"reasoning_content", "reasoning of earlier turns is left out"},
};

/* What it must not say. */
static const struct {
    const char *mark, *means;
} foreign[] = {
    {"/nothink", "turns thinking off in the user's text: that of GLM-4.5 or GLM-4.6"},
    {"Reasoning Effort: Low", "has a low effort: that of GLM-5.3"},
    {"'low'", "has a low effort: that of GLM-5.3"},
};

static bool contains(const char *text, size_t bytes, const char *mark)
{
    return memmem(text, bytes, mark, strlen(mark)) != NULL;
}

static void trim(const char **text, size_t *bytes)
{
    while (*bytes && strchr(" \t\r\n", **text) && **text) {
        ++*text;
        --*bytes;
    }
    while (*bytes && strchr(" \t\r\n", (*text)[*bytes - 1]) && (*text)[*bytes - 1]) --*bytes;
}

static bool is_known(const char *text, size_t bytes)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)text, bytes, digest);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (memcmp(digest, known[i], sizeof digest) == 0) return true;
    return false;
}

void template_check_text(struct template_report *report, const char *name, const char *text, size_t bytes)
{
    const char *means = NULL;
    trim(&text, &bytes);
    if (is_known(text, bytes)) {
        report->kind = TEMPLATE_KNOWN;
        snprintf(report->text, sizeof report->text, "%s is the GLM-5.2 template that weir renders", name);
        return;
    }
    for (size_t i = 0; !means && i < sizeof foreign / sizeof *foreign; i++)
        if (contains(text, bytes, foreign[i].mark)) means = foreign[i].means;
    for (size_t i = 0; !means && i < sizeof marks / sizeof *marks; i++)
        if (!contains(text, bytes, marks[i].mark)) means = marks[i].means;
    report->kind = means ? TEMPLATE_DIFFERS : TEMPLATE_ALIKE;
    if (means)
        snprintf(report->text, sizeof report->text, "%s differs (%s); weir renders GLM-5.2's, so prompts will differ",
                 name, means);
    else
        snprintf(report->text, sizeof report->text,
                 "%s is not byte for byte a known one but has every mark of GLM-5.2's; weir renders its own", name);
}

/* The text of the template in a tokenizer_config.json: a string, or a list of named ones of which "default" counts. */
static struct json_object *configured(struct json_object *config)
{
    struct json_object *given = json_object_object_get(config, "chat_template");
    if (!json_object_is_type(given, json_type_array)) return given;
    for (size_t i = 0; i < json_object_array_length(given); i++) {
        struct json_object *item = json_object_array_get_idx(given, i), *name = json_object_object_get(item, "name");
        if (json_object_is_type(name, json_type_string) && strcmp(json_object_get_string(name), "default") == 0)
            return json_object_object_get(item, "template");
    }
    return NULL;
}

static bool check_config(struct template_report *report, struct alloc *alloc, const char *path, const char *text,
                         size_t bytes, struct err *err)
{
    struct json_object *config;
    if (!json_doc_parse(&config, alloc, &json_rules_file, path, text, bytes, err)) return false;
    struct json_object *template = configured(config);
    if (json_object_is_type(template, json_type_string))
        template_check_text(report, "the chat_template of tokenizer_config.json", json_object_get_string(template),
                            (size_t)json_object_get_string_len(template));
    json_object_put(config);
    return true;
}

bool template_check(struct template_report *report, struct alloc *alloc, struct file_system fs, const char *dir,
                    struct err *err)
{
    char path[4096], *text;
    size_t bytes;
    *report = (struct template_report){.kind = TEMPLATE_ABSENT};
    snprintf(report->text, sizeof report->text, "the folder has no chat template; weir renders GLM-5.2's");
    if (snprintf(path, sizeof path, "%s/chat_template.jinja", dir) >= (int)sizeof path)
        return err_set(err, ERR_USER, "%.100s...: the path is too long", dir);
    if (file_present(fs, path)) {
        text = file_read_all(alloc, fs, path, TEMPLATE_BYTES_MAX, &bytes, err);
        if (!text) return false;
        template_check_text(report, "chat_template.jinja", text, bytes);
        alloc_put(alloc, text);
        return true;
    }
    if (snprintf(path, sizeof path, "%s/tokenizer_config.json", dir) >= (int)sizeof path)
        return err_set(err, ERR_USER, "%.100s...: the path is too long", dir);
    if (!file_present(fs, path)) return true;
    text = file_read_all(alloc, fs, path, CONFIG_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool ok = check_config(report, alloc, path, text, bytes, err);
    alloc_put(alloc, text);
    return ok;
}
