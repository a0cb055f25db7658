/* SPDX-License-Identifier: Apache-2.0
 *
 * phase.h: tells whether a compiler command line links, or stops before that.
 */
#pragma once

#include "wrap/args.h"

#include <stdbool.h>

enum gs_compiler {
    GS_COMPILER_CC,
    GS_COMPILER_CXX,
    GS_COMPILER_NVCC,
};

struct gs_phase {
    bool links;      /* the command runs the linker and makes a program or a shared library */
    bool is_static;  /* and a fully static program (-static, -static-pie) */
    bool clang_host; /* nvcc: -ccbin names a clang */
};

/* Reads the words of a command line (without the compiler's name), response files included.
 * 0; or a negative errno with err filled. Changes nothing. */
int gs_phase_read(enum gs_compiler compiler, const struct gs_args *args, struct gs_phase *phase,
                  struct gs_err *err);
