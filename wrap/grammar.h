/* SPDX-License-Identifier: Apache-2.0
 *
 * grammar.h: the options of compilers that decide whether a command links, and those whose value
 * is the next word (so that in "-o -c" the -c is a file).
 */
#ifndef GS_WRAP_GRAMMAR_H
#define GS_WRAP_GRAMMAR_H

/* The options of one family of compilers. Every list ends with NULL. */
struct gs_grammar {
    const char *const *stop;        /* words that end the work before the link */
    const char *const *stop_prefix; /* beginnings of such words */
    const char *const *value;       /* words whose value is the next word */
    const char *const *file;        /* words whose next word (or "=...") is a response file */
    const char *const *header;      /* endings of inputs that are compiled to a .gch */
};

extern const char *const gs_grammar_none[]; /* the empty list */
extern const struct gs_grammar gs_grammar_gcc, gs_grammar_nvcc;

#endif
