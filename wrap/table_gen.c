/* SPDX-License-Identifier: Apache-2.0
 *
 * table_gen.c: writes what other tools need of driver_api.def as text, at build time:
 *   table_gen rsp        one --wrap=NAME a line, for the linker (wrap.rsp)
 *   table_gen names      the wrapped names, one a line
 *   table_gen stub       reads the library's version script and writes one line of stub/names.h
 *                        for each exported name
 * dlsym and dlvsym are not the driver's but are wrapped as well: they lead to it. No state.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const doors[] = {"dlsym", "dlvsym"};

static const char *const wrapped[] = {
#define GS_PASS(...)
#define GS_API(symbol, ...) #symbol,
#include "wrap/driver_api.def"
};

static void print_names(const char *prefix)
{
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++)
        printf("%s%s\n", prefix, doors[i]);
    for (size_t i = 0; i < sizeof wrapped / sizeof *wrapped; i++)
        printf("%s%s\n", prefix, wrapped[i]);
}

/* Prints the exported names: a driver's function with its wrapper, or one of ours, for which a
 * stub has nothing to call. dlsym and dlvsym are written by hand. */
static void print_stubs(void)
{
    static const char between[] = " \t\n{};:";
    char line[1024];

    while (fgets(line, sizeof line, stdin) != NULL)
        for (char *word = strtok(line, between); word != NULL; word = strtok(NULL, between)) {
            /* those of wrappers are printed with their plain names */
            bool shown = strcmp(word, "global") != 0 && strncmp(word, "__wrap_", 7) != 0;

            if (strcmp(word, "local") == 0)
                return;
            for (size_t i = 0; i < sizeof doors / sizeof *doors; i++)
                shown = shown && strcmp(word, doors[i]) != 0;
            if (shown)
                printf("%s(%s)\n", strncmp(word, "cu", 2) == 0 ? "GS_STUB" : "GS_STUB_OURS",
                       word);
        }
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    if (strcmp(what, "rsp") == 0) {
        print_names("--wrap=");
    } else if (strcmp(what, "names") == 0) {
        print_names("");
    } else if (strcmp(what, "stub") == 0) {
        print_stubs();
    } else {
        fprintf(stderr, "usage: table_gen rsp|names|stub\n");
        return 2;
    }
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : 1;
}
