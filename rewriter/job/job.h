/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h: one file on its way through gpushare-patch.
 */
#pragma once

#include "rewriter/job/options.h"
#include "rewriter/elf/search.h"
#include "rewriter/output/registry.h"

#include <sys/stat.h>

struct elf_job {
    const struct elf_options *options;
    const char *name;           /* as the user gave it */
    char path[PATH_MAX];        /* symlinks resolved */
    struct elf_entry entry;     /* of path */
    char environment[PATH_MAX]; /* the Python environment that `name` leads out of, or "" */
    int fd;                     /* of the file as it is, read only */
    struct stat stat;
    struct elf_source raw; /* the file as it is */
    enum elf_note_state patched;
    struct elf_note note;   /* valid if patched */
    struct elf_image image; /* of the original */
    struct elf_facts facts;
    struct elf_way way; /* to CUDA, if it does not use CUDA by itself */
    bool is_closed;     /* it calls the driver, and cannot be read as an image (static) */
    enum elf_scope scope;
    char runtime[PATH_MAX];
    struct timespec changed; /* the time of the original's last change, if it is known */
    char origin[PATH_MAX];   /* what $ORIGIN becomes, see plan.h; "" if it stays */
    char marker[ELF_MARKER_TEXT_MAX];
    struct elf_plan plan;
    struct elf_listed listed; /* of the patched file, for the list of all of them */
    bool group_lost;          /* the new file has another group than the old file */
    bool signed_before;       /* the original has an IMA or EVM signature */
    struct gs_err unlisted;   /* why it is not in that list */
};

enum elf_exit {
    ELF_EXIT_DONE = 0,
    ELF_EXIT_FAILED = 1,
    ELF_EXIT_USAGE = 2,
    ELF_EXIT_UNSUPPORTED = 3,
    ELF_EXIT_NOTHING = 4
};

/* The exit status for an error: -ENOEXEC gives 3, -ENODATA 4, every other one 1. */
enum elf_exit elf_exit_of(int error);

/* Opens the file and looks for our note. job must be deinited even after an error. */
int elf_job_open(struct elf_job *job, const char *name, const struct elf_options *options,
                 struct gs_err *err);
/* Reads the original behind the file: image, facts, scope. */
int elf_job_read(struct elf_job *job, struct gs_err *err);
/* Whether the file uses CUDA by itself or in another way. */
bool elf_job_reaches(const struct elf_job *job);
/* Decides whether there is something to do: -ENODATA if not, -ENOEXEC if it must not be done. */
int elf_job_decide(struct elf_job *job, struct gs_err *err);
/* -ENOEXEC if the file lies outside the Python environment to which its name belongs, and so
 * must not be changed by that name. */
int elf_job_refuse_left(const struct elf_job *job, struct gs_err *err);
/* Makes the plan. */
int elf_job_plan(struct elf_job *job, struct gs_err *err);
/* Whether the file is patched just as these options would do it. */
bool elf_job_is_current(struct elf_job *job);
/* Reads a patched file as it is now. 0; -ENOEXEC when it is damaged, or strip broke it. */
int elf_job_read_now(const struct elf_job *job, struct elf_image *now, struct gs_err *err);
/* Whether a patched file still loads the library that its marker names. 0; -ENOEXEC if somebody
 * has edited that away, or if the file is damaged. */
int elf_job_loads_runtime(const struct elf_job *job, struct gs_err *err);
void elf_job_deinit(struct elf_job *job);
