/* SPDX-License-Identifier: Apache-2.0
 *
 * source.h: the bytes of a file as they were before gpushare-patch changed it.
 *
 * A file that is already patched has an undo note. Seen through it, the source has its original
 * size and bytes. So the rest of the rewriter only deals with unpatched files.
 */
#pragma once

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* One changed range: `length` bytes at `offset`, which were `bytes`. */
struct elf_change {
    uint64_t offset;
    uint32_t length;
    const uint8_t *bytes;
};

/* The errors that name a file: it cannot be patched or restored; or what was made of it is wrong. */
#define elf_refuse(name, err, format, ...)                                                     \
    gs_err_set(err, -ENOEXEC, "%s: " format, name, ##__VA_ARGS__)
#define elf_distrust(name, err, format, ...)                                                   \
    gs_err_set(err, -EIO,                                                                      \
               "%s: " format "; the old file is left unchanged. Please report this", name,     \
               ##__VA_ARGS__)

struct elf_source {
    const char *name;              /* for messages */
    int fd;                        /* read with pread; or -1 and memory */
    const uint8_t *memory;         /* tests and the fuzzer */
    uint64_t size;                 /* bytes that can be read, at most what the file has */
    const struct elf_change *undo; /* ascending, not overlapping; borrowed */
    size_t undo_count;
};

/* Reads exactly length bytes. 0; -ENOEXEC if they are not all inside the source (or the file
 * shrank meanwhile); or the negative errno of pread. */
int elf_source_read(const struct elf_source *source, uint64_t offset, void *buffer,
                    size_t length, struct gs_err *err);

/* As elf_source_read() into fresh memory, which the caller frees. NULL after an error; a length
 * of 0 gives one byte. */
void *elf_source_load(const struct elf_source *source, uint64_t offset, uint64_t length,
                      struct gs_err *err);

/* Writes the bytes of the changes that fall into [offset, offset + length) over buffer, in the
 * order of the list. */
void elf_changes_apply(const struct elf_change *changes, size_t count, uint64_t offset,
                       uint8_t *buffer, size_t length);
