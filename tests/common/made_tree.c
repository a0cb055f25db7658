/* SPDX-License-Identifier: Apache-2.0
 *
 * made_tree.c: owns the folder with the made-up files. One thread.
 */
#include "tests/common/made_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TEMPLATE "/tmp/gs-test-tree-XXXXXX"

char made_tree[sizeof TEMPLATE];

int made_tree_begin(void **state)
{
    (void)state;
    memcpy(made_tree, TEMPLATE, sizeof made_tree);
    return mkdtemp(made_tree) != NULL ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

int made_tree_end(void **state)
{
    (void)state;
    return nftw(made_tree, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void made_tree_put(const char *path, const char *text)
{
    char full[8192];
    FILE *file;

    snprintf(full, sizeof full, "%s%s", made_tree, path);
    for (char *at = full + sizeof made_tree; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        if (mkdir(full, 0700) != 0)
            assert_int_equal(errno, EEXIST);
        *at = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}
