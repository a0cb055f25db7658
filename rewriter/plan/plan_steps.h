/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_steps.h: the steps of making a plan, each in a file of its own.
 */
#ifndef REWRITER_PLAN_PLAN_STEPS_H
#define REWRITER_PLAN_PLAN_STEPS_H

#include "rewriter/plan/plan.h"

/* The steps, each in a file of its own: 0, or a negative errno with err filled. */
/* imports.c */
int elf_plan_names(struct elf_plan *plan, const char *runtime, struct gs_err *err);
/* needed.c */
int elf_plan_needed(struct elf_plan *plan, struct gs_err *err);
int elf_plan_needed_finish(struct elf_plan *plan);
/* origin.c */
int elf_plan_origin(struct elf_plan *plan);
/* slot.c */
int elf_plan_slot(struct elf_plan *plan);
int elf_plan_slot_finish(struct elf_plan *plan);
/* tail.c: gives every part of the new segment its place */
int elf_plan_lay_out(struct elf_plan *plan, struct gs_err *err);
/* block.c */
int elf_plan_block(struct elf_plan *plan);
/* init.c */
int elf_plan_init(struct elf_plan *plan);
/* sections.c */
int elf_plan_sections(struct elf_plan *plan, struct gs_err *err);
/* tail.c */
int elf_plan_tail(struct elf_plan *plan, struct gs_err *err);
/* padding.c; instead of all the others */
int elf_plan_padding(struct elf_plan *plan, const char *runtime, struct gs_err *err);

/* Adds one more name behind those of elf_plan_names(); *offset: its place in the new string table.
 * 0 or -ENOMEM. imports.c */
int elf_plan_add_name(struct elf_plan *plan, const char *name, uint64_t *offset);

/* The section at DT_INIT if its code is known and may move; else ELF_NO_SECTION. init.c */
size_t elf_init_section(const struct elf_image *image);

/* Whether any code seems to lead to DT_INIT; init.c. */
bool elf_init_is_called(const struct elf_image *image);

/* Fills the undo note, except for the list of changes and the checksums. */
void elf_plan_undo_head(const struct elf_plan *plan, struct elf_undo_head *head,
                        struct elf_undo_copy copies[ELF_COPIES_MAX]); /* tail.c */

#endif
