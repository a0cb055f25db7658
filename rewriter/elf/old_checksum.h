/* SPDX-License-Identifier: Apache-2.0
 *
 * old_checksum.h: the checksum in the notes of earlier builds ("gpushare-undo-3").
 */
#ifndef REWRITER_ELF_OLD_CHECKSUM_H
#define REWRITER_ELF_OLD_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define ELF_CHECKSUM_SIZE 32 /* bytes that a note has for a checksum of either kind */

struct elf_old_checksum {
    uint64_t lanes[8];
    uint64_t length;   /* bytes so far */
    uint8_t block[64]; /* the last length % 64 of them */
};

void elf_old_checksum_init(struct elf_old_checksum *sum);
void elf_old_checksum_update(struct elf_old_checksum *sum, const void *bytes, size_t length);
void elf_old_checksum_final(struct elf_old_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE]);

#endif
