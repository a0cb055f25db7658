/* SPDX-License-Identifier: Apache-2.0
 *
 * image.c: owns the tables of struct elf_image, and looks things up in them. No state, any thread.
 */
#include "rewriter/elf/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    for (size_t i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

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
    uint8_t bytes[4096];

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
