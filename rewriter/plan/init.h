/* SPDX-License-Identifier: Apache-2.0
 *
 * init.h: the code of .init, where it may move.
 */
#ifndef REWRITER_PLAN_INIT_H
#define REWRITER_PLAN_INIT_H

#include "rewriter/plan/plan.h"

/* 0 or a negative errno. */
int elf_plan_init(struct elf_plan *plan);
/* The section at DT_INIT if its code is known and may move; else ELF_NO_SECTION. */
size_t elf_init_section(const struct elf_image *image);
/* Whether any code seems to lead to DT_INIT. */
bool elf_init_is_called(const struct elf_image *image);

#endif
