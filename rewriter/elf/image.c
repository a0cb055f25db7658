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

/* Checks the ELF header, the first 64 bytes of a file, and says what a file is that cannot
 * be patched.
 *
 * Owns nothing. The file is hostile: every field is checked here or where it is used. */

#define MAX_SEGMENTS 512 /* real files have about a dozen */

const char *elf_machine_name(unsigned machine)
{
    return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "aarch64" : "other";
}

static int check_ident(const struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    const char *name = image->source.name;

    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) {
        if (memcmp(h->e_ident, "#!", 2) == 0)
            return gs_err_set(err, -ENOEXEC,
                              "%s: is a script; patch the interpreter named in its first line",
                              name);
        return gs_err_set(err, -ENOEXEC,
                          "%s: is not an ELF file; name a Linux program or library", name);
    }
    if (memcmp(h->e_ident + EI_ABIVERSION, "AI\1", 3) == 0 ||
        memcmp(h->e_ident + EI_ABIVERSION, "AI\2", 3) == 0)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is an AppImage, which keeps its programs in an archive; extract "
                          "them with --appimage-extract, then run gpushare-patch --tree "
                          "squashfs-root",
                          name);
    if (h->e_ident[EI_CLASS] != ELFCLASS64)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is a 32-bit file; only 64-bit files can be patched, as CUDA "
                          "programs are",
                          name);
    if (h->e_ident[EI_DATA] != ELFDATA2LSB)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is a big-endian file; only x86-64 and aarch64 can be patched",
                          name);
    if (h->e_ident[EI_OSABI] != ELFOSABI_NONE && h->e_ident[EI_OSABI] != ELFOSABI_GNU &&
        h->e_machine != EM_CUDA)
        return gs_err_set(
            err, -ENOEXEC,
            "%s: was built for another system (ELF OSABI %u), which glibc's loader "
            "rejects; only Linux programs can be patched",
            name, h->e_ident[EI_OSABI]);
    if (h->e_ident[EI_VERSION] != EV_CURRENT)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: ELF version %u, not 1", name,
                          h->e_ident[EI_VERSION]);
    return 0;
}

static int check_rest(const struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    const char *name = image->source.name;

    if (h->e_machine == EM_CUDA)
        return gs_err_set(err, -ENOEXEC,
                          "%s: holds GPU code (a cubin); patch the program that loads it",
                          name);
    if (h->e_type == ET_REL)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is an object file; link it with gpushare-cc instead", name);
    if (h->e_type == ET_CORE)
        return gs_err_set(err, -ENOEXEC, "%s: is a core dump; name the program instead", name);
    if (h->e_type != ET_EXEC && h->e_type != ET_DYN)
        return gs_err_set(err, -ENOEXEC,
                          "%s: has ELF type %u, which is neither a program nor a library", name,
                          h->e_type);
    if (h->e_machine != EM_X86_64 && h->e_machine != EM_AARCH64)
        return gs_err_set(
            err, -ENOEXEC,
            "%s: was built for ELF machine %u; only x86-64 and aarch64 can be patched", name,
            h->e_machine);
    if (h->e_ehsize != sizeof *h)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: e_ehsize is %u, not 64", name,
                          h->e_ehsize);
    if (h->e_phnum == 0 || h->e_phentsize != sizeof(Elf64_Phdr))
        return gs_err_set(err, -ENOEXEC, "%s: damaged: e_phnum is %u, e_phentsize %u (not 56)",
                          name, h->e_phnum, h->e_phentsize);
    if (h->e_phnum > MAX_SEGMENTS)
        return gs_err_set(err, -ENOEXEC, "%s: e_phnum is %u; more than %d is not supported",
                          name, h->e_phnum, MAX_SEGMENTS);
    if (h->e_phoff < sizeof *h || h->e_phoff % 8 != 0)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: e_phoff is 0x%llx", name,
                          (unsigned long long)h->e_phoff);
    return 0;
}

int elf_header_check(const struct elf_image *image, struct gs_err *err)
{
    return check_ident(image, err) ?: check_rest(image, err);
}

/* Follows the version tables (LSB "Symbol Versioning") as the loader does.
 *
 * Each entry says how far away the next one is. The loader (glibc, elf/dl-version.c) uses
 * no count, so an entry that leads out of the file makes it read beyond it. */

#define NOTHING SIZE_MAX   /* no such field */
#define MAX     (1u << 16) /* entries; their numbers have 15 bits */

/* The fields' places in an entry and in the part that it points to. */
struct layout {
    const char *tag;
    size_t size, name, hangs, next, /* of an entry: bytes, offsets of fields */
        hung_size, hung_name, hung_next;
};

static const struct layout needed = {"DT_VERNEED",
                                     sizeof(Elf64_Verneed),
                                     offsetof(Elf64_Verneed, vn_file),
                                     offsetof(Elf64_Verneed, vn_aux),
                                     offsetof(Elf64_Verneed, vn_next),
                                     sizeof(Elf64_Vernaux),
                                     offsetof(Elf64_Vernaux, vna_name),
                                     offsetof(Elf64_Vernaux, vna_next)};
/* of the names of a definition the loader reads only the first */
static const struct layout defined = {"DT_VERDEF",
                                      sizeof(Elf64_Verdef),
                                      NOTHING,
                                      offsetof(Elf64_Verdef, vd_aux),
                                      offsetof(Elf64_Verdef, vd_next),
                                      sizeof(Elf64_Verdaux),
                                      offsetof(Elf64_Verdaux, vda_name),
                                      NOTHING};

static uint32_t get_field(const uint8_t *entry, size_t field)
{
    uint32_t value = 0;

    if (field != NOTHING)
        memcpy(&value, entry + field, sizeof value);
    return value;
}

/* Reads one entry and looks at its name. */
static int read_entry(const struct elf_image *image, uint64_t address, size_t size, size_t name,
                      uint8_t *entry)
{
    uint64_t offset;

    if (elf_image_offset(image, address, size, &offset) != 0 ||
        elf_source_read(&image->source, offset, entry, size, NULL) != 0 ||
        elf_image_string(image, get_field(entry, name)) == NULL)
        return -ENOEXEC;
    return 0;
}

static int follow_table(const struct elf_image *image, uint64_t address, const struct layout *l)
{
    uint8_t entry[sizeof(Elf64_Verdef)], hung[sizeof(Elf64_Vernaux)]; /* the larger ones */
    unsigned count = 0;

    for (;;) {
        uint64_t at;

        if (read_entry(image, address, l->size, l->name, entry) != 0)
            return -ENOEXEC;
        at = address + get_field(entry, l->hangs);
        for (;;) {
            if (read_entry(image, at, l->hung_size, l->hung_name, hung) != 0 || ++count > MAX)
                return -ENOEXEC;
            if (get_field(hung, l->hung_next) == 0)
                break;
            at += get_field(hung, l->hung_next);
        }
        if (get_field(entry, l->next) == 0)
            return 0;
        address += get_field(entry, l->next);
    }
}

int elf_versions_check(const struct elf_image *image, struct gs_err *err)
{
    const struct layout *bad = NULL;

    if (image->tables.verneed.address != 0 &&
        follow_table(image, image->tables.verneed.address, &needed) != 0)
        bad = &needed;
    else if (image->tables.verdef.address != 0 &&
             follow_table(image, image->tables.verdef.address, &defined) != 0)
        bad = &defined;
    if (bad == NULL)
        return 0;
    return gs_err_set(err, -ENOEXEC, "%s: damaged: an entry of %s points outside the file",
                      image->source.name, bad->tag);
}
