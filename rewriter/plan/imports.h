/* SPDX-License-Identifier: Apache-2.0
 *
 * imports.h: the names that a patched file needs.
 */
#pragma once

#include "rewriter/plan/plan.h"

/* Decides which imports are routed, and makes their names. 0, or a negative errno with err
 * filled. */
int elf_plan_names(struct elf_plan *plan, const char *runtime, struct gs_err *err);

/* The step: replaces $ORIGIN in the file's names. 0 or a negative errno. */
int elf_plan_origin(struct elf_plan *plan);

/* Whether a name of the dynamic section contains $ORIGIN. */
bool elf_origin_is_used(const struct elf_image *image);

/* The name with origin in place of each $ORIGIN, to be freed by the caller. NULL: no memory. */
char *elf_origin_expand(const char *text, const char *origin);
