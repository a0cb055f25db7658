/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h: what moves when the program header table grows in place.
 */
#pragma once

#include "rewriter/plan/plan.h"

/* The address after the move of the block; unchanged for everything outside the block. */
uint64_t elf_plan_moved(const struct elf_plan *plan, uint64_t address);

/* Puts new bytes over a range of the original; copies them. 0 or -ENOMEM. */
int elf_plan_change(struct elf_plan *plan, uint64_t offset, const void *bytes, size_t length);

/* 0 or a negative errno. */
int elf_plan_init(struct elf_plan *plan);

/* Sets plan->block. 0; -ENOENT: the table cannot grow in place; another negative errno. */
int elf_plan_block(struct elf_plan *plan);
