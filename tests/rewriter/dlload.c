/* SPDX-License-Identifier: Apache-2.0
 *
 * dlload.c: loads the libraries that it is given; says which could not be loaded, and why.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "./x/libz.so.1: cannot ..." without the path, which differs between the copies that are
 * compared */
static const char *find_reason(const char *path, const char *text)
{
    size_t length = strlen(path);

    return strncmp(text, path, length) == 0 ? text + length : text;
}

int main(int argc, char **argv)
{
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        void *handle = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);

        if (handle == NULL) {
            printf("%s\n", find_reason(argv[i], dlerror()));
            failed++;
        }
    }
    fflush(stdout);
    _Exit(failed); /* destructors of half-used libraries are not what is tested */
}
