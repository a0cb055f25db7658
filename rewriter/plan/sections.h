/* SPDX-License-Identifier: Apache-2.0
 *
 * sections.h: the changes of section headers and static symbols.
 */
#ifndef REWRITER_PLAN_SECTIONS_H
#define REWRITER_PLAN_SECTIONS_H

#include "rewriter/plan/plan.h"

/* 0, or a negative errno with err filled. */
int elf_plan_sections(struct elf_plan *plan, struct gs_err *err);

#endif
