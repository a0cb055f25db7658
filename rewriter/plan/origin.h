/* SPDX-License-Identifier: Apache-2.0
 *
 * origin.h: names that contain $ORIGIN.
 */
#ifndef REWRITER_PLAN_ORIGIN_H
#define REWRITER_PLAN_ORIGIN_H

#include "rewriter/plan/plan.h"

/* The step: replaces $ORIGIN in the file's names. 0 or a negative errno. */
int elf_plan_origin(struct elf_plan *plan);

/* Whether a name of the dynamic section contains $ORIGIN. */
bool elf_origin_is_used(const struct elf_image *image);

/* The name with origin in place of each $ORIGIN, to be freed by the caller. NULL: no memory. */
char *elf_origin_expand(const char *text, const char *origin);

#endif
