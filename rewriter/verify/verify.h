/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h: the check of the new file by the system's loader, before it replaces the old file.
 */
#pragma once

#include "rewriter/plan/plan.h"

/* Checks that the new file, which our own reader has read like any other, means the same as the
 * original: segments, dynamic entries, strings, sections, undo note. 0 or -EIO. */
int elf_verify_meaning(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err);

/* Whether the dynamic section of a patched file (raw) still says the same as its original's,
 * except for the runtime library and origin (NULL: none, see plan.h). 0; -ENOEXEC if somebody
 * edited it since, which patching again would undo. */
int elf_verify_untouched(const struct elf_image *original, const struct elf_source *raw,
                         const char *runtime, const char *origin, struct gs_err *err);

/* Lets the system's dynamic loader check the new file (ld.so --verify) if it is for this
 * machine and on a mount from which programs may be mapped (not noexec). 0; -EIO; -ENOEXEC
 * if the loader does not accept the original (old) either. */
int elf_verify_loader(const struct elf_image *image, int old, int fd, struct gs_err *err);
