/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c: checked positioned reads of a file seen through its undo note.
 *
 * Owns nothing: descriptor, memory and undo list belong to the caller. Nothing is mapped, so that
 * a file which shrinks during the work causes an error and no SIGBUS. No state, any thread.
 */
#include "rewriter/elf/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void elf_changes_apply(const struct elf_change *changes, size_t count, uint64_t offset,
                       uint8_t *buffer, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        const struct elf_change *change = &changes[i];
        uint64_t from = change->offset > offset ? change->offset : offset;
        uint64_t end = change->offset + change->length;

        if (end > offset + length)
            end = offset + length;
        if (from < end)
            memcpy(buffer + (from - offset), change->bytes + (from - change->offset),
                   (size_t)(end - from));
    }
}

static int read_fd(const struct elf_source *source, uint64_t offset, uint8_t *buffer,
                   size_t length, struct gs_err *err)
{
    size_t done = 0;

    while (done < length) {
        ssize_t n = pread(source->fd, buffer + done, length - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gs_err_errno(err, -errno, "%s: cannot read", source->name);
        if (n == 0)
            return gs_err_set(err, -EIO, "%s: became shorter while being read; try again",
                              source->name);
        done += (size_t)n;
    }
    return 0;
}

int elf_source_read(const struct elf_source *source, uint64_t offset, void *buffer,
                    size_t length, struct gs_err *err)
{
    int ret = 0;

    if (offset > source->size || length > source->size - offset)
        return elf_refuse(
            source->name, err,
            "damaged: %zu bytes at offset 0x%llx lie outside the file (0x%llx bytes)", length,
            (unsigned long long)offset, (unsigned long long)source->size);
    if (length == 0)
        return 0;
    if (source->memory != NULL)
        memcpy(buffer, source->memory + offset, length);
    else
        ret = read_fd(source, offset, buffer, length, err);
    if (ret == 0)
        elf_changes_apply(source->undo, source->undo_count, offset, buffer, length);
    return ret;
}

void *elf_source_load(const struct elf_source *source, uint64_t offset, uint64_t length,
                      struct gs_err *err)
{
    uint8_t *buffer;

    /* before malloc: no allocation by an unchecked number */
    if (offset > source->size || length > source->size - offset) {
        elf_source_read(source, offset, NULL, (size_t)length, err);
        return NULL;
    }
    buffer = malloc(length > 0 ? (size_t)length : 1);
    if (buffer == NULL) {
        gs_err_set(err, -ENOMEM, "%s: out of memory (%llu bytes)", source->name,
                   (unsigned long long)length);
        return NULL;
    }
    if (elf_source_read(source, offset, buffer, (size_t)length, err) != 0) {
        free(buffer);
        return NULL;
    }
    return buffer;
}
