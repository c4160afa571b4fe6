/* A body for /v1/completions: it is refused with words, or it would have been answered. */
#include "support/fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_server_post("/v1/completions", data, bytes);
    return 0;
}
