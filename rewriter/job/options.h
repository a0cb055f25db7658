/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the command line of gpushare-patch.
 */
#pragma once

#include "common/options.h"
#include "rewriter/output/folder_entry.h"
#include "rewriter/plan/plan.h"
#include "rewriter/elf/object.h"

/* undo/: the work on the list of patched files */
struct elf_list_options {
    bool list, restore_all, repatch, all_users;
};

/* tree/: the work on a folder */
struct elf_folder_options {
    const char *tree, *venv; /* folder, or NULL */
    struct gs_option_list excludes;
    uint64_t jobs; /* threads */
    bool listed; /* set by undo/: tree or venv is a path of the list; no link on it is followed,
                    * and root changes no folder of another user */
};

/* job/: how one file is treated because of the folder that it is in; set by tree/ and undo/ */
struct elf_within_options {
    /* FILE and OUT are below this and no link is followed to them; NULL: they are wherever their
     * names lead. */
    const struct elf_root *root, *output_root;
    const char *origin; /* the folder that a copy was made from, see plan.h; NULL: no copy */
    bool programs_only; /* the interpreter routes for its libraries */
    const char
        *plugin; /* a library of the tree that uses CUDA, which programs may load; or NULL */
};

struct elf_options {
    bool print, check, restore, dry_run, json, force, any, quiet, no_sync, help, version;
    const char *output;                       /* -o, or NULL */
    const char *runtime;                      /* --runtime, or NULL */
    uint64_t scope;                           /* enum elf_scope */
    const char *fault_text, *fault_byte_text; /* test build only */
    char **files;
    int file_count;
    struct elf_list_options lists;
    struct elf_folder_options folder;
    struct elf_within_options within;
    struct elf_reach
        *reach; /* what was read of other files; NULL: only the file itself counts */
};

extern const struct gs_option elf_options_table[];

/* Reads the command line. 0, or -EINVAL with err saying what is wrong. */
int elf_options_parse(struct elf_options *options, int argc, char **argv, struct gs_err *err);
void elf_options_help(FILE *to);
