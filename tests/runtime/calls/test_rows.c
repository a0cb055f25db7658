/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rows.c: driver.c's look-ups in the table: by exported name, and by (base name, version,
 * per-thread flag) as cuGetProcAddress is asked. Reads the list of what NVIDIA's cudart asks
 * for (GS_LOOKUPS). One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/calls/rows.h"

static const struct {
    const char *base;
    int version, per_thread;
    const char *symbol; /* NULL: there is none */
} cases[] = {
    {"cuCtxCreate", 2000, 0, "cuCtxCreate"},
    {"cuCtxCreate", 3010, 0, "cuCtxCreate"},
    {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
    {"cuCtxCreate", 11030, 0, "cuCtxCreate_v2"},
    {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
    {"cuCtxCreate", 12040, 0, "cuCtxCreate_v3"},
    {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
    {"cuCtxCreate", 13000, 2, "cuCtxCreate_v4"},
    {"cuCtxCreate", 1000, 0, NULL},
    {"cuCtxGetDevice", 2000, 0, "cuCtxGetDevice"},
    {"cuCtxGetDevice", 12090, 0, "cuCtxGetDevice"},
    {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
    {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
    {"cuMemAlloc", 3010, 0, "cuMemAlloc"},
    {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
    {"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
    {"cuGetProcAddress", 11020, 0, NULL},
    {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
    {"cuGetProcAddress", 11080, 0, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
    {"cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 11030, 2, "cuStreamGetCaptureInfo_v2_ptsz"},
    {"cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
    {"cuMemcpyHtoD", 2000, 0, "cuMemcpyHtoD"},
    {"cuMemcpyHtoD", 3020, 2,
     "cuMemcpyHtoD_v2"}, /* there was no per-thread stream before 7.0 */
    {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
    {"cuMemcpyHtoD", 7000, 0, "cuMemcpyHtoD_v2"},
    {"cuLaunchKernel", 4000, 2, "cuLaunchKernel"},
    {"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"},
    {"cuInit", 2000, 0, "cuInit"},
    {"cuInit", 2000, 2, "cuInit"},
    {"cuMemAlloc_v2", 13000, 0, NULL}, /* an exported name, not a base name */
    {"cuMemAll", 13000, 0, NULL},
    {"cuMemAllocX", 13000, 0, NULL},
    {"cu", 13000, 0, NULL},
    {"", 0, 0, NULL},
    {"", 13000, 0, NULL},
    {"cure_me", 13000, 0, NULL},
    {"zzz", 13000, 0, NULL},
};

static void row_by_base_interesting_names_get_their_abi(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct gs_row *row =
            gs_row_by_base(cases[i].base, cases[i].version, cases[i].per_thread != 0);
        const char *symbol = row != NULL ? row->symbol : "none";

        if (strcmp(symbol, cases[i].symbol != NULL ? cases[i].symbol : "none") != 0)
            fail_msg("%s at %d flags %d: %s", cases[i].base, cases[i].version,
                     cases[i].per_thread, symbol);
    }
}

static void row_by_symbol_finds_every_row_and_nothing_else(void **state)
{
    static const char *const unknown[] = {"",        "cu",  "cuInitX", "cuIni",
                                          "cure_me", "aaa", "zzz",     "cuMemAlloc_v3"};

    (void)state;
    for (size_t i = 0; i < GS_ROW_COUNT; i++) {
        assert_ptr_equal(gs_row_by_symbol(gs_rows[i].symbol), &gs_rows[i]);
        if (i > 0)
            assert_true(strcmp(gs_rows[i - 1].symbol, gs_rows[i].symbol) < 0);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_null(gs_row_by_symbol(unknown[i]));
}

/* each row is what its own (base, since, variant) means; a newer version never gives an older
 * ABI */
static void row_by_base_every_row_is_reached(void **state)
{
    (void)state;
    for (size_t i = 0; i < GS_ROW_COUNT; i++) {
        const struct gs_row *row = &gs_rows[i];
        const struct gs_row *found =
            gs_row_by_base(row->base, row->since, row->variant != GS_VARIANT_);

        if (found != row)
            fail_msg("%s: (%s, %d) gives %s", row->symbol, row->base, row->since,
                     found != NULL ? found->symbol : "nothing");
        for (int version = row->since; version <= GS_TABLE_VERSION; version += 10) {
            found = gs_row_by_base(row->base, version, row->variant != GS_VARIANT_);
            assert_non_null(found);
            assert_true(found->since >= row->since && found->since <= version);
        }
    }
}

/* A per-thread caller must not get an older ABI than a plain one: mixing them would break its
 * calls. */
static void row_by_base_per_thread_has_the_same_abi(void **state)
{
    (void)state;
    for (size_t i = 0; i < GS_ROW_COUNT; i++) {
        const int version = gs_rows[i].since < 7000 ? 7000 : gs_rows[i].since;
        const struct gs_row *plain = gs_row_by_base(gs_rows[i].base, version, false);
        const struct gs_row *thread = gs_row_by_base(gs_rows[i].base, version, true);

        assert_non_null(plain);
        assert_non_null(thread);
        if (thread->variant != GS_VARIANT_ &&
            strncmp(thread->symbol, plain->symbol, strlen(plain->symbol)) != 0)
            fail_msg("%s at %d: plain %s, per thread %s", gs_rows[i].base, version,
                     plain->symbol, thread->symbol);
    }
}

static bool is_graphics_interop(const char *name)
{
    return strncmp(name, "cuGraphicsGL", 12) == 0 || strncmp(name, "cuGL", 4) == 0 ||
           strncmp(name, "cuVDPAU", 7) == 0 || strncmp(name, "cuGraphicsVDPAU", 15) == 0 ||
           strncmp(name, "cuEGL", 5) == 0 || strncmp(name, "cuGraphicsEGL", 13) == 0 ||
           strstr(name, "EglFrame") != NULL;
}

static void row_by_base_every_lookup_of_cudart_has_a_row(void **state)
{
    FILE *file = fopen(GS_LOOKUPS, "re");
    char line[256], name[128];
    int version, flags;
    unsigned lines = 0, absent = 0;

    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        lines++;
        if (strncmp(line, "\"\"", 2) == 0) {
            assert_null(gs_row_by_base("", 0, false));
            absent++;
            continue;
        }
        /* NOLINTNEXTLINE(cert-err34-c): a file of ours, small numbers */
        assert_int_equal(sscanf(line, "%127s %d %d", name, &version, &flags), 3);
        if (gs_row_by_base(name, version, (flags & 2) != 0) == NULL) {
            if (!is_graphics_interop(name)) /* a compute-only driver exports none of those, nor
                                               does the stub library */
                fail_msg("no row: %s %d %d", name, version, flags);
            absent++;
        }
    }
    fclose(file);
    assert_int_equal(lines, 440);
    assert_int_equal(absent, 30); /* 29 of graphics, and the empty name */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_by_base_interesting_names_get_their_abi),
        cmocka_unit_test(row_by_symbol_finds_every_row_and_nothing_else),
        cmocka_unit_test(row_by_base_every_row_is_reached),
        cmocka_unit_test(row_by_base_per_thread_has_the_same_abi),
        cmocka_unit_test(row_by_base_every_lookup_of_cudart_has_a_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
