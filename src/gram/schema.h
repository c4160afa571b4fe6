#ifndef GRAM_SCHEMA_H
#define GRAM_SCHEMA_H
/* JSON Schema to a grammar.
 *
 * Enforced: type, enum, const, properties, required, additionalProperties, items, prefixItems, minItems, maxItems,
 * anyOf, oneOf, allOf, $ref (local), minLength, maxLength, pattern, format (string_format.h), the four bounds of
 * numbers. Annotations and unknown keywords are ignored. What is known and cannot be enforced is refused with the JSON
 * pointer of the keyword. What is generated is sometimes less than what the schema allows, never more:
 *   - members come in the order of the schema; without additionalProperties there are no others, unless the schema
 *     names no members at all;
 *   - keywords that speak of one type, without `type`, mean that type;
 *   - strings with a pattern or format, and names of further members, are escaped only where they must be;
 *   - oneOf is anyOf.
 *
 * A schema is compiled as a list of schemas that hold together, so that $ref with siblings and allOf are nothing
 * special, and anyOf beside other keywords is a choice between longer lists.
 *
 * Owned by one thread; the schema is borrowed until schema_run. */
#include "gram/code_set.h"
#include "gram/json_nodes.h"

struct json_object;
struct schema;

enum {
    SCHEMA_BYTES_MAX = 1 << 20,
    SCHEMA_MEMBERS_MAX = 5000,
    SCHEMA_LENGTH_MAX = 10000, /* of strings, in code points */
    SCHEMA_ITEMS_MAX = 1000,
};

/* The tokens around arguments, for SPELL_RAW. */
struct schema_marks {
    uint32_t key, key_end, value, value_end; /* nodes */
};

/* `where` is put in front of JSON pointers in messages; it and all else must live until schema_run. From the scratch
 * arena of the builder. */
struct schema *schema_new(struct builder *builder, struct json_nodes *nodes, struct json_object *root,
                          const char *where, struct err *err) MUST_CHECK;

/* A node for the values of the whole schema. SPELL_RAW: strings are written without quotes and escapes. */
bool schema_node(struct schema *schema, enum spelling spelling, uint32_t *node, struct err *err) MUST_CHECK;

/* A node for the pairs of a call whose arguments are the members of the whole schema. */
bool schema_args(struct schema *schema, const struct schema_marks *marks, uint32_t *node, struct err *err) MUST_CHECK;

/* Compiles everything that the nodes refer to. Once, at the end. */
bool schema_run(struct schema *schema, struct err *err) MUST_CHECK;

/* Before the builder goes. NULL is fine. */
void schema_fini(struct schema *schema);

/* Refuses what OpenAI's strict mode refuses. */
bool schema_check_strict(struct json_object *root, const char *where, struct err *err) MUST_CHECK;

#endif
