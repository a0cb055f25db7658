/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.h: a few threads that process many files as the options say.
 */
#pragma once

#include "rewriter/job/act.h"
#include "rewriter/tree/walk.h"

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
