/* SPDX-License-Identifier: Apache-2.0
 *
 * kinds.h: the entries that the second reader compares.
 */
#ifndef REWRITER_VERIFY_KINDS_H
#define REWRITER_VERIFY_KINDS_H

#include "rewriter/verify/second_parts.h"

/* A kind of entry, with its fields; the last field has no name. */
struct elf_kind {
    const char *name;
    size_t size; /* bytes */
    struct {
        const char *name;
        size_t at, size;
    } fields[11];
};

extern const struct elf_kind elf_kind_header, elf_kind_segment, elf_kind_section,
    elf_kind_dynamic, elf_kind_symbol, elf_kind_relocation, elf_kind_number, elf_kind_verneed,
    elf_kind_vernaux, elf_kind_verdef, elf_kind_verdaux, elf_kind_word, elf_kind_byte;

/* Compares an entry as libelf reads it with the expected one; `by` says whose expectation it is.
 * 0, or -EIO with both answers in err. */
int elf_second_compare(const struct elf_second *second, const struct elf_kind *kind,
                       uint64_t index, const void *theirs, const void *ours, const char *by,
                       struct gs_err *err);

#endif
