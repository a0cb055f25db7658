/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h: what moves when the program header table grows in place.
 */
#ifndef REWRITER_PLAN_BLOCK_H
#define REWRITER_PLAN_BLOCK_H

#include "rewriter/plan/plan.h"

/* Sets plan->block. 0; -ENOENT: the table cannot grow in place; another negative errno. */
int elf_plan_block(struct elf_plan *plan);

#endif
