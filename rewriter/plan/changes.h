/* SPDX-License-Identifier: Apache-2.0
 *
 * changes.h: the changes that the planning steps record.
 */
#ifndef REWRITER_PLAN_CHANGES_H
#define REWRITER_PLAN_CHANGES_H

#include <stddef.h>
#include <stdint.h>

#include "rewriter/plan/plan.h"

/* The address after the move of the block; unchanged for everything outside the block. */
uint64_t elf_plan_moved(const struct elf_plan *plan, uint64_t address);

/* Puts new bytes over a range of the original; copies them. 0 or -ENOMEM. */
int elf_plan_change(struct elf_plan *plan, uint64_t offset, const void *bytes, size_t length);

#endif
