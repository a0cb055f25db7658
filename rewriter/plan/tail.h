/* SPDX-License-Identifier: Apache-2.0
 *
 * tail.h: the bytes behind the original's end.
 */
#pragma once

#include "rewriter/plan/plan.h"

/* 0, or a negative errno with err filled. */
int elf_plan_sections(struct elf_plan *plan, struct gs_err *err);

/* Gives every part of the new segment its place. 0, or a negative errno with err filled. */
int elf_plan_lay_out(struct elf_plan *plan, struct gs_err *err);
/* Makes the bytes, as the last step. 0, or a negative errno with err filled. */
int elf_plan_tail(struct elf_plan *plan, struct gs_err *err);
/* The undo note for the changes so far and for the range of zeros (NULL: none), to be freed by
 * the caller; NULL: no memory. The size of the new file, which the note contains, is known from
 * the second call on. */
uint8_t *elf_plan_undo(struct elf_plan *plan, const struct elf_change *zeros,
                       struct gs_err *err);
