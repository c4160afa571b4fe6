#ifndef SUPPORT_FULL_HEADERS_H
#define SUPPORT_FULL_HEADERS_H
/* The full model as its headers describe it, without a byte of payload: int4 per row, embedding and head int8, MTP
 * layer int8, indexers int8, tensors laid out as the converter does. For whatever plans, counts or places. */
#include "fmt/inventory.h"

struct full_headers {
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
};

void full_headers_make(struct full_headers *headers);
void full_headers_free(struct full_headers *headers);

#endif
