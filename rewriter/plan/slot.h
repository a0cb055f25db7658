/* SPDX-License-Identifier: Apache-2.0
 *
 * slot.h: the place for the program header of the new segment.
 */
#pragma once

#include "rewriter/plan/plan.h"

/* Both return 0 or a negative errno. */
int elf_plan_slot(struct elf_plan *plan);
int elf_plan_slot_finish(struct elf_plan *plan);

/* The two steps return 0, or a negative errno with err filled. */
int elf_plan_needed(struct elf_plan *plan, struct gs_err *err);
int elf_plan_needed_finish(struct elf_plan *plan);
