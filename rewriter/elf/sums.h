/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h: the two checksums of the original file in an undo note.
 *
 * image: of the first image_end bytes, up to the end of the last loadable segment, without the
 * three fields of the ELF header that say where the section headers are. Tools like strip do not
 * change these bytes, so this shows whether the original's loaded part was recovered. whole: of
 * the same bytes, then the rest of the file, then the ELF header as it is.
 */
#pragma once

#define XXH_STATIC_LINKING_ONLY /* the state as a member, not behind a pointer */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

/* The checksum of a file in undo notes. It guards against accidents (a file changed after
 * it was patched), not against attackers: anybody who can change the file can change the
 * note. So it need not be a cryptographic hash of every byte, which would take several
 * times as long as copying the file. */
#define ELF_CHECKSUM_SIZE                                                                      \
    32 /* bytes in a note: XXH3_128bits in canonical form, then 16 zeros */

struct elf_checksum {
    XXH3_state_t state;
};

void elf_checksum_init(struct elf_checksum *sum);
void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length);
void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE]);

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

/* SHA-256 (FIPS 180-4), for the RECORDs of Python wheels (tree/manifest.c). */
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
