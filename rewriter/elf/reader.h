/* SPDX-License-Identifier: Apache-2.0
 *
 * reader.h: reads an ELF file into an image.
 */
#pragma once

#include "rewriter/elf/image.h"

/* Reads and checks the file behind source (which is copied; its descriptor and undo list stay
 * the caller's). 0, or a negative errno with err filled: -ENOEXEC unless it is a valid,
 * dynamically linked ELF64 file for x86-64 or aarch64. After an error image is empty. */
int elf_image_read(struct elf_image *image, const struct elf_source *source,
                   struct gs_err *err);
