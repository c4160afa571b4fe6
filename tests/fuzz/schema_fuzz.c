/* A JSON Schema from outside: it is refused, or what it generates never gets stuck. */
#include "fmt/json_doc.h"
#include "support/fuzz_walk.h"
#include <json-c/json_object.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct constraint_request request = {.kind = CONSTRAINT_SCHEMA};
    if (!json_doc_parse(&request.value, &alloc, &json_rules_request, "fuzz", (const char *)data, bytes, &err)) return 0;
    request.strict = bytes % 8 == 0;
    request.blanks = bytes % 2 ? JSON_BLANKS_ANY : JSON_BLANKS_FIXED;
    fuzz_walk(&request);
    json_object_put(request.value);
    return 0;
}
