/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c: see sums.h. XXH3 in the form of the notes, and one stream of it, so that both checksums
 * cost one pass. Owns nothing; no state outside the caller's struct, any thread.
 */
#define XXH_IMPLEMENTATION /* xxhash's code, a header-only library */
#include "rewriter/elf/sums.h"

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

void elf_sums_init(struct elf_sums *sums, uint64_t image_end)
{
    memset(sums, 0, sizeof *sums);
    sums->image_end = image_end;
    elf_checksum_init(&sums->stream);
    sums->image = sums->stream;
}

static void add_bytes(struct elf_sums *sums, const uint8_t *bytes, size_t length)
{
    if (sums->at < sums->image_end && length >= sums->image_end - sums->at) {
        size_t part = (size_t)(sums->image_end - sums->at);

        elf_checksum_update(&sums->stream, bytes, part);
        sums->image = sums->stream;
        sums->at += part;
        bytes += part;
        length -= part;
    }
    elf_checksum_update(&sums->stream, bytes, length);
    sums->at += length;
}

static void add_masked_header(struct elf_sums *sums)
{
    Elf64_Ehdr header;

    memcpy(&header, sums->header, sizeof header);
    header.e_shoff = 0;
    header.e_shnum = 0;
    header.e_shstrndx = 0;
    sums->at = 0;
    add_bytes(sums, (const uint8_t *)&header, sizeof header);
}

void elf_sums_update(struct elf_sums *sums, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    if (sums->at < sizeof sums->header) {
        size_t room = sizeof sums->header - (size_t)sums->at;
        size_t part = length < room ? length : room;

        memcpy(sums->header + sums->at, from, part);
        sums->at += part;
        from += part;
        length -= part;
        if (sums->at < sizeof sums->header)
            return;
        add_masked_header(sums);
    }
    add_bytes(sums, from, length);
}

void elf_sums_final(struct elf_sums *sums, uint8_t whole[ELF_CHECKSUM_SIZE],
                    uint8_t image[ELF_CHECKSUM_SIZE])
{
    if (sums->at < sums->image_end)
        sums->image = sums->stream;
    elf_checksum_update(&sums->stream, sums->header, sizeof sums->header);
    elf_checksum_final(&sums->stream, whole);
    elf_checksum_final(&sums->image, image);
}
