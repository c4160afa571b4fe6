/* Bytes on a connection: whatever they are, the server answers or cuts, and lives. */
#include "support/fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_server_send(data, bytes);
    return 0;
}
