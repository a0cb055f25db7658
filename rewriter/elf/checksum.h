/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.h: the checksum of a whole file that undo notes carry.
 *
 * It guards against accidents (a file changed after it was patched), not against people: whoever
 * can change the file can change the note. So it need not be a cryptographic hash of every
 * byte, which would take several times as long as copying the file.
 */
#ifndef REWRITER_ELF_CHECKSUM_H
#define REWRITER_ELF_CHECKSUM_H

#define XXH_STATIC_LINKING_ONLY /* the state as a member, not behind a pointer */
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#define ELF_CHECKSUM_SIZE 32 /* bytes that a note has for it */

enum elf_checksum_kind {
    ELF_CHECKSUM_XXH3, /* XXH3_128bits in canonical form, then 16 zeros */
    ELF_CHECKSUM_OLD,  /* of notes "gpushare-undo-3"; old_checksum.c */
};

struct elf_old_checksum {
    uint64_t lanes[8];
    uint64_t length;   /* bytes so far */
    uint8_t block[64]; /* the last length % 64 of them */
};

struct elf_checksum {
    enum elf_checksum_kind kind;
    union {
        XXH3_state_t xxh3;
        struct elf_old_checksum old;
    } state;
};

void elf_checksum_init(struct elf_checksum *sum, enum elf_checksum_kind kind);
void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length);
void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE]);

/* The same for ELF_CHECKSUM_OLD. */
void elf_old_checksum_init(struct elf_old_checksum *sum);
void elf_old_checksum_update(struct elf_old_checksum *sum, const void *bytes, size_t length);
void elf_old_checksum_final(struct elf_old_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE]);

#endif
