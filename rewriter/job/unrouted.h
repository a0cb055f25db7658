/* SPDX-License-Identifier: Apache-2.0
 *
 * unrouted.h: the libraries that a file brings along, that use CUDA, and whose calls nothing
 * routes.
 */
#ifndef REWRITER_JOB_UNROUTED_H
#define REWRITER_JOB_UNROUTED_H

#include "rewriter/job/job.h"

#include <stdio.h>

/* One line for each of them, with the remedy. */
void elf_unrouted_say(FILE *to, const struct elf_job *job);

/* A JSON array of objects with file and why. */
void elf_unrouted_json(FILE *to, const struct elf_job *job);

#endif
