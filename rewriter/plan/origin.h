/* SPDX-License-Identifier: Apache-2.0
 *
 * origin.h: names that say $ORIGIN.
 */
#ifndef REWRITER_PLAN_ORIGIN_H
#define REWRITER_PLAN_ORIGIN_H

#include "rewriter/elf/image.h"

/* Whether a name of the dynamic section says $ORIGIN. */
bool elf_origin_is_used(const struct elf_image *image);

/* A name with origin in place of each $ORIGIN; the caller's to free. NULL: no memory. */
char *elf_origin_expand(const char *text, const char *origin);

#endif
