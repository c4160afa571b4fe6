#ifndef SUPPORT_FUZZ_SERVER_H
#define SUPPORT_FUZZ_SERVER_H
/* A server inside a fuzzer: it reads requests with the tokenizer and the template of the demo model, and has no engine,
 * so that what is right ends in 502 and nothing is generated. It starts with the first call and stays. */
#include <stddef.h>
#include <stdint.h>

/* Sends a body. The answer must be a JSON object with the shape that its status has, and no internal error: anything
 * else aborts. */
void fuzz_server_post(const char *path, const uint8_t *body, size_t bytes);

/* Sends bytes as they are, says that no more will come, and reads to the end; then the server must be alive. */
void fuzz_server_send(const uint8_t *data, size_t bytes);

#endif
