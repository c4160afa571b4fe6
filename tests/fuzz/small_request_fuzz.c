/* The first byte says which of the small routes gets the rest as its body. */
#include "support/fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const paths[] = {"/tokenize", "/detokenize", "/apply-template", "/admin/budget",
                                        "/v1/requests/none/cancel"};
    if (bytes > 0) fuzz_server_post(paths[data[0] % 5], data + 1, bytes - 1);
    return 0;
}
