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

#define XXH_STATIC_LINKING_ONLY /* the state as a member, not behind a pointer */
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#define ELF_CHECKSUM_SIZE                                                                      \
    32 /* bytes in a note: XXH3_128bits in canonical form, then 16 zeros */

struct elf_checksum {
    XXH3_state_t state;
};

void elf_checksum_init(struct elf_checksum *sum);
void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length);
void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE]);

#endif
