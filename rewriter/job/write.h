/* SPDX-License-Identifier: Apache-2.0
 *
 * write.h: the new file of a job: the patched one, or the original again.
 */
#ifndef REWRITER_JOB_WRITE_H
#define REWRITER_JOB_WRITE_H

#include "rewriter/job/job.h"

/* The file as it is, with our changes taken back if it has any (and strip did not lay it out
 * anew since). Of use until elf_job_deinit(). */
struct elf_source elf_job_original(const struct elf_job *job);

/* Carries out the plan, and adds the file to the list of patched ones; a list that cannot be
 * written is no reason to fail (`unlisted`). */
int elf_job_write(struct elf_job *job, struct gs_err *err);

/* Adds what `listed` has to the list of patched files. */
void elf_job_list(struct elf_job *job);

/* Gives the original back. -ENODATA when it is not patched. */
int elf_job_restore(struct elf_job *job, struct gs_err *err);

#endif
