/* SPDX-License-Identifier: Apache-2.0
 *
 * versions.h: the version tables of an image.
 */
#ifndef REWRITER_ELF_VERSIONS_H
#define REWRITER_ELF_VERSIONS_H

#include "rewriter/elf/image.h"

/* Whether version tables that exist stay inside the file, and their names in the string table. 0
 * or -ENOEXEC. */
int elf_versions_check(const struct elf_image *image, struct gs_err *err);

#endif
