/* A chat request as JSON text: {"messages": ..., "tools": ...}. Whatever it is, it is rendered or refused; runs cover
 * the prompt without gaps; and JSON that was read and written reads back to the same text. */
#include "base/utf8.h"
#include "fmt/chat_template.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool ok)
{
    if (!ok) abort();
}

static void check_text(struct alloc *alloc, const struct json_object *doc, enum json_style style)
{
    struct buf first, second;
    struct err err = {0};
    struct json_object *again;
    buf_init(&first, alloc, 64 << 20);
    buf_init(&second, alloc, 64 << 20);
    must(json_text_add(&first, doc, style, &err));
    must(json_doc_parse(&again, alloc, &json_rules_request, "again", first.data, first.bytes, &err));
    must(json_text_add(&second, again, style, &err));
    must(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
    json_object_put(again);
    buf_fini(&first);
    buf_fini(&second);
}

static void check_prompt(const struct chat_prompt *prompt)
{
    size_t at = 0, bad;
    for (size_t i = 0; i < prompt->n_runs; i++) {
        const struct chat_run *run = &prompt->runs[i];
        must(run->start == at && run->bytes > 0);
        must(run->control != CHAT_TEXT || prompt->runs[i - 1].control != CHAT_TEXT);
        at += run->bytes;
    }
    must(at == prompt->text.bytes);
    must(utf8_check(prompt->text.data, prompt->text.bytes, &bad));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct json_object *doc;
    struct chat_prompt prompt;
    if (bytes > 1 << 20) return 0;
    if (!json_doc_parse(&doc, &alloc, &json_rules_request, "input", (const char *)data, bytes, &err)) {
        must(err.kind == ERR_USER && alloc.live == 0);
        return 0;
    }
    check_text(&alloc, doc, JSON_PYTHON);
    check_text(&alloc, doc, JSON_COMPACT);
    struct chat_request request = {.messages = json_object_object_get(doc, "messages"),
                                   .tools = json_object_object_get(doc, "tools"),
                                   .options = {.thinking = bytes & 1, .keep_reasoning = bytes & 2}};
    if (chat_prompt_render(&prompt, &alloc, &request, &err))
        check_prompt(&prompt);
    else
        must(err.kind == ERR_USER);
    chat_prompt_fini(&prompt);
    json_object_put(doc);
    must(alloc.live == 0);
    return 0;
}
