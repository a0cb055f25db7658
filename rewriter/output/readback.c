/* SPDX-License-Identifier: Apache-2.0
 *
 * readback.c: the proof that a new file is the original except for the planned changes.
 *
 * A stretch that a change touches is compared byte by byte with the original and the changes.
 * Every other stretch must be the original's. With `whole` it is read and summed up, and the sum
 * must be what the reader of the original got. Without `whole` we trust the kernel to
 * have written the given bytes, as cp does. One thread at a time.
 */
#include "rewriter/output/readback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STRETCH ((size_t)256 * 1024) /* bytes compared at a time; two stay in the cache */

int elf_readback_init(struct elf_readback *back, uint64_t image_end, struct gs_err *err)
{
    back->buffers = aligned_alloc(STRETCH, 2 * STRETCH);
    if (back->buffers == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", back->original->name);
    elf_sums_init(&back->sums, image_end);
    return 0;
}

void elf_readback_deinit(struct elf_readback *back)
{
    free(back->buffers);
    back->buffers = NULL;
}

static int refuse_difference(const struct elf_readback *back, uint64_t offset,
                             struct gs_err *err)
{
    return gs_err_set(err, -EIO,
                      "%s: the new file is not as planned (near offset 0x%llx); the old file "
                      "is left unchanged. Please report this",
                      back->original->name, (unsigned long long)offset);
}

static bool touches_range(const struct elf_change *changes, size_t count, uint64_t from,
                          uint64_t to)
{
    for (size_t i = 0; i < count; i++)
        if (changes[i].offset < to && changes[i].offset + changes[i].length > from)
            return true;
    return false;
}

static bool is_touched(const struct elf_readback *back, uint64_t from, uint64_t to)
{
    const struct elf_source *original = back->original;

    return touches_range(original->undo, original->undo_count, from, to) ||
           (back->plan != NULL &&
            touches_range(back->plan->changes.list, back->plan->changes.count, from, to));
}

static int check_touched(struct elf_readback *back, uint64_t at, size_t n, struct gs_err *err)
{
    uint8_t *expected = back->buffers, *found = back->buffers + STRETCH;
    int ret = elf_source_read(back->original, at, expected, n, err);

    ret = ret ?: elf_source_read(&back->new, at, found, n, err);
    if (ret != 0)
        return ret;
    if (back->whole)
        elf_sums_update(&back->sums, expected, n);
    if (back->plan != NULL)
        elf_changes_apply(back->plan->changes.list, back->plan->changes.count, at, expected, n);
    return memcmp(expected, found, n) == 0 ? 0 : refuse_difference(back, at, err);
}

int elf_readback_check(struct elf_readback *back, uint64_t from, uint64_t to,
                       struct gs_err *err)
{
    int ret = 0;

    for (uint64_t at = from; ret == 0 && at < to;) {
        size_t n = to - at < STRETCH ? (size_t)(to - at) : STRETCH;

        if (is_touched(back, at, at + n)) {
            ret = check_touched(back, at, n, err);
        } else if (back->whole) {
            ret = elf_source_read(&back->new, at, back->buffers, n, err);
            elf_sums_update(&back->sums, back->buffers, ret == 0 ? n : 0);
        }
        at += n;
    }
    return ret;
}

static int check_tail(struct elf_readback *back, struct gs_err *err)
{
    const struct elf_plan *plan = back->plan;
    uint64_t size = plan->tail.end - plan->tail.segment.offset;
    int ret = 0;

    for (uint64_t at = 0; ret == 0 && at < size;) {
        size_t n = size - at < STRETCH ? (size_t)(size - at) : STRETCH;

        ret =
            elf_source_read(&back->new, plan->tail.segment.offset + at, back->buffers, n, err);
        if (ret == 0 && memcmp(plan->tail.bytes + at, back->buffers, n) != 0)
            ret = refuse_difference(back, plan->tail.segment.offset + at, err);
        at += n;
    }
    return ret;
}

int elf_readback_finish(struct elf_readback *back, const uint8_t whole[ELF_CHECKSUM_SIZE],
                        struct gs_err *err)
{
    uint8_t found[ELF_CHECKSUM_SIZE], image[ELF_CHECKSUM_SIZE];
    struct stat st;
    int ret = 0;

    if (back->whole) {
        elf_sums_final(&back->sums, found, image);
        if (memcmp(found, whole, sizeof found) != 0)
            return gs_err_set(
                err, -EIO,
                "%s: the new file differs from the original outside the planned changes "
                "(is another process writing to it?); the old file is left unchanged, "
                "try again",
                back->original->name);
    }
    if (back->plan != NULL && back->plan->tail.end > back->original->size)
        ret = check_tail(back, err);
    if (ret == 0 && (fstat(back->new.fd, &st) != 0 || (uint64_t)st.st_size != back->new.size))
        ret = refuse_difference(back, back->new.size, err);
    return ret;
}
