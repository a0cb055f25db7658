/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256.h: SHA-256 (FIPS 180-4), for the RECORDs of Python wheels (tree/record.c) and for the
 * checksum of old undo notes.
 */
#ifndef REWRITER_ELF_SHA256_H
#define REWRITER_ELF_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define ELF_SHA256_SIZE 32

struct elf_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
};

void elf_sha256_init(struct elf_sha256 *sha);
void elf_sha256_update(struct elf_sha256 *sha, const void *bytes, size_t length);
void elf_sha256_final(struct elf_sha256 *sha, uint8_t digest[ELF_SHA256_SIZE]);

/* As above, without the processor's SHA instructions (the tests compare both). */
void elf_sha256_blocks_portable(uint32_t state[8], const uint8_t *bytes, size_t blocks);

#endif
