#ifndef SERVE_TOOLS_H
#define SERVE_TOOLS_H
/* The tools of a request in any wire form: what the prompt shows, what the parser accepts, and how a call is named on
 * its way back.
 *
 * Functions are shown as they are. A custom tool is shown as a function with one string, `input`. Tools in a namespace
 * get one flat name, namespace__name. Tools that the vendor's servers would run are left out and listed by name. Lives
 * as long as the request; owned by one thread at a time. */
#include "base/arena.h"
#include "fmt/chat_tools.h"
#include "serve/problem.h"

struct jot;
struct json_object;

enum tools_wire { TOOLS_CHAT, TOOLS_MESSAGES, TOOLS_RESPONSES };
enum tools_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED };

struct tool_origin {
    const char *name;      /* as the client calls it */
    const char *namespace; /* NULL: none */
    bool is_custom;
    bool is_strict;
};

struct tools {
    struct json_object *shown; /* array for the prompt; NULL: none */
    struct chat_tools chat;    /* of the same order */
    struct tool_origin *origins;
    enum tools_choice choice;
    const struct chat_tool *named;
    bool one_call;
    struct buf dropped; /* "web_search, mcp" */
};

struct tools_reader {
    struct alloc *alloc;
    struct arena *arena;
    enum tools_wire wire;
    bool strict; /* nothing is dropped: it is refused */
};

/* Reads `tools`, `tool_choice` and `parallel_tool_calls` of a request. */
bool tools_read(struct tools *tools, const struct tools_reader *reader, struct json_object *body,
                struct problem *problem) MUST_CHECK;
void tools_fini(struct tools *tools); /* safe twice and on a zeroed struct */

const struct tool_origin *tools_origin(const struct tools *tools, const struct chat_tool *tool);

/* The flat name of a tool that the client names by namespace (NULL: none) and name. In `out`, which is returned. */
enum { TOOL_NAME_MAX = 260 };
const char *tools_flat_name(char out[TOOL_NAME_MAX], const char *namespace, const char *name);

/* What a custom tool is called with: the one string of a call's arguments, their member `input`. */
void tools_put_input(struct jot *json, struct alloc *alloc, const char *arguments, size_t bytes);

#endif
