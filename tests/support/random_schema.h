#ifndef SUPPORT_RANDOM_SCHEMA_H
#define SUPPORT_RANDOM_SCHEMA_H
/* Random JSON Schemas of all that is enforced: an object at the root, nested and recursive, with definitions. */
#include "support/constrained.h"

enum schema_feature {
    SCHEMA_STRING,
    SCHEMA_LENGTH,
    SCHEMA_PATTERN,
    SCHEMA_FORMAT,
    SCHEMA_INTEGER,
    SCHEMA_INTEGER_BOUNDS,
    SCHEMA_NUMBER,
    SCHEMA_NUMBER_BOUNDS,
    SCHEMA_EXCLUSIVE,
    SCHEMA_BOOLEAN,
    SCHEMA_NULL,
    SCHEMA_ENUM,
    SCHEMA_CONST,
    SCHEMA_ARRAY,
    SCHEMA_ITEM_COUNTS,
    SCHEMA_PREFIX,
    SCHEMA_OBJECT,
    SCHEMA_OPTIONAL,
    SCHEMA_UNICODE_KEY,
    SCHEMA_ADDITIONAL,
    SCHEMA_ADDITIONAL_SCHEMA,
    SCHEMA_ANY_OF_NULL,
    SCHEMA_ONE_OF,
    SCHEMA_ALL_OF,
    SCHEMA_REF,
    SCHEMA_ANYTHING,
    SCHEMA_TYPE_LIST,
    SCHEMA_FEATURES,
};

struct schema_maker {
    struct numbers *numbers;
    uint32_t used[SCHEMA_FEATURES]; /* how often each was made */
};

/* The caller puts it. */
struct json_object *schema_make(struct schema_maker *maker);

const char *schema_feature_name(enum schema_feature feature);

#endif
