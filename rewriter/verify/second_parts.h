/* SPDX-License-Identifier: Apache-2.0
 *
 * second_parts.h: the file that the parts of the second reader check.
 */
#ifndef REWRITER_VERIFY_SECOND_PARTS_H
#define REWRITER_VERIFY_SECOND_PARTS_H

#include "rewriter/plan/plan.h"

#include <gelf.h>

/* One new file, as libelf reads it. */
struct elf_second {
    const struct elf_plan *plan;
    const struct elf_image *new; /* the same file, as our own reader reads it */
    int fd;
    Elf64_Phdr *segments; /* by libelf; segment_count */
    size_t segment_count;
};

#endif
