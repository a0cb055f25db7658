/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.h: lists the files below a folder that gpushare-patch may have to change, and acts on them with
 * several threads.
 */
#pragma once

#include "rewriter/job/act.h"

/* Paths, each owned. */
struct elf_paths {
    char **list;
    size_t count, room;
};

struct elf_walk {
    struct elf_paths files;     /* ELF programs and libraries */
    struct elf_paths leftovers; /* of runs that were killed, see output.h */
    struct elf_paths records; /* RECORD of *.dist-info: lists of a wheel's files with hashes */
};

/* Copies path behind the others. 0 or -ENOMEM. */
int elf_paths_add(struct elf_paths *paths, const char *path);
void elf_paths_deinit(struct elf_paths *paths);
void elf_paths_sort(struct elf_paths *paths);

/* Whether the options exclude this path below the folder, or a folder on the way to it. */
bool elf_walk_excludes(const struct elf_options *options, const char *below);

/* Looks at everything below the root, follows no links, and leaves out what the options
 * exclude. Full paths, sorted. 0 or a negative errno; walk must be deinited in any case. */
int elf_walk(struct elf_walk *walk, const struct elf_root *root,
             const struct elf_options *options, struct gs_err *err);
void elf_walk_deinit(struct elf_walk *walk);

/* What the libraries below a folder bring along from elsewhere, and what no patch of a
 * library can route. */

/* Names on stderr each library that uses CUDA, whose calls are routed only in a patched
 * program: a library that these load from outside the root, and a library of these that
 * imports nothing to route. With --venv the interpreter routes for all of them. */
void elf_outside_say(const struct elf_root *root, const struct elf_paths *libraries,
                     const struct elf_options *options);

struct elf_parallel {
    const struct elf_options *options; /* of each file; its jobs is the number of threads */
    const struct elf_paths *files;     /* full paths */
    const char *what;                  /* for the progress line */
    bool silent;                       /* only results count */
    bool every;                        /* report errors of files that do not reach CUDA, too */
    enum elf_exit *results;            /* of each file, once it ran */
    bool *reaches;                     /* whether it reaches CUDA */
};

/* Acts on every file; reports to stdout and stderr, with the lines of one file together. Several
 * names of one file stay names of one file when it is changed. -ENOMEM before anything was done.
 * parallel must be deinited in any case. */
int elf_parallel_run(struct elf_parallel *parallel);
void elf_parallel_deinit(struct elf_parallel *parallel);
