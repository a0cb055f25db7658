/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the command line of gpushare-patch.
 */
#ifndef REWRITER_JOB_OPTIONS_H
#define REWRITER_JOB_OPTIONS_H

#include "rewriter/output/folder_entry.h"
#include "rewriter/plan/plan.h"

#include <stdbool.h>
#include <stdio.h>

#define ELF_EXCLUDES_MAX 64

struct elf_options {
    bool list, restore_all, repatch, all_users; /* of the list of patched files */
    bool print, check, restore, dry_run, json, force, any, quiet, no_sync, help, version;
    const char *output;  /* -o, or NULL */
    const char *runtime; /* --runtime, or NULL */
    const char *scope_text;
    const char *fault_text, *fault_byte_text; /* test build only */
    const char *tree, *venv;                  /* folder, or NULL */
    const char *excludes[ELF_EXCLUDES_MAX];
    size_t exclude_count;
    const char *jobs_text;
    unsigned jobs;      /* threads for --tree and --venv */
    const char *origin; /* set by --venv: the folder that a copy was made from, see plan.h */
    bool programs_only; /* set by --venv: the interpreter routes for its libraries */
    bool listed;        /* set by undo/: tree or venv is a path of the list; no link on it is
                         * followed, and root changes no folder of another user */
    /* Set by --tree and --venv: FILE and OUT are below this and no link is followed to them;
     * NULL: they are wherever their names lead. */
    const struct elf_root *root, *output_root;
    enum elf_scope scope;
    char **files;
    int file_count;
};

/* Reads the command line. 0, or -EINVAL with err saying what is wrong. */
int elf_options_parse(struct elf_options *options, int argc, char **argv, struct gs_err *err);
void elf_options_help(FILE *to);
/* Prints what a shell may offer for the last word (common/complete.h). The exit code. */
int elf_options_complete(int argc, char **argv);

#endif
