#ifndef SUPPORT_TEMP_FOLDER_H
#define SUPPORT_TEMP_FOLDER_H
/* A folder of a test's own, and plain file helpers that stop the test when they fail. */
#include "support/check.h"
#include <stdbool.h>

struct temp_folder {
    char path[256];
};

void temp_folder_make(struct temp_folder *folder);
void temp_folder_remove(struct temp_folder *folder); /* with all that is in it */

/* PATH of a name in the folder; good until the eighth call after this one. */
const char *temp_path(const struct temp_folder *folder, const char *name);

void put_file(const char *path, const void *data, size_t bytes);
unsigned char *take_file(const char *path, size_t *bytes); /* malloc'ed, a NUL behind it; the caller frees */
bool file_exists(const char *path);
void remove_tree(const char *path); /* one that is not there is fine */

/* Stops the test, naming the file, when the two folders differ in their file names or in any file's bytes. */
void assert_same_folders(const char *a, const char *b);
#endif
