/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.h: the checksum of a whole file in undo notes.
 *
 * It guards against accidents (a file changed after it was patched), not against attackers:
 * anybody who can change the file can change the note. So it need not be a cryptographic hash of
 * every byte, which would take several times as long as copying the file.
 */
#ifndef REWRITER_ELF_CHECKSUM_H
#define REWRITER_ELF_CHECKSUM_H

#include "rewriter/elf/old_checksum.h"

#define XXH_STATIC_LINKING_ONLY /* the state as a member, not behind a pointer */
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

enum elf_checksum_kind {
    ELF_CHECKSUM_XXH3, /* XXH3_128bits in canonical form, then 16 zeros */
    ELF_CHECKSUM_OLD,  /* of notes "gpushare-undo-3"; old_checksum.c */
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

#endif
