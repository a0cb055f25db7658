/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h: makes the new file's content and checks it in the same pass.
 */
#ifndef REWRITER_OUTPUT_COPY_H
#define REWRITER_OUTPUT_COPY_H

#include "rewriter/output/output.h"
#include "rewriter/plan/plan.h"

/* The input of a copy. */
struct elf_copy {
    struct elf_output *output;
    const struct elf_source *original; /* undone, if it was patched before */
    bool sync; /* the run will wait for the disk: start writing early, and use the time to
                  read every byte back; else only changed parts are read back */
};

/* The checksums of the original, see sums.h. */
struct elf_digests {
    uint8_t whole[ELF_CHECKSUM_SIZE], image[ELF_CHECKSUM_SIZE];
};

/* Writes the original with the plan's changes, then the tail, and reads back as readback.h says.
 * 0; -EIO if the new file differs from the plan; or the error of reading and writing. */
int elf_copy_patched(const struct elf_copy *copy, const struct elf_plan *plan,
                     struct elf_digests *digests, struct gs_err *err);

/* Writes the original alone; its image ends at image_end. */
int elf_copy_original(const struct elf_copy *copy, uint64_t image_end,
                      struct elf_digests *digests, struct gs_err *err);

#endif
