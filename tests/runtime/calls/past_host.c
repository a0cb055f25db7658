/* SPDX-License-Identifier: Apache-2.0
 *
 * past_host.c: a program that does not use the driver itself, but loads libraries that do
 * (past_library.c), and answers each line of its input with one line. One thread.
 *
 *   load PATH | deep PATH      loads a library, the second with RTLD_DEEPBIND; the last one is used
 *   use N                      uses the N-th library that was loaded, from 0
 *   alloc MIB                  allocates memory, full of 7
 *   check                      reads the memory's beginning: "result byte"
 *   given NAME VERSION         reads it by that function
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8

static void *libraries[MOST];
static unsigned count, used;
static unsigned long long address;

static void *function_of(const char *name)
{
    return dlsym(libraries[used], name);
}

static void load_library(const char *path, int flags)
{
    void *library = count < MOST ? dlopen(path, RTLD_NOW | flags) : NULL;

    if (library == NULL) {
        printf("failed: %s\n", dlerror());
        return;
    }
    used = count;
    libraries[count++] = library;
    printf("loaded\n");
}

static void read_memory(const char *name, int version)
{
    unsigned char byte = 0;
    int result;

    if (name == NULL) {
        int (*copy)(void *, unsigned long long, size_t) =
            (int (*)(void *, unsigned long long, size_t))function_of("past_copy");

        result = copy(&byte, address, 1);
    } else {
        int (*given)(const char *, int, void *, unsigned long long, size_t) = (int (*)(
            const char *, int, void *, unsigned long long, size_t))function_of("past_given");

        result = given(name, version, &byte, address, 1);
    }
    printf("%d %d\n", result, byte);
}

int main(void)
{
    char line[512], word[32], text[400];
    int number;

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        number = 0;
        word[0] = text[0] = '\0';
        /* NOLINTNEXTLINE(cert-err34-c): a test's own numbers */
        if (sscanf(line, "%31s %399s %d", word, text, &number) < 1)
            return 2;
        if (strcmp(word, "load") == 0) {
            load_library(text, 0);
        } else if (strcmp(word, "deep") == 0) {
            load_library(text, RTLD_DEEPBIND);
        } else if (strcmp(word, "use") == 0) {
            used = (unsigned)atoi(text); /* NOLINT(cert-err34-c) */
            printf("used\n");
        } else if (strcmp(word, "alloc") == 0) {
            int (*alloc)(unsigned long long *, size_t) =
                (int (*)(unsigned long long *, size_t))function_of("past_alloc");

            printf("%d\n", alloc(&address, strtoul(text, NULL, 10) << 20));
        } else if (strcmp(word, "check") == 0) {
            read_memory(NULL, 0);
        } else if (strcmp(word, "given") == 0) {
            read_memory(text, number);
        } else {
            return 2;
        }
    }
    return 0;
}
