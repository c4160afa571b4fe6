/* A body for /v1/messages, and for the count of its tokens. */
#include "support/fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_server_post(bytes % 4 ? "/v1/messages" : "/v1/messages/count_tokens", data, bytes);
    return 0;
}
