/* SPDX-License-Identifier: Apache-2.0
 *
 * second.h: the new file as libelf reads it.
 */
#pragma once

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

/* A kind of entry. On a 64-bit machine libelf's GElf types are those of <elf.h>. */
struct elf_kind {
    const char *name;
    size_t size; /* bytes */
};

extern const struct elf_kind elf_kind_header, elf_kind_segment, elf_kind_section;

/* Compares an entry as libelf reads it with the expected one; `by` says whose expectation
 * it is. 0, or -EIO with both answers in err. */
int elf_second_compare(const struct elf_second *second, const struct elf_kind *kind,
                       uint64_t index, const void *theirs, const void *ours, const char *by,
                       struct gs_err *err);

/* Opens the new file with libelf; NULL with err filled. To be ended with elf_end(). */
Elf *elf_second_begin(const struct elf_second *second, struct gs_err *err);

/* libelf cannot read a part. Always -EIO, with libelf's reason in err. */
int elf_second_fail(const struct elf_second *second, const char *what, struct gs_err *err);

/* Checks the tables of the dynamic linker: dynamic entries, strings, hash tables, symbols,
 * versions, relocations. `segments` are known. 0 or a negative errno. */
int elf_second_tables(const struct elf_second *second, struct gs_err *err);
