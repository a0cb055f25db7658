/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c: see sums.h. XXH3 in the form of the notes, one stream of it, so that both checksums cost
 * one pass; and SHA-256. Owns nothing; no state outside the caller's struct, any thread.
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

void elf_sums_update(struct elf_sums *sums, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    if (sums->at < sizeof sums->header) {
        size_t room = sizeof sums->header - (size_t)sums->at;
        size_t part = length < room ? length : room;
        Elf64_Ehdr header;

        memcpy(sums->header + sums->at, from, part);
        sums->at += part;
        from += part;
        length -= part;
        if (sums->at < sizeof sums->header)
            return;
        memcpy(&header, sums->header, sizeof header);
        header.e_shoff = 0;
        header.e_shnum = header.e_shstrndx = 0;
        sums->at = 0;
        add_bytes(sums, (const uint8_t *)&header, sizeof header);
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

/* SHA-256 after FIPS 180-4, with the SHA instructions of x86-64 if the processor has them.
 *
 * Owns nothing but the round constants; no state outside the caller's struct, any thread.
 * Files of a wheel can have several GB; with the instructions hashing is as fast as
 * copying.
 *
 * No library is used, because RECORD files are the only reason to hash: nettle is under the
 * LGPL, so each portable binary, which links everything statically, would have to come with
 * means to link it again; libcrypto 1.1.1, of the Debian against which these binaries are
 * linked, has a licence with an advertising clause. The code below follows a fixed
 * standard, and a test checks it with the vectors of that standard. */

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t rotate_right(uint32_t value, int by)
{
    return value >> by | value << (32 - by);
}

static void load_schedule(uint32_t w[64], const uint8_t *bytes)
{
    for (size_t i = 0; i < 16; i++) {
        memcpy(&w[i], bytes + 4 * i, sizeof w[i]);
        w[i] = be32toh(w[i]);
    }
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

void elf_sha256_blocks_portable(uint32_t state[8], const uint8_t *bytes, size_t blocks)
{
    for (; blocks > 0; blocks--, bytes += 64) {
        uint32_t w[64], v[8];

        load_schedule(w, bytes);
        memcpy(v, state, sizeof v);
        for (int i = 0; i < 64; i++) {
            uint32_t s1 =
                rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
            uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
            uint32_t t1 = v[7] + s1 + choice + round_constants[i] + w[i];
            uint32_t s0 =
                rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
            uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);

            memmove(v + 1, v, 7 * sizeof v[0]);
            v[4] += t1;
            v[0] = t1 + s0 + majority;
        }
        for (int i = 0; i < 8; i++)
            state[i] += v[i];
    }
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

/* The instructions keep the state as (a b e f) and (c d g h); one sha256rnds2 does two rounds.
 */
__attribute__((target("sha,sse4.1"))) static void
blocks_instructions(uint32_t state[8], const uint8_t *bytes, size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
    uint32_t out[4];

    for (; blocks > 0; blocks--, bytes += 64) {
        __m128i abef_start = abef, cdgh_start = cdgh, w[4];

        for (size_t i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(bytes + 16 * i)), swap);
        for (size_t i = 0; i < 16; i++) {
            __m128i now = w[i & 3], sum;

            sum = _mm_add_epi32(
                now, _mm_loadu_si128((const __m128i *)(const void *)(round_constants + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) { /* the schedule words that are needed four groups later */
                __m128i next = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);

                next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
                w[i & 3] = _mm_sha256msg2_epu32(next, w[(i + 3) & 3]);
            }
        }
        abef = _mm_add_epi32(abef, abef_start);
        cdgh = _mm_add_epi32(cdgh, cdgh_start);
    }
    _mm_storeu_si128((__m128i *)(void *)out, abef);
    state[0] = out[3], state[1] = out[2], state[4] = out[1], state[5] = out[0];
    _mm_storeu_si128((__m128i *)(void *)out, cdgh);
    state[2] = out[3], state[3] = out[2], state[6] = out[1], state[7] = out[0];
}

#endif

static void hash_blocks(uint32_t state[8], const uint8_t *bytes, size_t blocks)
{
#ifdef __x86_64__
    unsigned a, b, c, d;

    if (__builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
        (b >> 29 & 1) != 0) {
        blocks_instructions(state, bytes, blocks);
        return;
    }
#endif
    elf_sha256_blocks_portable(state, bytes, blocks);
}

void elf_sha256_init(struct elf_sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(sha->state, start, sizeof start);
    sha->length = 0;
}

void elf_sha256_update(struct elf_sha256 *sha, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    size_t used = sha->length % 64;

    sha->length += length;
    if (used > 0) {
        size_t part = length < 64 - used ? length : 64 - used;

        memcpy(sha->block + used, from, part);
        from += part;
        length -= part;
        if (used + part < 64)
            return;
        hash_blocks(sha->state, sha->block, 1);
    }
    hash_blocks(sha->state, from, length / 64);
    memcpy(sha->block, from + length / 64 * 64, length % 64);
}

void elf_sha256_final(struct elf_sha256 *sha, uint8_t digest[ELF_SHA256_SIZE])
{
    const uint64_t bits = htobe64(sha->length * 8);
    size_t used = sha->length % 64;
    uint8_t tail[72] = {0x80};
    size_t pad = (used < 56 ? 56 : 120) - used;

    memcpy(tail + pad, &bits, sizeof bits);
    elf_sha256_update(sha, tail, pad + 8);
    for (size_t i = 0; i < 8; i++)
        memcpy(digest + 4 * i, &(uint32_t){htobe32(sha->state[i])}, 4);
}
