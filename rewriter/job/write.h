/* SPDX-License-Identifier: Apache-2.0
 *
 * write.h: the new file of a job: the patched file, or the original again.
 */
#pragma once

#include "rewriter/job/job.h"

/* The file as it is, without our changes if it has any (and strip did not lay it out anew
 * since). Valid until elf_job_deinit(). */
struct elf_source elf_job_original(const struct elf_job *job);

/* Carries out the plan, and adds the file to the list of patched files. If the list cannot be
 * written, that is noted (`unlisted`) and is no failure. */
int elf_job_write(struct elf_job *job, struct gs_err *err);

/* Adds what `listed` has to the list of patched files. */
void elf_job_list(struct elf_job *job);

/* Restores the original. -ENODATA if it is not patched. */
int elf_job_restore(struct elf_job *job, struct gs_err *err);
