/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h: makes the new file's content and checks it in the same pass.
 */
#pragma once

#include "rewriter/output/output.h"
#include "rewriter/plan/plan.h"

/* Reads a new file back and compares it with the plan. */
struct elf_readback {
    const struct elf_source *original;
    const struct elf_plan *plan; /* NULL: the new file is the original alone */
    struct elf_source new;
    bool whole; /* read every byte; else only stretches that a change touches */
    uint8_t *buffers;
    struct elf_sums sums; /* of the original, as the new file has it; only with whole */
};

/* 0 or -ENOMEM. deinit accepts a zeroed struct. */
int elf_readback_init(struct elf_readback *back, uint64_t image_end, struct gs_err *err);
void elf_readback_deinit(struct elf_readback *back);

/* Checks bytes [from, to) of the part that comes from the original. Must be called with
 * ascending, adjoining ranges. 0; -EIO if there are other bytes; or the error of reading. */
int elf_readback_check(struct elf_readback *back, uint64_t from, uint64_t to,
                       struct gs_err *err);

/* Checks that the tail follows, and nothing behind it. With `whole` also that everything
 * checked sums up to `whole`, the checksum of the original. */
int elf_readback_finish(struct elf_readback *back, const uint8_t whole[ELF_CHECKSUM_SIZE],
                        struct gs_err *err);

/* The input of a copy. */
struct elf_copy {
    struct elf_output *output;
    const struct elf_source *original; /* undone, if it was patched before */
    const struct elf_plan *plan;       /* its changes and its tail; NULL: the original alone */
    uint64_t image_end;                /* of the original, see sums.h */
    bool sync; /* the run will wait for the disk: start writing early, and use the time to
                  read every byte back; else only changed parts are read back */
};

/* The checksums of the original, see sums.h. */
struct elf_digests {
    uint8_t whole[ELF_CHECKSUM_SIZE], image[ELF_CHECKSUM_SIZE];
};

/* Writes the new file and reads it back as above. 0; -EIO if it differs from the plan; or the error
 * of reading and writing. */
int elf_copy_file(const struct elf_copy *copy, struct elf_digests *digests, struct gs_err *err);
