/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c: see sums.h. One stream, so that both checksums cost one pass.
 *
 * Owns nothing; no state outside the caller's struct, any thread.
 */
#include "rewriter/elf/sums.h"

#include <string.h>

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
