#ifndef CONVERT_PLACE_H
#define CONVERT_PLACE_H
/* Paths of files in the two folders of a conversion, and whether something is there. */
#include "plat/file.h"

struct convert_place {
    char path[4096];
};

bool convert_place_set(struct convert_place *place, const char *folder, const char *name, struct err *err) MUST_CHECK;

/* Only "no such file" means that it does not exist; a path that cannot be opened is an error. */
bool convert_place_look(const struct convert_place *place, struct file_system fs, bool *exists,
                        struct err *err) MUST_CHECK;

/* The name of some file in the folder that ends with `suffix`; "" when there is none. */
bool convert_place_find(char name[256], const char *folder, const char *suffix, struct err *err) MUST_CHECK;

#endif
