/* A regular expression from outside: it is refused, or what it generates never gets stuck. */
#include "support/fuzz_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct constraint_request request = {.kind = CONSTRAINT_REGEX, .text = (const char *)data, .bytes = bytes};
    fuzz_walk(&request);
    return 0;
}
