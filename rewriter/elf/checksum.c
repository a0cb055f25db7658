/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.c: XXH3 for notes that are written today, and the old checksum for earlier notes.
 *
 * Contains xxhash's code (a header-only library). Owns nothing; no state outside the caller's
 * struct, any thread.
 */
#define XXH_IMPLEMENTATION
#include "rewriter/elf/checksum.h"

#include <string.h>

_Static_assert(sizeof(XXH128_canonical_t) <= ELF_CHECKSUM_SIZE, "format");

void elf_checksum_init(struct elf_checksum *sum, enum elf_checksum_kind kind)
{
    sum->kind = kind;
    if (kind == ELF_CHECKSUM_OLD)
        elf_old_checksum_init(&sum->state.old);
    else
        (void)XXH3_128bits_reset(&sum->state.xxh3); /* fails for NULL only */
}

void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length)
{
    if (sum->kind == ELF_CHECKSUM_OLD)
        elf_old_checksum_update(&sum->state.old, bytes, length);
    else
        (void)XXH3_128bits_update(&sum->state.xxh3, bytes, length);
}

void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE])
{
    XXH128_canonical_t canonical;

    if (sum->kind == ELF_CHECKSUM_OLD) {
        elf_old_checksum_final(&sum->state.old, digest);
        return;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&sum->state.xxh3));
    memset(digest, 0, ELF_CHECKSUM_SIZE);
    memcpy(digest, canonical.digest, sizeof canonical.digest);
}
