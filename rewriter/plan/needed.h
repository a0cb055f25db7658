/* SPDX-License-Identifier: Apache-2.0
 *
 * needed.h: the runtime library as the first DT_NEEDED.
 */
#ifndef REWRITER_PLAN_NEEDED_H
#define REWRITER_PLAN_NEEDED_H

#include "rewriter/plan/plan.h"

/* The two steps return 0, or a negative errno with err filled. */
int elf_plan_needed(struct elf_plan *plan, struct gs_err *err);
int elf_plan_needed_finish(struct elf_plan *plan);

#endif
