/* SPDX-License-Identifier: Apache-2.0
 *
 * meaning.h: whether the new file, read by our own reader, means what the original means.
 */
#ifndef REWRITER_VERIFY_MEANING_H
#define REWRITER_VERIFY_MEANING_H

#include "rewriter/plan/plan.h"

/* Checks that the new file, which our own reader has read as any other, means the same as the
 * original: segments, dynamic entries, names of symbols, undo note. 0 or -EIO. */
int elf_verify_meaning(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err);

/* Whether a patched file (raw) still says in its dynamic section what its original says, but
 * for the runtime library and origin (NULL: none, see plan.h): 0; -ENOEXEC when somebody edited
 * that since, which patching anew would undo. */
int elf_verify_untouched(const struct elf_image *original, const struct elf_source *raw,
                         const char *runtime, const char *origin, struct gs_err *err);

#endif
