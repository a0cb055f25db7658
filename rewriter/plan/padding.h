/* SPDX-License-Identifier: Apache-2.0
 *
 * padding.h: a plan that neither moves nor adds a byte.
 */
#ifndef REWRITER_PLAN_PADDING_H
#define REWRITER_PLAN_PADDING_H

#include "rewriter/plan/plan.h"

/* Takes the place of all the other steps. 0, or a negative errno with err filled. */
int elf_plan_padding(struct elf_plan *plan, const char *runtime, struct gs_err *err);

#endif
