/* SPDX-License-Identifier: Apache-2.0
 *
 * header.h: the first step of reading an image: its ELF header.
 */
#ifndef REWRITER_ELF_HEADER_H
#define REWRITER_ELF_HEADER_H

#include "rewriter/elf/image.h"

/* Whether the image's ELF header, all that has been read, is that of a 64-bit Linux program or
 * library for x86-64 or aarch64, with a sound table of segments. 0, or -ENOEXEC with a message
 * that says what it is. */
int elf_header_check(const struct elf_image *image, struct gs_err *err);

/* "x86-64" or "aarch64". */
const char *elf_machine_name(unsigned machine);

#endif
