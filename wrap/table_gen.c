/* SPDX-License-Identifier: Apache-2.0
 *
 * table_gen.c: writes what other tools need of driver_api.def as text, at build time:
 *   table_gen rsp        one --wrap=NAME a line, for the linker (wrap.rsp)
 *   table_gen names      the wrapped names, one a line
 *   table_gen coverage   docs/coverage.md, of coverage.md.in
 *   table_gen stub       reads the library's version script and writes one line of stub/names.h
 *                        for each exported name
 * dlsym and dlvsym are not the driver's but are wrapped as well: they lead to it. No state.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum row_class { PASS, GATE, SYNC, ROOM, HOOK, CLASS_COUNT };

static const struct row {
    const char *symbol, *base, *family;
    unsigned since;
    enum row_class class;
} rows[] = {
#define GS_API(symbol, base, since, variant, family, class)                                    \
    {#symbol, #base, #family, since, class},
#include "wrap/driver_api.def"
};

#define ROW_COUNT (sizeof rows / sizeof *rows)

static const char *const doors[] = {"dlsym", "dlvsym"};

static const struct {
    const char *name, *meaning;
} classes[CLASS_COUNT] = {
    [PASS] = {"passed", "goes to the driver untouched; never replaced"},
    [GATE] = {"gated",
              "submits GPU work or needs device memory in place: runs inside the gate"},
    [SYNC] = {"noted",
              "waits for GPU work or asks about it: outside the gate, noted as activity"},
    [ROOM] = {"room",
              "may take device memory that cannot be moved: when the card is full, room is "
              "asked for and it is tried again"},
    [HOOK] = {"own", "has a body of its own in runtime/"},
};

static const struct {
    const char *name, *meaning;
} families[] = {
    {"LAUNCH", "Launches"},
    {"COPY", "Copies"},
    {"SET", "Fills"},
    {"WORK", "Other queued work"},
    {"EVENT", "Events between streams"},
    {"ALLOC", "Memory, arrays, textures"},
    {"MODULE", "Modules, libraries, kernels"},
    {"CTX", "Devices' contexts"},
    {"CAPTURE", "Stream capture and graphs"},
    {"SYNC", "Waiting and asking"},
    {"QUERY", "Queries"},
    {"INIT", "Start"},
    {"RESOLVE", "Looking functions up"},
    {"CKPT", "Checkpoints"},
    {"OTHER", "Others"},
};

#define FAMILY_COUNT (sizeof families / sizeof *families)

static void print_names(const char *prefix)
{
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++)
        printf("%s%s\n", prefix, doors[i]);
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (rows[i].class != PASS)
            printf("%s%s\n", prefix, rows[i].symbol);
}

static unsigned count_rows(const char *family, int class)
{
    unsigned n = 0;

    for (size_t i = 0; i < ROW_COUNT; i++)
        n += (family == NULL || strcmp(rows[i].family, family) == 0) &&
             (class == CLASS_COUNT || (int)rows[i].class == class);
    return n;
}

static void print_counts(void)
{
    printf("| family |");
    for (int class = 0; class < CLASS_COUNT; class ++)
        printf(" %s |", classes[class].name);
    printf(" all |\n|---|");
    for (int class = 0; class <= CLASS_COUNT; class ++)
        printf("--:|");
    printf("\n");
    for (size_t f = 0; f <= FAMILY_COUNT; f++) {
        const char *family = f < FAMILY_COUNT ? families[f].name : NULL;

        printf("| %s |", family != NULL ? families[f].meaning : "**all**");
        for (int class = 0; class <= CLASS_COUNT; class ++)
            printf(" %u |", count_rows(family, class));
        printf("\n");
    }
}

/* Prints one line for each base name of a family and class: its symbols, with the version in
 * which each appeared. */
static void print_functions(const char *family, int class)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        bool first = true;

        if (strcmp(rows[i].family, family) != 0 || (int)rows[i].class != class)
            continue;
        for (size_t j = 0; j < i && first; j++)
            first = strcmp(rows[j].base, rows[i].base) != 0 ||
                    strcmp(rows[j].family, family) != 0 || (int)rows[j].class != class;
        if (!first)
            continue;
        printf("- `%s`:", rows[i].base);
        for (size_t j = i; j < ROW_COUNT; j++) {
            if (strcmp(rows[j].base, rows[i].base) != 0 ||
                strcmp(rows[j].family, family) != 0 || (int)rows[j].class != class)
                continue;
            printf("%s `%s` (%u.%u)", j == i ? "" : ",", rows[j].symbol, rows[j].since / 1000,
                   rows[j].since % 1000 / 10);
        }
        printf("\n");
    }
}

static void print_side(void)
{
    static const char *const side[] = {
#define GS_SIDE(base) #base,
#include "wrap/driver_api.def"
    };

    for (size_t i = 0; i < sizeof side / sizeof side[0]; i++)
        printf("- `%s`\n", side[i]);
}

static void print_head(void)
{
    unsigned newest = 0;

    for (size_t i = 0; i < ROW_COUNT; i++)
        newest = rows[i].since > newest ? rows[i].since : newest;
    printf(
        "Every function that libcuda exports (CUDA %u.%u: %zu) and what gpushare does when a "
        "program calls it.\n",
        newest / 1000, newest % 1000 / 10, ROW_COUNT);
}

static void print_classes(void)
{
    for (int class = 0; class < CLASS_COUNT; class ++)
        printf("- **%s** (%u): %s\n", classes[class].name, count_rows(NULL, class),
               classes[class].meaning);
}

static void print_families(void)
{
    print_counts();
    for (size_t f = 0; f < FAMILY_COUNT; f++) {
        printf("\n## %s\n", families[f].meaning);
        for (int class = CLASS_COUNT - 1; class >= 0; class --) {
            if (count_rows(families[f].name, class) == 0)
                continue;
            printf("\n### %s: %s\n\n", families[f].meaning, classes[class].name);
            print_functions(families[f].name, class);
        }
    }
}

/* The page's text, with a list or table in place of each line @NAME. */
static void print_coverage(void)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } parts[] = {{"@head\n", print_head},
                 {"@classes\n", print_classes},
                 {"@families\n", print_families},
                 {"@side\n", print_side}};
    char line[1024];

    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t i = 0;

        while (i < sizeof parts / sizeof *parts && strcmp(line, parts[i].name) != 0)
            i++;
        if (i < sizeof parts / sizeof *parts)
            parts[i].print();
        else
            fputs(line, stdout);
    }
}

/* Prints one exported name: a driver's function with its wrapper, or one of ours, for which a
 * stub has nothing to call. dlsym and dlvsym are written by hand. */
static void print_stub(const char *name)
{
    bool door = false;

    if (strncmp(name, "__wrap_", 7) == 0)
        return; /* printed with its plain name */
    for (size_t i = 0; i < sizeof doors / sizeof *doors; i++)
        door = door || strcmp(name, doors[i]) == 0;
    if (!door)
        printf("%s(%s)\n", strncmp(name, "cu", 2) == 0 ? "GS_STUB" : "GS_STUB_OURS", name);
}

static void print_stubs(void)
{
    static const char between[] = " \t\n{};:";
    char line[1024];

    while (fgets(line, sizeof line, stdin) != NULL)
        for (char *word = strtok(line, between); word != NULL; word = strtok(NULL, between)) {
            if (strcmp(word, "local") == 0)
                return;
            if (strcmp(word, "global") != 0)
                print_stub(word);
        }
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    if (strcmp(what, "rsp") == 0) {
        print_names("--wrap=");
    } else if (strcmp(what, "names") == 0) {
        print_names("");
    } else if (strcmp(what, "coverage") == 0) {
        print_coverage();
    } else if (strcmp(what, "stub") == 0) {
        print_stubs();
    } else {
        fprintf(stderr, "usage: table_gen rsp|names|coverage|stub\n");
        return 2;
    }
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : 1;
}
