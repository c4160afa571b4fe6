#ifndef SUPPORT_PLAIN_TENSORS_H
#define SUPPORT_PLAIN_TENSORS_H
/* Named tensors in memory, and safetensors files read and written the simplest way: an opinion of its own about the
 * format, to compare the product with. Stops the test when anything is wrong. */
#include "support/check.h"
#include <stdbool.h>

struct plain_tensor {
    char name[160];
    char dtype[12];
    unsigned rank;
    uint64_t shape[2];
    unsigned char *data;
    uint64_t bytes;
};

struct plain_set {
    struct plain_tensor *tensors;
    unsigned n;
};

/* Takes a copy of the data; columns 0: a vector. Returns the set's copy. */
unsigned char *plain_add(struct plain_set *set, const char *name, const char *dtype, uint64_t rows, uint64_t columns,
                         const void *data, uint64_t bytes);
struct plain_tensor *plain_find(const struct plain_set *set, const char *name); /* NULL: no such tensor */
void plain_read(struct plain_set *set, const char *path);                       /* adds all of a file's tensors */
void plain_write(const struct plain_set *set, const char *path);                /* in the order of the set */
void plain_free(struct plain_set *set);

/* Values as f32, malloc'ed; FP8 is multiplied with NAME_scale_inv. */
float *plain_floats(const struct plain_set *set, const struct plain_tensor *tensor);

/* The bytes of a whole file that holds the set in its order; malloc'ed. */
unsigned char *plain_bytes(const struct plain_set *set, size_t *bytes);
#endif
