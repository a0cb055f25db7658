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
/* Fills the undo note, except for the list of changes and the checksums. */
void elf_plan_undo_head(const struct elf_plan *plan, struct elf_undo_head *head,
                        struct elf_undo_copy copies[ELF_COPIES_MAX]);
