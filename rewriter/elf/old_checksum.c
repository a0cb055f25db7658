/* SPDX-License-Identifier: Apache-2.0
 *
 * old_checksum.c: the checksum of undo notes "gpushare-undo-3", so that files which were patched
 * by builds before November 2026 can be restored. Nothing writes it any more.
 *
 * Eight lanes of 64 bits; the file, zero-padded to a multiple of 64 bytes, is read as
 * little-endian words, word i going to lane i mod 8: lane = rotl((lane ^ word) * FACTOR, 29). The
 * checksum is the SHA-256 of the lanes and of the length in bytes, all little-endian. No state
 * outside the caller's struct, any thread.
 */
#include "rewriter/elf/old_checksum.h"
#include "rewriter/elf/sha256.h"

#include <endian.h>
#include <string.h>

#define FACTOR 0x9e3779b97f4a7c15ull
#define BLOCK  sizeof((struct elf_old_checksum *)0)->block

static void add_block(uint64_t lanes[8], const uint8_t *block)
{
    for (size_t i = 0; i < 8; i++) {
        uint64_t word, product;

        memcpy(&word, block + 8 * i, sizeof word);
        product = (lanes[i] ^ le64toh(word)) * FACTOR;
        lanes[i] = product << 29 | product >> 35;
    }
}

void elf_old_checksum_init(struct elf_old_checksum *sum)
{
    memset(sum, 0, sizeof *sum);
    for (size_t i = 0; i < 8; i++)
        sum->lanes[i] = (i + 1) * FACTOR;
}

void elf_old_checksum_update(struct elf_old_checksum *sum, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    while (length > 0) {
        size_t used = sum->length % BLOCK, part = BLOCK - used;

        if (part > length)
            part = length;
        memcpy(sum->block + used, from, part);
        if (used + part == BLOCK)
            add_block(sum->lanes, sum->block);
        sum->length += part;
        from += part;
        length -= part;
    }
}

void elf_old_checksum_final(struct elf_old_checksum *sum, uint8_t digest[ELF_CHECKSUM_SIZE])
{
    size_t used = sum->length % BLOCK;
    uint64_t words[9];
    struct elf_sha256 sha;

    if (used > 0) {
        memset(sum->block + used, 0, BLOCK - used);
        add_block(sum->lanes, sum->block);
    }
    for (size_t i = 0; i < 8; i++)
        words[i] = htole64(sum->lanes[i]);
    words[8] = htole64(sum->length);
    elf_sha256_init(&sha);
    elf_sha256_update(&sha, words, sizeof words);
    elf_sha256_final(&sha, digest);
}
