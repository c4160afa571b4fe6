#ifndef GRAM_SCHEMA_INT_H
#define GRAM_SCHEMA_INT_H
/* Between the files that compile schemas. Everything lives in the scratch arena of the builder. */
#include "gram/number_range.h"
#include "gram/schema.h"

enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8, /* integers too */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127,
};

/* A JSON pointer, from the end. */
struct schema_path {
    const struct schema_path *up; /* NULL: key is the beginning, as it stands */
    const char *key;              /* NULL: index */
    size_t index;
};

enum { DONE_REF = 1, DONE_ALL_OF = 2, DONE_ANY_OF = 4, DONE_ONE_OF = 8 };

/* The schemas through which one came to hold for a value: itself, and what referred to it. */
struct schema_trace {
    struct json_object *schema;
    const struct schema_trace *from;
};

/* One of the schemas that hold together. */
struct schema_part {
    struct json_object *schema;
    const struct schema_path *path;
    const struct schema_trace *trace;
    unsigned done; /* members that are dealt with */
};

enum { PARTS_MAX = 64 };

struct schema_parts {
    struct schema_part at[PARTS_MAX];
    uint32_t n;
    bool never; /* one of them is `false` */
};

enum { TASKS_MAX = 1 << 16, BUCKETS = 1 << 12 };

/* Parts whose node, link, is known and not yet compiled. */
struct schema_task {
    struct schema_part *parts;
    uint32_t n, link, bucket_next; /* bucket_next: task + 1 */
    enum spelling spelling;
    bool never;
};

struct schema {
    struct builder *builder;
    struct json_nodes *nodes;
    struct json_object *root;
    const char *where;
    struct schema_task *tasks;
    uint32_t n_tasks, tasks_room, next_task;
    uint32_t *buckets;
    uint32_t n_members;
};

/* What the parts say about everything but members and items. */
struct schema_facts {
    unsigned types;
    bool has_values;
    struct json_object **values; /* [n_values] of enum and const; NULL is null */
    uint32_t n_values;
    struct number_range range;
    uint32_t min_length, max_length; /* REGULAR_MANY */
    uint32_t min_items, max_items;
    uint32_t text;     /* term of pattern and format, in the spelling asked for; */
    uint32_t text_raw; /* and as UTF-8 */
    bool has_text;
    bool has_containers; /* something is said about members or items */
};

/* "CODE: WHERE/pointer[/key]: ...", false always. key may be NULL. */
bool schema_refuse(const struct schema *s, struct err *err, const char *code, const struct schema_path *path,
                   const char *key, const char *format, ...) PRINTF_LIKE(6, 7);

const struct schema_path *schema_path_key(const struct schema *s, const struct schema_path *up, const char *key,
                                          struct err *err);
const struct schema_path *schema_path_index(const struct schema *s, const struct schema_path *up, size_t index,
                                            struct err *err);

/* A node for the values that satisfy all parts; compiled later. The parts are copied. */
bool schema_value(struct schema *s, const struct schema_parts *parts, enum spelling spelling, uint32_t *node,
                  struct err *err) MUST_CHECK;

/* Leaves out parts that say nothing of their own, so that many ways to the same schema are one task. */
void schema_drop_empty(struct schema_parts *parts);

/* Adds a schema, whose path must have been made; `true` adds nothing, `false` makes the parts impossible. `from`: what
 * says that it holds for the same value, or NULL when it is the first; a schema that comes from itself is refused. */
bool schema_add_part(const struct schema *s, struct schema_parts *parts, const struct schema_part *from,
                     struct json_object *schema, const struct schema_path *path, struct err *err) MUST_CHECK;

/* Takes $ref and allOf in. */
bool schema_expand(const struct schema *s, struct schema_parts *parts, struct err *err) MUST_CHECK;

/* Whether *list, the value of a keyword, is an array of schemas and not empty. */
bool schema_list(const struct schema *s, const struct schema_part *part, const char *key, struct json_object **list,
                 struct err *err) MUST_CHECK;

bool schema_check_keywords(const struct schema *s, const struct schema_part *part, struct err *err) MUST_CHECK;
bool schema_says_nothing(const struct schema_part *part);

bool schema_facts_of(const struct schema *s, const struct schema_parts *parts, enum spelling spelling,
                     struct schema_facts *facts, struct err *err) MUST_CHECK;

/* Values without any schema beside the types that facts allows. */
bool schema_emit(struct schema *s, const struct schema_parts *parts, enum spelling spelling, uint32_t *node,
                 struct err *err) MUST_CHECK;

/* marks: NULL for a JSON object. */
bool schema_members(struct schema *s, const struct schema_parts *parts, const struct schema_marks *marks,
                    uint32_t *node, struct err *err) MUST_CHECK;

bool schema_items(struct schema *s, const struct schema_parts *parts, const struct schema_facts *facts, uint32_t *node,
                  struct err *err) MUST_CHECK;

#endif
