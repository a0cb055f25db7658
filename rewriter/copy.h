/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h: makes the new file's content and checks it in the same pass.
 */
#ifndef REWRITER_COPY_H
#define REWRITER_COPY_H

#include "rewriter/output.h"
#include "rewriter/plan.h"

/* What the copy starts from: the file as it is, seen through its undo note if it has one. */
struct elf_copy {
    struct elf_output *output;
    const struct elf_source *original; /* undone, if it was patched before */
    bool background;                   /* let the disk begin to write while we go on copying */
};

/* Writes the original with the plan's changes, then the tail. A second thread follows: it reads
 * the original again, sums it up, reads every byte of the new file back and compares it with
 * what was planned. digest gets the checksum of the original. 0; -EIO naming the
 * first wrong offset; or what reading and writing gave. */
int elf_copy_patched(const struct elf_copy *copy, const struct elf_plan *plan,
                     uint8_t digest[ELF_CHECKSUM_SIZE], struct gs_err *err);

/* Writes the original alone; the second thread reads the new file back and sums it up. digest
 * gets the checksum of the new file. */
int elf_copy_original(const struct elf_copy *copy, uint8_t digest[ELF_CHECKSUM_SIZE],
                      struct gs_err *err);

#endif
