#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H
/* The messages of a chat, in the form of the chat completions API, and their file.
 *
 * A file is {"messages": [...]}, so that `weir template` reads it too; a bare array is read as well. Main thread. */
#include "base/buf.h"
#include "plat/file.h"
#include "plat/file_write.h"
#include "weir/weir.h"

struct json_object;

struct conversation {
    struct alloc *alloc;
    struct json_object *messages; /* array */
};

bool conversation_init(struct conversation *conversation, struct alloc *alloc, struct err *err) MUST_CHECK;
void conversation_fini(struct conversation *conversation); /* safe twice and on a zeroed struct */

size_t conversation_length(const struct conversation *conversation); /* messages */

/* One more message of plain text, which must be UTF-8. */
bool conversation_add(struct conversation *conversation, const struct weir_message *message,
                      struct err *err) MUST_CHECK;
void conversation_drop_last(struct conversation *conversation);

/* Puts a system message in front, in place of those that are there. NULL: only takes them away. */
bool conversation_set_system(struct conversation *conversation, const char *text, struct err *err) MUST_CHECK;

/* Forgets everything but the system messages in front. */
bool conversation_reset(struct conversation *conversation, struct err *err) MUST_CHECK;

bool conversation_save(const struct conversation *conversation, struct write_system ws, const char *path,
                       struct err *err) MUST_CHECK;

/* Replaces the messages; on failure they stay. What no prompt of the model can be made of is ERR_DATA. */
bool conversation_load(struct conversation *conversation, struct weir_model *model, struct file_system fs,
                       const char *path, struct err *err) MUST_CHECK;

/* The prompt that the messages are. */
bool conversation_prompt(const struct conversation *conversation, struct weir_prompt **prompt, struct weir_model *model,
                         const struct weir_chat_options *options, struct err *err) MUST_CHECK;

#endif
