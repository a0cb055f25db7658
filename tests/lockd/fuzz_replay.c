/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_replay.c: runs a fuzz target over the files of a folder, where there is no libFuzzer:
 * what a fuzzer once found stays found, in every build.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    uint8_t *data = malloc(FILE_MAX), *exact;
    FILE *file = fopen(path, "rbe");
    size_t size;

    if (file == NULL || data == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        free(data);
        return 1;
    }
    size = fread(data, 1, FILE_MAX, file);
    fclose(file);
    exact = realloc(data, size != 0 ? size : 1); /* so that AddressSanitizer sees its end */
    data = exact != NULL ? exact : data;
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    const struct dirent *entry;
    int count = 0, failed = 0;
    char path[4096];

    if (folder == NULL) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        failed |= replay_file(path);
        count++;
    }
    closedir(folder);
    printf("%d inputs\n", count);
    return failed != 0 || count == 0;
}
