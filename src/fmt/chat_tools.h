#ifndef FMT_CHAT_TOOLS_H
#define FMT_CHAT_TOOLS_H
/* The tools that a client declared, brought into the one form that the prompt shows.
 *
 * A declaration is {"type": "function", "function": {...}} (OpenAI), {"type": "function", "name", ...} (Responses),
 * {"name", "description", "input_schema"} (Anthropic) or the function object itself. The last keeps its members and
 * their order but for `strict` and `defer_loading`; the two in the middle are rebuilt as name, description, parameters.
 *
 * Owned by one thread; names and objects live until chat_tools_fini. */
#include "base/alloc.h"
#include <stddef.h>

struct json_object;

enum { CHAT_TOOLS_MAX = 512 };

struct chat_tool {
    const char *name;
    size_t name_bytes;
    struct json_object *function;   /* as the prompt shows it */
    struct json_object *parameters; /* a JSON schema, borrowed from function; NULL when there is none */
    bool is_deferred;               /* declared, but shown only when a tool result refers to it */
};

struct chat_tools {
    struct alloc *alloc;
    struct chat_tool *tools; /* [n_tools] */
    size_t n_tools;
};

/* `list` is an array or NULL. Errors are ERR_USER and name the tool by its index. */
bool chat_tools_init(struct chat_tools *tools, struct alloc *alloc, struct json_object *list,
                     struct err *err) MUST_CHECK;
void chat_tools_fini(struct chat_tools *tools); /* safe twice and on a zeroed struct */

/* The first tool of exactly this name, or NULL. */
const struct chat_tool *chat_tools_find(const struct chat_tools *tools, const char *name, size_t bytes);

#endif
