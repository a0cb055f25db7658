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

/* Finds the runtime library: `wanted` if not NULL, else beside this tool (build tree, then
 * installation), else the configured place. The path is absolute; links in it stay as they are.
 * -ENOENT if nothing is there and force is not set. */
int elf_location_find(char path[PATH_MAX], const char *wanted, bool force, struct gs_err *err);
/* Whether a folder on that absolute path is a link; `real` gets where the path leads now. */
bool elf_location_leads(const char *path, char real[PATH_MAX]);
/* Whether the library is made for that ELF machine, which is the machine of the file `name`. 0;
 * -ENOENT, or the error of opening it. */
int elf_location_check(const char *path, const char *name, unsigned machine,
                       struct gs_err *err);
/* Whether `name` is a link that leads out of a Python environment, or leads to such a link;
 * `real` is the file at its end. `environment` gets the environment's folder, else "". */
bool elf_environment_left(const char *name, const char *real, char environment[PATH_MAX]);
/* Whether a file of that name is a Python interpreter: python, python3.11, python3.13t
 * (free-threaded), python3.12d (debug), pypy3. */
bool elf_environment_is_python(const char *path);
