/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.h: the checksum of a whole file that undo notes carry.
 *
 * It guards against accidents (a file changed after it was patched), not against people: who
 * can change the file can change the note. So it need not be a cryptographic hash of every
 * byte, which would take several times as long as copying the file.
 *
 * Definition: eight lanes of 64 bits; the file, zero-padded to a multiple of 64 bytes, is read
 * as little-endian words, word i going to lane i mod 8:  lane = rotl((lane ^ word) * K, 29).
 * Each step can be inverted, so one changed word always changes the result. The checksum is the
 * SHA-256 of the lanes and of the length in bytes, all little-endian.
 */
#ifndef REWRITER_ELF_CHECKSUM_H
#define REWRITER_ELF_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define ELF_CHECKSUM_SIZE  32
#define ELF_CHECKSUM_LANES 8

struct elf_checksum {
    uint64_t lanes[ELF_CHECKSUM_LANES];
    uint64_t length; /* bytes so far */
    uint8_t block[8 * ELF_CHECKSUM_LANES];
};

void elf_checksum_init(struct elf_checksum *sum);
void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length);
void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE]);

#endif
