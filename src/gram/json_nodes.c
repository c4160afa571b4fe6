#include "gram/json_nodes.h"

uint32_t json_string_node(struct json_nodes *nodes, struct builder *b, uint32_t min, uint32_t max)
{
    struct regular *r = &b->regular;
    if (min == 0 && max == REGULAR_MANY) return nodes->string;
    uint32_t quote = regular_text(r, "\"");
    return build_seq(b, (uint32_t[]){build_term(b, quote), build_count(b, json_char_term(r), quote, min, max)}, 2);
}

uint32_t json_array_node(struct json_nodes *nodes, struct builder *b, const struct json_array_form *form)
{
    uint32_t ends[2], n = 0;
    if (form->may_be_empty) ends[n++] = nodes->close_array;
    if (form->has_items)
        ends[n++] = build_seq(b, (uint32_t[]){nodes->blank, form->first, form->rest, nodes->close_array}, 4);
    return build_nest(b, build_seq(b, (uint32_t[]){nodes->open_array, build_union(b, ends, n)}, 2));
}

static uint32_t any_object(struct json_nodes *nodes, struct builder *b)
{
    struct regular *r = &b->regular;
    uint32_t colon = json_mark_term(r, nodes->spacing, ':'), comma = json_mark_term(r, nodes->spacing, ',');
    uint32_t key = regular_seq(r, json_key_term(r), colon);
    uint32_t first = build_term(b, regular_seq(r, json_blanks_term(r, nodes->spacing), key));
    uint32_t more = build_seq(b, (uint32_t[]){build_term(b, regular_seq(r, comma, key)), nodes->any}, 2);
    uint32_t members =
        build_seq(b, (uint32_t[]){first, nodes->any, build_repeat(b, more, 0, REGULAR_MANY), nodes->close_object}, 4);
    uint32_t inside = build_union(b, (uint32_t[]){nodes->close_object, members}, 2);
    return build_nest(b, build_seq(b, (uint32_t[]){nodes->open_object, inside}, 2));
}

void json_nodes_init(struct json_nodes *nodes, struct builder *b, struct json_spacing spacing)
{
    struct regular *r = &b->regular;
    uint32_t words =
        regular_any_of(r, (uint32_t[]){regular_text(r, "true"), regular_text(r, "false"), regular_text(r, "null")}, 3);
    uint32_t scalar = regular_any_of(r, (uint32_t[]){json_string_term(r), json_number_term(r), words}, 3);
    *nodes = (struct json_nodes){
        .spacing = spacing,
        .blank = build_term(b, json_blanks_term(r, spacing)),
        .comma = build_term(b, json_mark_term(r, spacing, ',')),
        .colon = build_term(b, json_mark_term(r, spacing, ':')),
        .open_object = build_term(b, regular_text(r, "{")),
        .close_object = build_term(b, json_mark_term(r, spacing, '}')),
        .open_array = build_term(b, regular_text(r, "[")),
        .close_array = build_term(b, json_mark_term(r, spacing, ']')),
        .string = build_term(b, json_string_term(r)),
        .number = build_term(b, json_number_term(r)),
        .integer = build_term(b, json_integer_term(r)),
        .any = build_link(b),
    };
    uint32_t more = build_seq(b, (uint32_t[]){nodes->comma, nodes->any}, 2);
    struct json_array_form form = {nodes->any, build_repeat(b, more, 0, REGULAR_MANY), true, true};
    nodes->any_array = json_array_node(nodes, b, &form);
    nodes->any_object = any_object(nodes, b);
    build_link_to(b, nodes->any,
                  build_union(b, (uint32_t[]){build_term(b, scalar), nodes->any_object, nodes->any_array}, 3));
}
