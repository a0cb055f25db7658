/* SPDX-License-Identifier: Apache-2.0
 *
 * reader.c: reads the headers, segments and sections of an ELF file and checks every number in them.
 *
 * The file is hostile: a count or offset is compared with the file's size before it is used to read
 * or allocate. Tables of the dynamic linker are read in dynamic.c. No state, any thread.
 */
#include "rewriter/elf/reader.h"
#include "rewriter/elf/dynamic.h"

#include <errno.h>
#include <string.h>

#define MAX_SEGMENTS      512        /* real files have about a dozen */
#define MAX_SECTION_NAMES (16 << 20) /* bytes */
#define MAX_INTERPRETER   4096

/* Checks the first 16 bytes of the ELF header, and says what a file is that cannot be patched. */
static int check_ident(const struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    const char *name = image->source.name;

    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) {
        if (memcmp(h->e_ident, "#!", 2) == 0)
            return elf_refuse(name, err,
                              "is a script; patch the interpreter named in its first line");
        return elf_refuse(name, err, "is not an ELF file; name a Linux program or library");
    }
    if (memcmp(h->e_ident + EI_ABIVERSION, "AI\1", 3) == 0 ||
        memcmp(h->e_ident + EI_ABIVERSION, "AI\2", 3) == 0)
        return elf_refuse(
            name, err,
            "is an AppImage, which keeps its programs in an archive; extract them with "
            "--appimage-extract, then run gpushare-patch --tree squashfs-root");
    if (h->e_ident[EI_CLASS] != ELFCLASS64)
        return elf_refuse(
            name, err,
            "is a 32-bit file; only 64-bit files can be patched, as CUDA programs are");
    if (h->e_ident[EI_DATA] != ELFDATA2LSB)
        return elf_refuse(name, err,
                          "is a big-endian file; only x86-64 and aarch64 can be patched");
    if (h->e_ident[EI_OSABI] != ELFOSABI_NONE && h->e_ident[EI_OSABI] != ELFOSABI_GNU &&
        h->e_machine != EM_CUDA)
        return elf_refuse(name, err,
                          "was built for another system (ELF OSABI %u), which glibc's loader "
                          "rejects; only Linux programs can be patched",
                          h->e_ident[EI_OSABI]);
    if (h->e_ident[EI_VERSION] != EV_CURRENT)
        return elf_refuse(name, err, "damaged: ELF version %u, not 1", h->e_ident[EI_VERSION]);
    return 0;
}

static int check_rest(const struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    const char *name = image->source.name;

    if (h->e_machine == EM_CUDA)
        return elf_refuse(name, err,
                          "holds GPU code (a cubin); patch the program that loads it");
    if (h->e_type == ET_REL)
        return elf_refuse(name, err, "is an object file; link it with gpushare-cc instead");
    if (h->e_type == ET_CORE)
        return elf_refuse(name, err, "is a core dump; name the program instead");
    if (h->e_type != ET_EXEC && h->e_type != ET_DYN)
        return elf_refuse(
            name, err, "has ELF type %u, which is neither a program nor a library", h->e_type);
    if (h->e_machine != EM_X86_64 && h->e_machine != EM_AARCH64)
        return elf_refuse(
            name, err, "was built for ELF machine %u; only x86-64 and aarch64 can be patched",
            h->e_machine);
    if (h->e_ehsize != sizeof *h)
        return elf_refuse(name, err, "damaged: e_ehsize is %u, not 64", h->e_ehsize);
    if (h->e_phnum == 0 || h->e_phentsize != sizeof(Elf64_Phdr))
        return elf_refuse(name, err, "damaged: e_phnum is %u, e_phentsize %u (not 56)",
                          h->e_phnum, h->e_phentsize);
    if (h->e_phnum > MAX_SEGMENTS)
        return elf_refuse(name, err, "e_phnum is %u; more than %d is not supported", h->e_phnum,
                          MAX_SEGMENTS);
    if (h->e_phoff < sizeof *h || h->e_phoff % 8 != 0)
        return elf_refuse(name, err, "damaged: e_phoff is 0x%llx",
                          (unsigned long long)h->e_phoff);
    return 0;
}

/* Checks one PT_LOAD, after the one that ended at *last_end. */
static int check_load(struct elf_image *image, size_t index, uint64_t *last_end,
                      struct gs_err *err)
{
    const Elf64_Phdr *p = &image->segments[index];
    const char *name = image->source.name;

    if (p->p_memsz < p->p_filesz || p->p_vaddr > UINT64_MAX / 4 || p->p_memsz > UINT64_MAX / 4)
        return elf_refuse(name, err,
                          "damaged: segment %zu has vaddr 0x%llx, filesz 0x%llx, memsz 0x%llx",
                          index, (unsigned long long)p->p_vaddr,
                          (unsigned long long)p->p_filesz, (unsigned long long)p->p_memsz);
    if (p->p_align > 1 && ((p->p_align & (p->p_align - 1)) != 0 || p->p_align > (1ull << 40) ||
                           ((p->p_vaddr - p->p_offset) & (p->p_align - 1)) != 0))
        return elf_refuse(name, err, "damaged: segment %zu has p_align 0x%llx", index,
                          (unsigned long long)p->p_align);
    if (p->p_vaddr < *last_end)
        return elf_refuse(name, err,
                          "segment %zu at 0x%llx starts below the end of the one before it, "
                          "but the loader needs them in ascending order; link the file again",
                          index, (unsigned long long)p->p_vaddr);
    *last_end = p->p_vaddr + p->p_memsz;
    return 0;
}

/* Checks a segment or section that has bytes in the file. */
static int check_extent(struct elf_image *image, const char *what, size_t index,
                        uint64_t offset, uint64_t size, struct gs_err *err)
{
    if (size > image->source.size || offset > image->source.size - size)
        return elf_refuse(image->source.name, err,
                          "damaged or cut off: %s %zu (offset 0x%llx, 0x%llx bytes) ends "
                          "outside the file (0x%llx bytes)",
                          what, index, (unsigned long long)offset, (unsigned long long)size,
                          (unsigned long long)image->source.size);
    if (offset + size > image->data_end)
        image->data_end = offset + size;
    return 0;
}

static int check_segments(struct elf_image *image, struct gs_err *err)
{
    const char *name = image->source.name;
    uint64_t last_end = 0;
    size_t dynamic = 0, loads = 0;

    for (size_t i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type == PT_NULL)
            continue;
        /* without bytes the offset means nothing; in a file that was cut off there it lies
         * behind the end */
        if (p->p_filesz > 0 &&
            check_extent(image, "segment", i, p->p_offset, p->p_filesz, err) != 0)
            return -ENOEXEC;
        if (p->p_type == PT_LOAD && p->p_filesz > 0 &&
            p->p_offset + p->p_filesz > image->image_end)
            image->image_end = p->p_offset + p->p_filesz;
        if (p->p_type == PT_LOAD && check_load(image, i, &last_end, err) != 0)
            return -ENOEXEC;
        loads += p->p_type == PT_LOAD;
        if (p->p_type == PT_DYNAMIC) {
            image->dynamic_segment = i;
            dynamic++;
        }
    }
    image->highest = last_end;
    if (loads == 0 || dynamic > 1)
        return elf_refuse(name, err, "damaged: %zu PT_LOAD and %zu PT_DYNAMIC segments", loads,
                          dynamic);
    if (dynamic == 0)
        return elf_refuse_static(image, err);
    return 0;
}

static int read_interpreter(struct elf_image *image, struct gs_err *err)
{
    gs_each (p, image->segments, image->header.e_phnum) {
        if (p->p_type != PT_INTERP)
            continue;
        if (p->p_filesz == 0 || p->p_filesz > MAX_INTERPRETER || image->interpreter != NULL)
            return elf_refuse(image->source.name, err, "damaged: PT_INTERP has 0x%llx bytes",
                              (unsigned long long)p->p_filesz);
        image->interpreter = elf_source_load(&image->source, p->p_offset, p->p_filesz, err);
        if (image->interpreter == NULL)
            return -ENOEXEC;
        if (image->interpreter[p->p_filesz - 1] != '\0')
            return elf_refuse(image->source.name, err,
                              "damaged: PT_INTERP does not end with a NUL");
    }
    return 0;
}

static int check_section(struct elf_image *image, size_t index, struct gs_err *err)
{
    const Elf64_Shdr *s = &image->sections[index];
    uint64_t size = s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL ? 0 : s->sh_size;

    if (s->sh_name >= image->section_names_size)
        return elf_refuse(image->source.name, err, "damaged: section %zu has sh_name 0x%x",
                          index, s->sh_name);
    if (size == 0)
        return 0; /* the offset means nothing; llvm-strip leaves some behind the end */
    return check_extent(image, "section", index, s->sh_offset, size, err);
}

static int read_section_names(struct elf_image *image, struct gs_err *err)
{
    const Elf64_Shdr *names = &image->sections[image->header.e_shstrndx];

    if (names->sh_type != SHT_STRTAB || names->sh_size == 0 ||
        names->sh_size > MAX_SECTION_NAMES)
        return elf_refuse(image->source.name, err,
                          "damaged: the section names have type %u, 0x%llx bytes",
                          names->sh_type, (unsigned long long)names->sh_size);
    image->section_names =
        elf_source_load(&image->source, names->sh_offset, names->sh_size, err);
    if (image->section_names == NULL)
        return -ENOEXEC;
    image->section_names_size = names->sh_size;
    if (image->section_names[names->sh_size - 1] != '\0')
        return elf_refuse(image->source.name, err,
                          "damaged: the section names do not end with a NUL");
    return 0;
}

static int read_sections(struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    uint64_t end = h->e_shoff + h->e_shnum * sizeof(Elf64_Shdr);
    int ret;

    if (h->e_shoff == 0 && h->e_shnum == 0)
        return 0;
    if (h->e_shnum == 0 && h->e_shstrndx == SHN_XINDEX)
        return elf_refuse(
            image->source.name, err,
            "has more than %d sections, which is not supported; link it again with fewer",
            SHN_LORESERVE - 1);
    if (h->e_shnum == 0 || h->e_shnum >= SHN_LORESERVE ||
        h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shstrndx == 0 ||
        h->e_shstrndx >= h->e_shnum || h->e_shoff % 8 != 0 || end < h->e_shoff)
        return elf_refuse(image->source.name, err,
                          "damaged: e_shoff 0x%llx, e_shnum %u, e_shentsize %u, e_shstrndx %u",
                          (unsigned long long)h->e_shoff, h->e_shnum, h->e_shentsize,
                          h->e_shstrndx);
    image->sections =
        elf_source_load(&image->source, h->e_shoff, h->e_shnum * sizeof(Elf64_Shdr), err);
    if (image->sections == NULL)
        return -ENOEXEC;
    image->section_count = h->e_shnum;
    if (end > image->data_end)
        image->data_end = end;
    ret = read_section_names(image, err);
    for (size_t i = 0; ret == 0 && i < image->section_count; i++)
        ret = check_section(image, i, err);
    return ret;
}

/* A file of debug information has the headers of its program, but not the contents. */
static int refuse_debug_only(const struct elf_image *image, struct gs_err *err)
{
    for (size_t i = 1; i < image->section_count; i++)
        if (image->sections[i].sh_type == SHT_NOBITS && image->sections[i].sh_size > 0 &&
            (image->sections[i].sh_flags & SHF_EXECINSTR))
            return elf_refuse(
                image->source.name, err,
                "holds only debug information; name the program or library that it belongs to");
    return 0;
}

static int read_all(struct elf_image *image, struct gs_err *err)
{
    const struct elf_source *source = &image->source;
    size_t size = sizeof image->header;
    int ret;

    if (source->size < size)
        size = (size_t)source->size;
    ret = elf_source_read(source, 0, &image->header, size, err);
    if (ret == 0 && size < sizeof image->header &&
        memcmp(image->header.e_ident, ELFMAG, SELFMAG) == 0)
        return elf_refuse(source->name, err, "damaged or cut off: only %zu bytes", size);
    ret = ret ?: check_ident(image, err);
    ret = ret ?: check_rest(image, err);
    if (ret != 0)
        return ret;
    image->page = image->header.e_machine == EM_AARCH64 ? 0x10000 : 0x1000;
    image->segments = elf_source_load(source, image->header.e_phoff,
                                      image->header.e_phnum * sizeof(Elf64_Phdr), err);
    if (image->segments == NULL)
        return -ENOEXEC;
    /* A loadable segment of no bytes counts as none: nothing is mapped there, whatever its place
     * (strip leaves such segments when patchelf has moved all of a segment's sections away). */
    for (size_t i = 0; i < image->header.e_phnum; i++)
        if (image->segments[i].p_type == PT_LOAD && image->segments[i].p_memsz == 0 &&
            image->segments[i].p_filesz == 0)
            image->segments[i].p_type = PT_NULL;
    image->data_end = image->header.e_phoff + image->header.e_phnum * sizeof(Elf64_Phdr);
    ret = read_sections(image, err);
    ret = ret ?: refuse_debug_only(image, err);
    ret = ret ?: check_segments(image, err);
    ret = ret ?: read_interpreter(image, err);
    return ret ?: elf_dynamic_read(image, err);
}

int elf_image_read(struct elf_image *image, const struct elf_source *source, struct gs_err *err)
{
    int ret;

    *image = (struct elf_image){.source = *source};
    ret = read_all(image, err);
    if (ret != 0)
        elf_image_deinit(image);
    return ret;
}
