/* SPDX-License-Identifier: Apache-2.0
 *
 * image.c: owns the tables of struct elf_image, and looks things up in them. No state, any thread.
 */
#include "rewriter/elf/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Checked positioned reads of a file seen through its undo note. Owns nothing: descriptor,
 * memory and undo list belong to the caller. Nothing is mapped, so that a file which shrinks
 * during the work causes an error and no SIGBUS. No state, any thread. */

void elf_changes_apply(const struct elf_change *changes, size_t count, uint64_t offset,
                       uint8_t *buffer, size_t length)
{
    gs_each (change, changes, count) {
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

#define MAX_ZEROS (64ull << 20) /* bytes; Zig's linker leaves up to 3 MB */

void elf_image_deinit(struct elf_image *image)
{
    free(image->segments);
    free(image->sections);
    free(image->section_names);
    free(image->dynamic.entries);
    free(image->tables.string_bytes);
    free(image->interpreter);
    *image = (struct elf_image){.source = {.fd = -1}};
}

int elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t size,
                     uint64_t *offset)
{
    gs_each (p, image->segments, image->header.e_phnum) {
        if (p->p_type == PT_LOAD && address >= p->p_vaddr &&
            address - p->p_vaddr <= p->p_filesz &&
            size <= p->p_filesz - (address - p->p_vaddr)) {
            *offset = p->p_offset + (address - p->p_vaddr);
            return 0;
        }
    }
    return -ENOENT;
}

const char *elf_image_section_name(const struct elf_image *image, size_t index)
{
    return index < image->section_count ? image->section_names + image->sections[index].sh_name
                                        : "";
}

size_t elf_image_section(const struct elf_image *image, const char *name)
{
    for (size_t i = 1; i < image->section_count; i++)
        if (strcmp(elf_image_section_name(image, i), name) == 0)
            return i;
    return ELF_NO_SECTION;
}

const char *elf_image_string(const struct elf_image *image, uint64_t offset)
{
    return offset < image->tables.strings.size ? image->tables.string_bytes + offset : NULL;
}

const Elf64_Dyn *elf_image_dynamic(const struct elf_image *image, int64_t tag)
{
    for (size_t i = 0; i < image->dynamic.count; i++)
        if (image->dynamic.entries[i].d_tag == tag)
            return &image->dynamic.entries[i];
    return NULL;
}

bool elf_image_has_payload(const struct elf_image *image)
{
    uint64_t at = image->data_end, size = image->source.size - at;
    uint8_t bytes[4096] = {0};

    if (size > MAX_ZEROS)
        return true;
    while (size > 0) {
        size_t n = size < sizeof bytes ? (size_t)size : sizeof bytes;

        if (elf_source_read(&image->source, at, bytes, n, NULL) != 0)
            return true;
        for (size_t i = 0; i < n; i++)
            if (bytes[i] != 0)
                return true;
        at += n;
        size -= n;
    }
    return false;
}

bool elf_image_is_program(const struct elf_image *image)
{
    return image->header.e_type == ET_EXEC || (image->dynamic.flags_1 & DF_1_PIE) ||
           (image->interpreter != NULL && image->dynamic.soname == NULL);
}

const char *elf_machine_name(unsigned machine)
{
    return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "aarch64" : "other";
}
