#ifndef RUN_VERIFY_VALUES_H
#define RUN_VERIFY_VALUES_H
/* Which numbers of a tensor cannot be: not finite, or, of scales, not positive. Bytes come in pieces cut anywhere. */
#include "fmt/catalogue.h"

struct verify_values {
    const struct tensor *tensor;
    unsigned value_bytes; /* 0: any bytes are good values of this dtype */
    bool is_scale;
    unsigned char held[4]; /* a value that was cut */
    unsigned n_held;
    uint64_t n_seen, n_bad, first_bad;
    double first_value;
};

void verify_values_begin(struct verify_values *values, const struct tensor *tensor);
void verify_values_add(struct verify_values *values, const unsigned char *bytes, uint64_t n);

#endif
