#include "cli/conversation.h"

#include "base/assert.h"
#include "base/utf8.h"
#include "cli/library.h"
#include "fmt/json_build.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"
#include <string.h>

enum { FILE_BYTES_MAX = 64 << 20 };

static struct json_object *new_array(struct err *err)
{
    struct json_object *array = json_object_new_array();
    if (!array) err_set(err, ERR_NOMEM, "no memory for the messages");
    return array;
}

bool conversation_init(struct conversation *conversation, struct alloc *alloc, struct err *err)
{
    *conversation = (struct conversation){.alloc = alloc, .messages = new_array(err)};
    return conversation->messages != NULL;
}

void conversation_fini(struct conversation *conversation)
{
    json_object_put(conversation->messages);
    *conversation = (struct conversation){0};
}

static void replace(struct conversation *c, struct json_object *messages)
{
    json_object_put(c->messages);
    c->messages = messages;
}

size_t conversation_length(const struct conversation *conversation)
{
    return json_object_array_length(conversation->messages);
}

static bool add_message(struct json_object *messages, const struct weir_message *m, struct err *err)
{
    size_t bad;
    if (!utf8_check(m->text, m->bytes, &bad))
        return err_set(err, ERR_USER, "the text of the message is not valid UTF-8 at byte %zu", bad);
    struct json_object *message = json_object_new_object();
    bool ok = message && json_build_words(message, "role", m->role) &&
              json_build_text(message, "content", m->text, m->bytes) &&
              (!m->reasoning || json_build_text(message, "reasoning_content", m->reasoning, m->reasoning_bytes)) &&
              json_object_array_add(messages, message) == 0;
    if (!ok) json_object_put(message);
    return ok || err_set(err, ERR_NOMEM, "no memory for a message");
}

bool conversation_add(struct conversation *conversation, const struct weir_message *message, struct err *err)
{
    return add_message(conversation->messages, message, err);
}

void conversation_drop_last(struct conversation *conversation)
{
    size_t n = conversation_length(conversation);
    ASSERT(n > 0);
    json_object_array_del_idx(conversation->messages, n - 1, 1);
}

/* How many system messages stand in front. */
static size_t count_systems(const struct json_object *messages)
{
    size_t n = 0;
    for (; n < json_object_array_length(messages); n++) {
        struct json_object *role = json_object_object_get(json_object_array_get_idx(messages, n), "role");
        if (!role || strcmp(json_object_get_string(role), "system") != 0) break;
    }
    return n;
}

static bool add_range(struct json_object *to, const struct json_object *from, size_t first, size_t end, struct err *err)
{
    for (size_t i = first; i < end; i++) {
        if (json_build_share_element(to, json_object_array_get_idx(from, i))) continue;
        return err_set(err, ERR_NOMEM, "no memory for the messages");
    }
    return true;
}

bool conversation_set_system(struct conversation *conversation, const char *text, struct err *err)
{
    struct json_object *messages = new_array(err), *old = conversation->messages;
    const struct weir_message system = {.role = "system", .text = text, .bytes = text ? strlen(text) : 0};
    bool ok = messages && (!text || add_message(messages, &system, err)) &&
              add_range(messages, old, count_systems(old), json_object_array_length(old), err);
    if (ok)
        replace(conversation, messages);
    else
        json_object_put(messages);
    return ok;
}

bool conversation_reset(struct conversation *conversation, struct err *err)
{
    struct json_object *messages = new_array(err);
    if (!messages) return false;
    bool ok = add_range(messages, conversation->messages, 0, count_systems(conversation->messages), err);
    if (ok)
        replace(conversation, messages);
    else
        json_object_put(messages);
    return ok;
}

bool conversation_save(const struct conversation *conversation, struct write_system ws, const char *path,
                       struct err *err)
{
    struct buf text;
    buf_init(&text, conversation->alloc, FILE_BYTES_MAX);
    bool ok = buf_add_text(&text, "{\"messages\": ", err) &&
              json_text_add(&text, conversation->messages, JSON_PYTHON, err) && buf_add_text(&text, "}\n", err) &&
              file_write_all(conversation->alloc, ws, path, text.data, text.bytes, err);
    buf_fini(&text);
    return ok;
}

static bool prompt_of(struct weir_prompt **prompt, struct alloc *alloc, struct json_object *messages,
                      struct weir_model *model, const struct weir_chat_options *options, struct err *err)
{
    struct buf text;
    struct weir_error error;
    buf_init(&text, alloc, FILE_BYTES_MAX);
    bool ok = json_text_add(&text, messages, JSON_COMPACT, err) &&
              library_ok(weir_prompt_of_chat(prompt, model, text.data, text.bytes, options, &error), &error, err);
    buf_fini(&text);
    return ok;
}

bool conversation_prompt(const struct conversation *conversation, struct weir_prompt **prompt, struct weir_model *model,
                         const struct weir_chat_options *options, struct err *err)
{
    return prompt_of(prompt, conversation->alloc, conversation->messages, model, options, err);
}

/* Every message must be one that a prompt can be made of. */
static bool check_messages(struct alloc *alloc, struct weir_model *model, struct json_object *messages, struct err *err)
{
    struct weir_prompt *prompt;
    if (!json_object_is_type(messages, json_type_array))
        return err_set(err, ERR_DATA, "neither {\"messages\": [...]} nor an array of messages");
    if (json_object_array_length(messages) == 0) return true;
    if (prompt_of(&prompt, alloc, messages, model, NULL, err)) {
        weir_prompt_free(prompt);
        return true;
    }
    if (err->kind == ERR_USER) err->kind = ERR_DATA; /* the file is wrong, not the command line */
    return false;
}

bool conversation_load(struct conversation *conversation, struct weir_model *model, struct file_system fs,
                       const char *path, struct err *err)
{
    struct json_rules rules = json_rules_file;
    struct json_object *document = NULL;
    size_t bytes;
    rules.bytes_max = FILE_BYTES_MAX;
    char *text = file_read_all(conversation->alloc, fs, path, FILE_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool ok = json_doc_parse(&document, conversation->alloc, &rules, path, text, bytes, err);
    alloc_put(conversation->alloc, text);
    if (!ok) return false;

    struct json_object *messages = document;
    if (json_object_is_type(document, json_type_object)) messages = json_object_object_get(document, "messages");
    ok = check_messages(conversation->alloc, model, messages, err) || err_context(err, "%s", path);
    if (ok) replace(conversation, json_object_get(messages));
    json_object_put(document);
    return ok;
}
