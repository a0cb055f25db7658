/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamic.h: the second half of reading an image: the dynamic section and the tables it points
 * at.
 */
#pragma once

#include "rewriter/elf/image.h"

/* Reads PT_DYNAMIC and the string table, and finds size and place of the symbol, version and
 * hash tables. The image's headers have been read. 0 or -ENOEXEC (or the error of reading). */
int elf_dynamic_read(struct elf_image *image, struct gs_err *err);

/* Whether an entry with that tag holds the offset of a name in the string table. */
bool elf_dynamic_is_name(int64_t tag);

/* Whether the loader works without an entry with that tag, because the same is said elsewhere. */
bool elf_dynamic_may_go(int64_t tag);

/* Whether a DT_NEEDED of that name must precede even the runtime library's. AddressSanitizer's
 * library ends a program in which it is not the first; it exports no dlsym. */
bool elf_dynamic_stays_first(const char *needed);

/* Says why a file without PT_DYNAMIC cannot be patched: packed, or fully static. Always
 * -ENOEXEC. */
int elf_refuse_static(const struct elf_image *image, struct gs_err *err);
