/* Bytes that stand for generated tokens: 0x80 + n is control token n, everything else is a token of that one byte, and
 * 0xC0 and above are bytes of code points, whole or not. The first byte holds the rules. Events must be valid UTF-8,
 * arguments valid JSON, and what was emitted must not be more than what was fed. */
#include "base/utf8.h"
#include "fmt/json_doc.h"
#include "fmt/output_parser.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool ok)
{
    if (!ok) abort();
}

static const char tools_text[] =
    "[{\"name\":\"f\"},{\"name\":\"g\",\"parameters\":{\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\"}"
    ","
    "\"b\":{\"type\":\"integer\"},\"c\":{\"enum\":[\"x\",1]},\"d\":{\"$ref\":\"#/properties/d\"}}}}]";

struct seen {
    struct alloc *alloc;
    size_t text_bytes, n_calls;
};

static bool see(void *context, const struct output_event *event, struct err *err)
{
    struct seen *seen = context;
    size_t bad;
    must(event->bytes > 0 && utf8_check(event->text, event->bytes, &bad));
    if (event->kind != OUTPUT_CALL) {
        seen->text_bytes += event->bytes;
        return true;
    }
    struct json_object *arguments;
    must(json_doc_parse(&arguments, seen->alloc, &json_rules_request, "arguments", event->text, event->bytes, err));
    must(json_object_is_type(arguments, json_type_object) && event->tool != NULL);
    json_object_put(arguments);
    seen->n_calls++;
    return true;
}

static void feed(struct output_parser *parser, uint8_t byte, struct err *err)
{
    char text = (char)byte;
    uint32_t control = byte >= 0x80 && byte < 0x80 + CHAT_CONTROL_COUNT ? byte - 0x80u : CHAT_TEXT;
    struct token token = {.bytes = &text, .n_bytes = 1, .kind = TOKEN_BASE};
    if (control != CHAT_TEXT) {
        token.bytes = chat_control_text((enum chat_control)control);
        token.n_bytes = (uint32_t)strlen(token.bytes);
        token.kind = control <= CHAT_OBSERVATION ? TOKEN_SPECIAL : TOKEN_ADDED;
    }
    must(output_parser_feed(parser, control == CHAT_TEXT ? 5 : 1000 + control, token, err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct chat_ids ids;
    struct chat_tools tools;
    struct json_object *list;
    if (bytes == 0 || bytes > 1 << 16) return 0;
    for (uint32_t i = 0; i < CHAT_CONTROL_COUNT; i++) ids.id[i] = 1000 + i;
    must(json_doc_parse(&list, &alloc, &json_rules_request, "tools", tools_text, sizeof tools_text - 1, &err));
    must(chat_tools_init(&tools, &alloc, list, &err));
    struct seen seen = {.alloc = &alloc};
    struct output_rules rules = {.ids = &ids,
                                 .tools = data[0] & 1 ? NULL : &tools,
                                 .starts_in_think = data[0] & 2,
                                 .one_call = data[0] & 4,
                                 .emit = see,
                                 .context = &seen};
    struct output_parser *parser = output_parser_new(&alloc, &rules, &err);
    must(parser != NULL);
    for (size_t i = 1; i < bytes; i++) feed(parser, data[i], &err);
    must(output_parser_end(parser, data[0] & 8 ? OUTPUT_END_CUT : OUTPUT_END_EOS, &err));
    must(output_parser_calls(parser) == seen.n_calls);
    must(seen.text_bytes <= bytes * 20); /* the longest control token is shorter, U+FFFD too */
    output_parser_free(parser);
    chat_tools_fini(&tools);
    json_object_put(list);
    must(alloc.live == 0);
    return 0;
}
