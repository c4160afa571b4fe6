/* Gives every file of the folders named on the command line to the fuzz target, whole and cut at up to 64 places. No
 * fuzzer needed: this is how the corpus is an ordinary test. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { INPUT_BYTES_MAX = 1 << 24, CUTS = 64 };

/* A copy of exactly n bytes, so that a sanitizer sees a read of one byte too many. */
static void give(const unsigned char *data, size_t n)
{
    unsigned char *exact = malloc(n ? n : 1);
    if (!exact) abort();
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = malloc(INPUT_BYTES_MAX);
    if (!file || !data) {
        fprintf(stderr, "%s: cannot read\n", path);
        free(data);
        if (file) fclose(file);
        return 0;
    }
    size_t n = fread(data, 1, INPUT_BYTES_MAX, file);
    fclose(file);
    printf("replay %s (%zu bytes)\n", path, n);
    fflush(stdout); /* the name of a killer must be on the screen */
    give(data, n);
    for (size_t cut = 0; cut < CUTS; cut++) give(data, n * cut / CUTS);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int n_inputs = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            fprintf(stderr, "%s: no such folder\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
            char path[4096];
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (!replay(path)) return 1;
            n_inputs++;
        }
        closedir(dir);
    }
    printf("%d inputs replayed\n", n_inputs);
    return n_inputs > 0 ? 0 : 1; /* an empty corpus proves nothing */
}
