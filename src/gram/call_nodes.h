#ifndef GRAM_CALL_NODES_H
#define GRAM_CALL_NODES_H
/* Tool calls as a grammar: <tool_call> name, then <arg_key> key </arg_key><arg_value> value </arg_value> for each
 * argument, then </tool_call>. The marks are tokens, placed by id; text that spells them is text. */
#include "gram/constraint.h"
#include "gram/json_nodes.h"

/* The node of an answer that is made of calls, beside or instead of `value` (GRAM_NONE: none), as request->calls says.
 */
bool call_nodes_make(struct builder *builder, struct json_nodes *json, const struct constraint_request *request,
                     const struct control_ids *ids, uint32_t value, uint32_t *node, struct err *err) MUST_CHECK;

#endif
