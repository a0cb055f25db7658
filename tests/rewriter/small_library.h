/* SPDX-License-Identifier: Apache-2.0
 *
 * small_library.h: an ELF library of a few hundred bytes, made in memory, for unit tests.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rewriter/elf/image.h"

/* A small library made by hand: header, 3 segments (room for a fourth unless tight), notes,
 * tables, dynamic section. */
struct small {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    uint8_t behind[64]; /* where a fourth would go: a note or something */
    Elf64_Sym symbols[3];
    uint32_t hash[2 + 1 + 3];
    char strings[32];
    Elf64_Dyn dynamic[9];
};

struct small small_make(size_t spare);
int small_read(const struct small *s, struct elf_image *image, struct gs_err *err);
void small_refuse(const struct small *s, const char *why);
