/* SPDX-License-Identifier: Apache-2.0
 *
 * versions.c: what a CUDA runtime gets from cuGetProcAddress through libgpushare, on the
 * simulated driver of the version that SIMCUDA_DRIVER_VERSION says.
 *
 *   versions FILE
 *
 * FILE has the look-ups that one of NVIDIA's runtimes was seen to make, `name version flags` a
 * line (lookups/, and tests/simcudart/lookups.txt). Each answer must be of the row that a driver
 * of that version has: the newest one that is no newer than the request and the driver. Then it
 * prints how many answers were gpushare's own. Exit 0; 1 with a line for each wrong answer.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

struct row {
    const char *symbol, *base, *variant;
    int since;
};

/* each kind by itself: passed on, a name would become what cuda.h defines it as */
#define GS_PASS(symbol, base, since, variant, family)      {#symbol, #base, #variant, since},
#define GS_GATE(symbol, base, since, variant, family, ...) {#symbol, #base, #variant, since},
#define GS_SYNC(symbol, base, since, variant, family, ...) {#symbol, #base, #variant, since},
#define GS_ROOM(symbol, base, since, variant, family, ...) {#symbol, #base, #variant, since},
#define GS_HOOK(symbol, base, since, variant, family)      {#symbol, #base, #variant, since},
static const struct row rows[] = {
#include "wrap/driver_api.def"
};

#define PREFIX "__wrap_"

/* What the driver must give; NULL: nothing. */
static const struct row *find_expected(const char *base, int version, bool per_thread)
{
    const struct row *plain = NULL, *thread = NULL;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row **best = rows[i].variant[0] != '\0' ? &thread : &plain;

        if (strcmp(rows[i].base, base) == 0 && rows[i].since <= version &&
            (*best == NULL || (*best)->since < rows[i].since))
            *best = &rows[i];
    }
    return per_thread && thread != NULL ? thread : plain;
}

/* The name of the function at an address, without gpushare's prefix. */
static const char *name_of(const void *function, bool *ours)
{
    Dl_info info;

    if (dladdr(function, &info) == 0 || info.dli_sname == NULL)
        return "a function without a name";
    *ours = info.dli_fname != NULL && strstr(info.dli_fname, "libgpushare") != NULL;
    return strncmp(info.dli_sname, PREFIX, sizeof PREFIX - 1) == 0
               ? info.dli_sname + sizeof PREFIX - 1
               : info.dli_sname;
}

static unsigned ours_count;

static bool look_up(const char *base, int version, int flags, int driver)
{
    const struct row *row =
        find_expected(base, version < driver ? version : driver, (flags & 2) != 0);
    void *function = NULL;
    const CUresult result = cuGetProcAddress(base, &function, version, (cuuint64_t)flags, NULL);
    bool ours = false;
    const char *name = function != NULL ? name_of(function, &ours) : "nothing";
    const char *right = row != NULL ? row->symbol : "nothing";

    if ((result == CUDA_SUCCESS) == (function != NULL) && strcmp(name, right) == 0) {
        ours_count += ours;
        return true;
    }
    fprintf(stderr, "%s at %d, flags %d, driver %d: %s (CUresult %d), must be %s\n", base,
            version, flags, driver, name, (int)result, right);
    return false;
}

int main(int argc, char **argv)
{
    char line[256], name[128];
    int version, flags, driver = 0;
    unsigned wrong = 0, lines = 0;
    FILE *file = argc == 2 ? fopen(argv[1], "re") : NULL;

    if (file == NULL || cuInit(0) != CUDA_SUCCESS ||
        cuDriverGetVersion(&driver) != CUDA_SUCCESS) {
        fprintf(stderr, "usage: versions FILE, on the simulated driver\n");
        return 2;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        /* NOLINTNEXTLINE(cert-err34-c): a file of ours, small numbers */
        if (sscanf(line, "%127s %d %d", name, &version, &flags) != 3 || name[0] == '"')
            continue;
        lines++;
        wrong += !look_up(name, version, flags, driver);
    }
    fclose(file);
    printf("driver %d: %u look-ups, %u answered with gpushare's own functions, %u wrong\n",
           driver, lines, ours_count, wrong);
    return wrong != 0 || lines < 300 || ours_count < 100;
}
