/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h: the two checksums of the original file in an undo note.
 *
 * image: of the first image_end bytes, up to the end of the last loadable segment, without the
 * three fields of the ELF header that say where the section headers are. Tools like strip do not
 * change these bytes, so this shows whether the original's loaded part was recovered. whole: of
 * the same bytes, then the rest of the file, then the ELF header as it is.
 */
#ifndef REWRITER_ELF_SUMS_H
#define REWRITER_ELF_SUMS_H

#include "rewriter/elf/checksum.h"

#include <elf.h>

struct elf_sums {
    uint64_t image_end;         /* offset in the file, bytes */
    uint64_t at;                /* bytes so far */
    struct elf_checksum stream; /* masked header, image, rest */
    struct elf_checksum image;  /* the stream's state at image_end */
    uint8_t header[sizeof(Elf64_Ehdr)];
};

void elf_sums_init(struct elf_sums *sums, uint64_t image_end);

/* Takes the next bytes of the file, from its beginning on. */
void elf_sums_update(struct elf_sums *sums, const void *bytes, size_t length);

/* If there were fewer bytes than image_end, image is the checksum of those. */
void elf_sums_final(struct elf_sums *sums, uint8_t whole[ELF_CHECKSUM_SIZE],
                    uint8_t image[ELF_CHECKSUM_SIZE]);

#endif
