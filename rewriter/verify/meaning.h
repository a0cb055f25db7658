/* SPDX-License-Identifier: Apache-2.0
 *
 * meaning.h: whether the new file, read by our own reader, means what the original means.
 */
#ifndef REWRITER_VERIFY_MEANING_H
#define REWRITER_VERIFY_MEANING_H

#include "rewriter/plan/plan.h"

/* Checks that the new file, which our own reader has read like any other, means the same as the
 * original: segments, dynamic entries, names of symbols, undo note. 0 or -EIO. */
int elf_verify_meaning(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err);

/* Whether the dynamic section of a patched file (raw) still says the same as its original's,
 * except for the runtime library and origin (NULL: none, see plan.h). 0; -ENOEXEC if somebody
 * edited it since, which patching again would undo. */
int elf_verify_untouched(const struct elf_image *original, const struct elf_source *raw,
                         const char *runtime, const char *origin, struct gs_err *err);

#endif
