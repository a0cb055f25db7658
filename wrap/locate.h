/* SPDX-License-Identifier: Apache-2.0
 *
 * locate.h: where the real compiler, libgpushare and the list of wrapped names are.
 */
#ifndef GS_WRAP_LOCATE_H
#define GS_WRAP_LOCATE_H

#include "wrap/args.h"
#include "wrap/phase.h"

#include <limits.h>

struct gs_runtime_files {
    char library[PATH_MAX]; /* libgpushare.so.1, absolute */
    char folder[PATH_MAX];  /* the library's folder, for the program's run path */
    char list[PATH_MAX];    /* wrap.rsp: one --wrap=NAME a line */
};

/* Finds the files from the place of this program: first as in the build tree, then as installed.
 * library (may be NULL) replaces the library that would be found. 0, or a negative errno with
 * err saying which file is missing and what to do. */
int gs_locate_runtime(const char *library, struct gs_runtime_files *files, struct gs_err *err);

/* Appends the words of the real compiler's command: asked (may be NULL: --gpushare-compiler),
 * else GPUSHARE_CC, GPUSHARE_CXX or GPUSHARE_NVCC, else cc, c++ or nvcc. The first word becomes
 * a path. gpushare-cc itself is skipped on PATH, and refused if it is named. 0 or a negative
 * errno with err filled. */
int gs_locate_compiler(enum gs_compiler compiler, const char *asked, struct gs_args *command,
                       struct gs_err *err);

#endif
