/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.c: XXH3 of a file, in the form of the notes.
 *
 * Contains xxhash's code (a header-only library). Owns nothing; no state outside the caller's
 * struct, any thread.
 */
#define XXH_IMPLEMENTATION
#include "rewriter/elf/checksum.h"

#include <string.h>

_Static_assert(sizeof(XXH128_canonical_t) <= ELF_CHECKSUM_SIZE, "format");

void elf_checksum_init(struct elf_checksum *sum)
{
    (void)XXH3_128bits_reset(&sum->state); /* fails for NULL only */
}

void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length)
{
    (void)XXH3_128bits_update(&sum->state, bytes, length);
}

void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&sum->state));
    memset(digest, 0, ELF_CHECKSUM_SIZE);
    memcpy(digest, canonical.digest, sizeof canonical.digest);
}
