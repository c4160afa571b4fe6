/* Bytes as configuration file, and, cut at its newlines, as a command line and an environment. */
#include "cli/commands.h"
#include "cli/settings.h"
#include "support/mem_files.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { WORDS_MAX = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *lines = calloc(bytes + 1, 1), *words[WORDS_MAX + 1] = {NULL}, *none[] = {NULL};
    char config[] = "--config=fuzz.ini", *only_config[] = {config, NULL};
    struct mem_files files = {0};
    if (!lines) abort();
    if (bytes) memcpy(lines, data, bytes);
    size_t n = 0;
    for (char *line = strtok(lines, "\n"); line && n < WORDS_MAX; line = strtok(NULL, "\n")) words[n++] = line;
    mem_files_add(&files, "fuzz.ini", (void *)data, bytes);

    for (int way = 0; way < 3; way++) {
        struct alloc alloc = {0};
        struct settings settings;
        struct operands operands;
        struct err err = {0};
        struct settings_source source = {way == 0   ? only_config
                                         : way == 1 ? words
                                                    : none,
                                         way == 2 ? words : none, mem_files_system(&files)};
        bool ok = settings_read(&settings, &operands, &alloc, COMMAND_VERSION, &source, &err);
        if (ok == (err.kind != ERR_NONE)) abort(); /* failed without a reason, or has one and went on */
        if (!ok && memchr(err.text, '\n', strlen(err.text))) abort(); /* a message is one line */
        settings_fini(&settings);
        if (alloc.live != 0) abort();
    }
    free(lines);
    return 0;
}
