/* SPDX-License-Identifier: Apache-2.0
 *
 * args.h: a growing list of command line words, as gpushare-cc reads, builds and prints them.
 */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct gs_args {
    char **item; /* count words that the list owns, then NULL; NULL while it is empty */
    size_t count, capacity;
};

/* Frees the words and the list; it is empty afterwards. Accepts NULL and an empty list. */
void gs_args_deinit(struct gs_args *args);

/* Appends one word, formatted. 0 or -ENOMEM. */
int gs_args_push(struct gs_args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends the words of text, cut at blanks as response files and NVCC_APPEND_FLAGS are: '…' and
 * "…" keep blanks, \x is x (but not inside '…'). 0 or -ENOMEM. */
int gs_args_split(struct gs_args *args, const char *text);

/* Appends the words of a response file (the FILE of a compiler's @FILE). 0; -ENOENT if there is
 * no such file (compilers then take the word literally); another -errno with err filled. */
int gs_args_read(struct gs_args *args, const char *path, struct gs_err *err);

/* Prints the words with a blank between them, quoted so that a shell reads back the same words.
 */
void gs_args_print(const struct gs_args *args, FILE *out);

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
