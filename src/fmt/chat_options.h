#ifndef FMT_CHAT_OPTIONS_H
#define FMT_CHAT_OPTIONS_H
/* How a conversation is rendered, and the many ways in which clients say it. Values only. */
#include "base/err.h"

struct json_object;

enum chat_effort { CHAT_EFFORT_MAX, CHAT_EFFORT_HIGH };

/* Zeroed: what weir does unless asked otherwise. The template's own default is thinking. */
struct chat_options {
    bool thinking;
    enum chat_effort effort; /* with thinking only */
    bool keep_reasoning;     /* of assistant turns before the last user message (clear_thinking: false) */
    bool no_generation_prompt;
};

/* The words of reasoning_effort on the wire: none and minimal turn thinking off; low, medium and high are High; xhigh
 * and max are Max. Another word is ERR_USER, and the text begins with the name of what holds it. */
bool chat_options_effort(struct chat_options *options, const char *name, const char *word, struct err *err) MUST_CHECK;

/* Changes what a chat request says something about. The strongest comes first: chat_template_kwargs.enable_thinking or
 * .thinking, enable_thinking, thinking ({"type": "enabled", "adaptive" or "disabled"}), reasoning_effort (in
 * chat_template_kwargs, at the top, or as reasoning.effort). clear_thinking is read in both places. A null says
 * nothing; other members are not looked at. A wrong type is ERR_USER and names the member. */
bool chat_options_read(struct chat_options *options, struct json_object *request, struct err *err) MUST_CHECK;

#endif
