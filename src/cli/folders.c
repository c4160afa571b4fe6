#include "cli/folders.h"

#include <stdio.h>
#include <sys/stat.h>

void folders_make(const char *path)
{
    char folder[4096];
    for (size_t n = 1; path[n] && n < sizeof folder; n++) {
        if (path[n] != '/') continue;
        snprintf(folder, sizeof folder, "%.*s", (int)n, path);
        mkdir(folder, 0700);
    }
}
