/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.c: see checksum.h.
 *
 * Owns nothing; no state outside the caller's struct, any thread.
 */
#include "rewriter/elf/checksum.h"
#include "rewriter/elf/sha256.h"

#include <endian.h>
#include <string.h>

#define FACTOR 0x9e3779b97f4a7c15ull /* odd: multiplying by it loses nothing */
#define BLOCK  ((size_t)8 * ELF_CHECKSUM_LANES)

static uint64_t step(uint64_t lane, uint64_t word)
{
    uint64_t product = (lane ^ word) * FACTOR;

    return product << 29 | product >> 35;
}

static void add_blocks(uint64_t lanes[ELF_CHECKSUM_LANES], const uint8_t *bytes, size_t blocks)
{
    uint64_t now[ELF_CHECKSUM_LANES]; /* eight chains that the processor runs side by side */

    memcpy(now, lanes, sizeof now);
    for (; blocks > 0; blocks--, bytes += BLOCK)
#pragma GCC unroll 8 /* else the lanes live in memory, not in registers */
        for (size_t i = 0; i < ELF_CHECKSUM_LANES; i++) {
            uint64_t word;

            memcpy(&word, bytes + 8 * i, sizeof word);
            now[i] = step(now[i], le64toh(word));
        }
    memcpy(lanes, now, sizeof now);
}

void elf_checksum_init(struct elf_checksum *sum)
{
    sum->length = 0;
    for (size_t i = 0; i < ELF_CHECKSUM_LANES; i++)
        sum->lanes[i] = (i + 1) * FACTOR;
}

void elf_checksum_update(struct elf_checksum *sum, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    size_t used = sum->length % BLOCK;

    sum->length += length;
    if (used > 0) {
        size_t part = length < BLOCK - used ? length : BLOCK - used;

        memcpy(sum->block + used, from, part);
        from += part;
        length -= part;
        if (used + part < BLOCK)
            return;
        add_blocks(sum->lanes, sum->block, 1);
    }
    add_blocks(sum->lanes, from, length / BLOCK);
    memcpy(sum->block, from + length / BLOCK * BLOCK, length % BLOCK);
}

void elf_checksum_final(struct elf_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE])
{
    uint64_t words[ELF_CHECKSUM_LANES + 1];
    size_t used = sum->length % BLOCK;
    struct elf_sha256 sha;

    if (used > 0) {
        memset(sum->block + used, 0, BLOCK - used);
        add_blocks(sum->lanes, sum->block, 1);
    }
    for (size_t i = 0; i < ELF_CHECKSUM_LANES; i++)
        words[i] = htole64(sum->lanes[i]);
    words[ELF_CHECKSUM_LANES] = htole64(sum->length);
    elf_sha256_init(&sha);
    elf_sha256_update(&sha, words, sizeof words);
    elf_sha256_final(&sha, digest);
}
