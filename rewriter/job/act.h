/* SPDX-License-Identifier: Apache-2.0
 *
 * act.h: processes one file as the options say.
 */
#pragma once

#include "rewriter/job/job.h"

/* Patches, restores, checks or prints one file. Reports go to `out`, errors to `errors`, one
 * line each. reaches_cuda (may be NULL) gets whether the file was read and uses CUDA. Any
 * thread. */
enum elf_exit elf_act(const char *name, const struct elf_options *options, FILE *out,
                      FILE *errors, bool *reaches_cuda);

/* The graver of two results: 1, 2, 3, 4, 0. */
enum elf_exit elf_exit_graver(enum elf_exit a, enum elf_exit b);

/* The file as it is, without our changes if it has any (and strip did not lay it out anew
 * since). Valid until elf_job_deinit(). */
struct elf_source elf_job_original(const struct elf_job *job);

/* Restores the original. -ENODATA if it is not patched. */
int elf_job_restore(struct elf_job *job, struct gs_err *err);
