/* SPDX-License-Identifier: Apache-2.0
 *
 * relaid.h: removes the patch from a file that was laid out anew after it was patched, as strip
 * and objcopy do.
 *
 * The complete original cannot come back, since strip has removed parts of it. The result is the
 * file that strip would have made of the original: first the loaded part (everything up to the
 * end of the last loadable segment), bit for bit, which its checksum in the undo note proves;
 * then the remaining sections.
 */
#ifndef REWRITER_JOB_RELAID_H
#define REWRITER_JOB_RELAID_H

#include "rewriter/job/job.h"
#include "rewriter/output/output.h"

/* Writes the new file. 0; -ENOEXEC if the loaded part cannot be proved to be the original's, or
 * the sections do not fit together; or the error of reading and writing. */
int elf_relaid_write(struct elf_job *job, struct elf_output *output, struct gs_err *err);

#endif
