#ifndef GRAM_JSON_NODES_H
#define GRAM_JSON_NODES_H
/* Nodes for JSON text that has no schema, and the marks that every container needs. Values only. */
#include "gram/builder.h"
#include "gram/json_terms.h"

struct json_nodes {
    struct json_spacing spacing;
    uint32_t blank, comma, colon;                                /* blanks around both marks */
    uint32_t open_object, close_object, open_array, close_array; /* blanks in front of what closes */
    uint32_t string, number, integer;
    uint32_t any, any_object, any_array;
};

void json_nodes_init(struct json_nodes *nodes, struct builder *builder, struct json_spacing spacing);

/* A quoted string of min to max (REGULAR_MANY) code points. */
uint32_t json_string_node(struct json_nodes *nodes, struct builder *builder, uint32_t min, uint32_t max);

/* An array: `first`, then `rest`, a node that begins with the comma of what follows and may match nothing. */
struct json_array_form {
    uint32_t first, rest;
    bool may_be_empty, has_items;
};
uint32_t json_array_node(struct json_nodes *nodes, struct builder *builder, const struct json_array_form *form);

#endif
