/* SPDX-License-Identifier: Apache-2.0
 *
 * test_table.c: holds wrap/driver_api.def against the installed toolkit: the stub libcuda's
 * exports and the prototypes of cudaTypedefs.h. A row that is missing, twice there, in the
 * wrong place or of the wrong type fails here (the types already when this file is compiled).
 */
#include "tests/wrap/table.h"

#include <ctype.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gelf.h>

#include "common/fd.h"
#include "wrap/newer_types.h"

const struct table_row table_rows[] = {
#define GS_API(symbol, base, since, variant, family, class)                                    \
    {#symbol, #base, since, #variant, #family, #class},
#include "wrap/driver_api.def"
};

const size_t table_row_count = sizeof table_rows / sizeof *table_rows;

#if defined(GS_API) || defined(GS_PASS) || defined(GS_GATE) || defined(GS_SYNC) ||             \
    defined(GS_ROOM) || defined(GS_HOOK)
#error "driver_api.def must leave no macro of its own behind"
#endif

static int compare_row(const void *key, const void *row)
{
    return strcmp(key, ((const struct table_row *)row)->symbol);
}

static const struct table_row *find_row(const char *symbol)
{
    return bsearch(symbol, table_rows, table_row_count, sizeof *table_rows, compare_row);
}

static void rows_are_in_strcmp_order_without_repeats(void **state)
{
    (void)state;
    for (size_t i = 1; i < table_row_count; i++)
        if (strcmp(table_rows[i - 1].symbol, table_rows[i].symbol) >= 0)
            fail_msg("%s stands before %s; rows are in strcmp order, each once",
                     table_rows[i - 1].symbol, table_rows[i].symbol);
}

static void rows_of_one_function_have_one_class(void **state)
{
    (void)state;
    for (size_t i = 0; i < table_row_count; i++) {
        const struct table_row *row = &table_rows[i], *plain;
        char symbol[128];

        if (*row->variant == '\0')
            continue;
        snprintf(symbol, sizeof symbol, "%.*s",
                 (int)(strlen(row->symbol) - strlen(row->variant)), row->symbol);
        plain = find_row(symbol);
        if (plain == NULL)
            fail_msg("%s has no row %s beside it", row->symbol, symbol);
        else if (strcmp(plain->class, row->class) != 0)
            fail_msg("%s is %s but %s is %s", row->symbol, row->class, plain->symbol,
                     plain->class);
    }
}

static void rows_have_known_family_and_plausible_version(void **state)
{
    static const char families[] =
        " LAUNCH COPY SET WORK EVENT ALLOC MODULE CTX CAPTURE SYNC QUERY INIT "
        "RESOLVE CKPT OTHER ";

    (void)state;
    for (size_t i = 0; i < table_row_count; i++) {
        const struct table_row *row = &table_rows[i];
        char word[32];

        snprintf(word, sizeof word, " %s ", row->family);
        if (strstr(families, word) == NULL)
            fail_msg("%s: no such family %s", row->symbol, row->family);
        if (row->since < 2000 || row->since > GS_TABLE_VERSION || row->since % 10 != 0)
            fail_msg("%s: since %u; wanted 2000 to %u", row->symbol, row->since,
                     GS_TABLE_VERSION);
        if (*row->variant != '\0' && strcmp(row->variant, "_ptsz") != 0 &&
            strcmp(row->variant, "_ptds") != 0)
            fail_msg("%s: no such variant %s", row->symbol, row->variant);
    }
}

/* How many plain forms of base are older than since (its _v number less one), or, for a variant
 * (counting those as old as since too), how many there are up to since. */
static unsigned forms_before(const char *base, unsigned since, bool inclusive)
{
    unsigned n = 0;

    for (size_t i = 0; i < table_row_count; i++)
        n += *table_rows[i].variant == '\0' && strcmp(table_rows[i].base, base) == 0 &&
             (table_rows[i].since < since || (inclusive && table_rows[i].since == since));
    return n;
}

/* CUDART.md: a base name's versions in order: the first is the plain symbol, then _v2, _v3, …;
 * a variant hangs on the newest at or below its own version. */
static void symbols_are_base_and_version_number_and_variant(void **state)
{
    (void)state;
    for (size_t i = 0; i < table_row_count; i++) {
        const struct table_row *row = &table_rows[i];
        unsigned number = *row->variant == '\0' ? forms_before(row->base, row->since, false) + 1
                                                : forms_before(row->base, row->since, true);
        char want[128];

        if (number <= 1)
            snprintf(want, sizeof want, "%s%s", row->base, row->variant);
        else
            snprintf(want, sizeof want, "%s_v%u%s", row->base, number, row->variant);
        if (strcmp(want, row->symbol) != 0)
            fail_msg("%s: its columns (%s, %u, %s) make %s", row->symbol, row->base, row->since,
                     row->variant, want);
    }
}

/* One PFN_<base>_v<since><variant> of a header must be one row. Returns whether name is one. */
static bool check_typedef(const char *name)
{
    const char *version = NULL;
    char base[128], *end;
    unsigned long since;

    for (const char *p = name; (p = strstr(p, "_v")) != NULL; p++)
        if (isdigit((unsigned char)p[2]))
            version = p;
    if (version == NULL)
        return false;
    since = strtoul(version + 2, &end, 10);
    snprintf(base, sizeof base, "%.*s", (int)(version - name), name);
    for (size_t i = 0; i < table_row_count; i++) {
        const struct table_row *row = &table_rows[i];

        if (row->since == since && strcmp(row->base, base) == 0 &&
            strcmp(row->variant, end) == 0)
            return true;
    }
    fail_msg("PFN_%s of the toolkit's headers has no row (base %s, since %lu, variant '%s')",
             name, base, since, end);
    return false;
}

static size_t check_header(const char *file)
{
    char path[512], line[4096], name[128];
    size_t n = 0;
    FILE *in;

    snprintf(path, sizeof path, "%s/%s", GS_CUDA_INCLUDE, file);
    in = fopen(path, "r");
    if (in == NULL)
        fail_msg("%s cannot be read", path);
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        const char *found = strstr(line, "*PFN_");

        /* "typedef CUresult (CUDAAPI *PFN_x_v1)(…", indented or not; not the macros */
        if (strncmp(line + strspn(line, " "), "typedef ", 8) == 0 && found != NULL &&
            sscanf(found, "*PFN_%127[A-Za-z0-9_])(", name) == 1)
            n += check_typedef(name);
    }
    if (in != NULL)
        fclose(in);
    return n;
}

static size_t count_rows_until(unsigned version)
{
    size_t n = 0;

    for (size_t i = 0; i < table_row_count; i++)
        n += table_rows[i].since <= version;
    return n;
}

static void typedefs_of_the_toolkit_all_have_a_row(void **state)
{
    size_t n = check_header("cudaTypedefs.h") + check_header("cudaProfilerTypedefs.h");

    (void)state;
    /* and no row is without one: table_types.c would not compile */
    assert_in_range(n, count_rows_until(13000), table_row_count);
}

static void rows_go_up_to_the_version_of_the_table(void **state)
{
    (void)state;
    assert_int_equal(count_rows_until(GS_TABLE_VERSION), table_row_count);
    assert_true(count_rows_until(GS_TABLE_VERSION - 1) < table_row_count);
}

/* Calls visit for each defined function that the library exports; returns how many. */
static size_t visit_exports(Elf *elf, void (*visit)(const char *, bool *), bool *seen)
{
    Elf_Scn *section = NULL;
    size_t n = 0;

    while ((section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        Elf_Data *data = elf_getdata(section, NULL);

        if (gelf_getshdr(section, &header) == NULL || header.sh_type != SHT_DYNSYM ||
            data == NULL)
            continue;
        for (int i = 1; i < (int)(header.sh_size / header.sh_entsize); i++) {
            GElf_Sym symbol;
            const char *name;

            if (gelf_getsym(data, i, &symbol) == NULL || symbol.st_shndx == SHN_UNDEF ||
                GELF_ST_TYPE(symbol.st_info) != STT_FUNC)
                continue;
            name = elf_strptr(elf, header.sh_link, symbol.st_name);
            if (name == NULL || strncmp(name, "cu", 2) != 0)
                continue;
            visit(name, seen);
            n++;
        }
    }
    return n;
}

static void mark_row(const char *name, bool *seen)
{
    const struct table_row *row = find_row(name);

    if (row == NULL)
        fail_msg("libcuda exports %s, but driver_api.def has no row for it", name);
    else
        seen[row - table_rows] = true;
}

static void exports_of_the_driver_and_rows_are_the_same(void **state)
{
    GS_CLOSE_FD int fd = open(GS_CUDA_STUB, O_RDONLY | O_CLOEXEC);
    GS_FREE bool *seen = calloc(table_row_count, sizeof *seen);
    Elf *elf;
    size_t n;

    (void)state;
    if (fd < 0) {
        print_message(
            "no stub libcuda.so in this toolkit (NVIDIA's wheels have none): compared "
            "with cudaTypedefs.h only\n");
        skip();
    }
    assert_non_null(seen);
    assert_int_not_equal(elf_version(EV_CURRENT), EV_NONE);
    elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    assert_non_null(elf);
    n = visit_exports(elf, mark_row, seen);
    elf_end(elf);
    for (size_t i = 0; i < table_row_count; i++)
        if (!seen[i] && table_rows[i].since <= GS_CUDA_VERSION)
            fail_msg("driver_api.def has a row for %s, but libcuda does not export it",
                     table_rows[i].symbol);
    assert_int_equal(n, count_rows_until(GS_CUDA_VERSION));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_strcmp_order_without_repeats),
        cmocka_unit_test(rows_of_one_function_have_one_class),
        cmocka_unit_test(rows_have_known_family_and_plausible_version),
        cmocka_unit_test(symbols_are_base_and_version_number_and_variant),
        cmocka_unit_test(rows_go_up_to_the_version_of_the_table),
        cmocka_unit_test(typedefs_of_the_toolkit_all_have_a_row),
        cmocka_unit_test(exports_of_the_driver_and_rows_are_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
