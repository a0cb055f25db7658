/* SPDX-License-Identifier: Apache-2.0
 *
 * locate.h: where the real compiler, libgpushare and the list of wrapped names are.
 */
#ifndef GS_WRAP_CC_LOCATE_H
#define GS_WRAP_CC_LOCATE_H

#include "wrap/cc/args.h"
#include "wrap/cc/phase.h"

#include <limits.h>

struct gs_runtime_files {
    char library[PATH_MAX]; /* libgpushare.so.1, absolute */
    char folder[PATH_MAX];  /* of the library: what the program's run path gets */
    char list[PATH_MAX];    /* wrap.rsp: one --wrap=NAME a line */
};

/* Fills files from the place of this program: first the build tree's layout, then the installed
 * one. library (may be NULL) replaces the first of them. 0, or a negative errno with err saying
 * which file is missing and what to do. */
int gs_locate_runtime(const char *library, struct gs_runtime_files *files, struct gs_err *err);

/* Appends the words of the real compiler's command: asked (may be NULL: --gpushare-compiler),
 * else GPUSHARE_CC, GPUSHARE_CXX or GPUSHARE_NVCC, else cc, c++ or nvcc. The first word becomes
 * a path. gpushare-cc itself is passed over on PATH and refused where it is named. 0 or a
 * negative errno with err filled. */
int gs_locate_compiler(enum gs_compiler compiler, const char *asked, struct gs_args *command,
                       struct gs_err *err);

#endif
