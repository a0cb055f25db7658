/* SPDX-License-Identifier: Apache-2.0
 *
 * image.c: owns the reading of module images: fatbin wrapper, fatbin, cubin (ELF), PTX text.
 *
 * The interface hands over a pointer without a size, so the image's own lengths bound what is
 * read; each is checked against the length that contains it. A fatbin's cubins give names and
 * parameters of the kernels and the device variables; where there is none that can be read
 * (PTX, compressed), names are taken as they are asked for (any_name). Layout facts: observed
 * on nvcc 13.0's output (../shared/CUDART.md), gABI for the ELF part. Threads: any; touches
 * nothing but its arguments.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/module.h"

#define WRAPPER_MAGIC  0x466243b1u
#define FATBIN_MAGIC   0xba55ed50u
#define ENTRY_CUBIN    2
#define ENTRY_PACKED   0xa000u /* zstd or LZ4 */
#define IMAGE_MOST     (4ull << 30)
#define KERNEL_FLAG    0x10
#define MANAGED_FLAG   0x04
#define INFO_PARAMETER 0x17
#define INFO_THREADS   0x05

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *file;
};
struct fatbin {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size; /* of the entries behind the header */
};
struct entry {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t size;
    uint32_t packed_size, options;
    uint16_t minor, major;
    uint32_t arch, name_offset, name_size;
    uint64_t flags;
};

struct elf {
    const uint8_t *bytes;
    size_t size;
    const Elf64_Shdr *sections;
    unsigned count;
    const char *names;
    size_t names_size;
};

void sim_image_free(struct sim_image *image)
{
    for (size_t i = 0; i < image->kernel_count; i++) {
        free(image->kernel[i].name);
        free(image->kernel[i].parameter);
    }
    for (size_t i = 0; i < image->global_count; i++) {
        free(image->global[i].name);
        free(image->global[i].data);
    }
    free(image->kernel);
    free(image->global);
    memset(image, 0, sizeof *image);
}

static const void *elf_range(const struct elf *elf, uint64_t offset, uint64_t size)
{
    return offset <= elf->size && size <= elf->size - offset ? elf->bytes + offset : NULL;
}

/* The contents of a section; NULL if it has none in the file or lies outside. */
static const void *section_bytes(const struct elf *elf, const Elf64_Shdr *section)
{
    return section->sh_type == SHT_NOBITS
               ? NULL
               : elf_range(elf, section->sh_offset, section->sh_size);
}

static const char *elf_string(const char *table, size_t size, size_t offset)
{
    return table && offset < size && memchr(table + offset, '\0', size - offset)
               ? table + offset
               : "";
}

static const Elf64_Shdr *section_named(const struct elf *elf, const char *prefix,
                                       const char *name)
{
    const size_t length = strlen(prefix);

    for (unsigned i = 0; i < elf->count; i++) {
        const char *text = elf_string(elf->names, elf->names_size, elf->sections[i].sh_name);
        if (strncmp(text, prefix, length) == 0 && strcmp(text + length, name) == 0)
            return &elf->sections[i];
    }
    return NULL;
}

static CUresult elf_open(const void *bytes, size_t most, struct elf *elf)
{
    const Elf64_Ehdr *header = bytes;

    if (most < sizeof *header || (uintptr_t)bytes % 8 ||
        memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff % _Alignof(Elf64_Shdr))
        return CUDA_ERROR_INVALID_IMAGE;
    *elf = (struct elf){.bytes = bytes, .size = most, .count = header->e_shnum};
    elf->sections =
        elf_range(elf, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr));
    if (!elf->sections || header->e_shstrndx >= header->e_shnum)
        return CUDA_ERROR_INVALID_IMAGE;
    elf->names = section_bytes(elf, &elf->sections[header->e_shstrndx]);
    elf->names_size = elf->sections[header->e_shstrndx].sh_size;
    return elf->names ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* One attribute of .nv.info: format, code, size, payload. Parameters: words of index/ordinal,
 * offset<<16, size<<18. */
static void info_attribute(struct sim_image_kernel *kernel, uint8_t code,
                           const uint8_t *payload, size_t size)
{
    uint32_t word[3] = {0};

    memcpy(word, payload, size < sizeof word ? size : sizeof word);
    if (code == INFO_PARAMETER && size == sizeof word) {
        const unsigned index = word[1] & 0xffff;
        if (index >= SIM_PARAMS_MAX)
            return;
        kernel->parameter[index] = (struct sim_parameter){word[1] >> 16, word[2] >> 18};
        if (index >= kernel->parameter_count)
            kernel->parameter_count = index + 1;
    } else if (code == INFO_THREADS && size >= 4) {
        kernel->max_threads = word[0] > 1024 ? 1024 : word[0];
    }
}

static void read_info(const struct elf *elf, struct sim_image_kernel *kernel)
{
    const Elf64_Shdr *section = section_named(elf, ".nv.info.", kernel->name);
    const uint8_t *info = section ? section_bytes(elf, section) : NULL;
    const size_t size = info ? section->sh_size : 0;

    kernel->known = true;
    for (size_t at = 0; at + 4 <= size;) {
        const uint8_t format = info[at], code = info[at + 1];
        const size_t value = (size_t)info[at + 2] | (size_t)info[at + 3] << 8;
        at += 4;
        if (format != 4) /* the value is in the header itself */
            continue;
        if (value > size - at)
            break;
        info_attribute(kernel, code, info + at, value);
        at += value;
    }
}

static CUresult add_kernel(struct sim_image *image, const struct elf *elf, const char *name)
{
    for (size_t i = 0; i < image->kernel_count; i++)
        if (strcmp(image->kernel[i].name, name) == 0)
            return CUDA_SUCCESS; /* the same kernel for another architecture */
    struct sim_image_kernel *more =
        realloc(image->kernel, (image->kernel_count + 1) * sizeof *more);
    if (!more)
        return CUDA_ERROR_OUT_OF_MEMORY;
    image->kernel = more;
    struct sim_image_kernel *kernel = &more[image->kernel_count];
    *kernel = (struct sim_image_kernel){
        .name = strdup(name),
        .registers = 32,
        .max_threads = 1024,
        .parameter = calloc(SIM_PARAMS_MAX, sizeof(struct sim_parameter))};
    image->kernel_count++; /* freed with the image, half-built or not */
    if (!kernel->name || !kernel->parameter)
        return CUDA_ERROR_OUT_OF_MEMORY;
    read_info(elf, kernel);
    const Elf64_Shdr *shared = section_named(elf, ".nv.shared.", name);
    kernel->shared_bytes =
        shared && shared->sh_size < (1u << 20) ? (unsigned)shared->sh_size : 0;
    const Elf64_Shdr *text = section_named(elf, ".text.", name);
    if (text && text->sh_info >> 24) /* registers are in the top byte */
        kernel->registers = text->sh_info >> 24;
    return CUDA_SUCCESS;
}

static CUresult add_global(struct sim_image *image, const struct elf *elf,
                           const Elf64_Sym *symbol, const char *name)
{
    const Elf64_Shdr *section = &elf->sections[symbol->st_shndx];

    for (size_t i = 0; i < image->global_count; i++)
        if (strcmp(image->global[i].name, name) == 0)
            return CUDA_SUCCESS;
    struct sim_image_global *more =
        realloc(image->global, (image->global_count + 1) * sizeof *more);
    if (!more)
        return CUDA_ERROR_OUT_OF_MEMORY;
    image->global = more;
    struct sim_image_global *global = &more[image->global_count];
    *global = (struct sim_image_global){.name = strdup(name),
                                        .size = symbol->st_size,
                                        .managed = (symbol->st_other & MANAGED_FLAG) != 0};
    image->global_count++;
    if (!global->name)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint8_t *bytes = section_bytes(elf, section);
    if (!bytes || symbol->st_value > section->sh_size ||
        symbol->st_size > section->sh_size - symbol->st_value)
        return CUDA_SUCCESS; /* no first value: zero */
    global->data = malloc(symbol->st_size);
    if (!global->data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(global->data, bytes + symbol->st_value, symbol->st_size);
    return CUDA_SUCCESS;
}

static CUresult read_cubin(const void *bytes, size_t most, struct sim_image *image)
{
    struct elf elf;
    CUresult result = elf_open(bytes, most, &elf);
    const Elf64_Shdr *table = result ? NULL : section_named(&elf, ".symtab", "");

    if (result)
        return result;
    if (!table || table->sh_entsize != sizeof(Elf64_Sym) || table->sh_link >= elf.count)
        return CUDA_ERROR_INVALID_IMAGE;
    const Elf64_Sym *symbols = section_bytes(&elf, table);
    const char *names = section_bytes(&elf, &elf.sections[table->sh_link]);
    if (!symbols || !names || (uintptr_t)symbols % _Alignof(Elf64_Sym))
        return CUDA_ERROR_INVALID_IMAGE;
    for (size_t i = 0; i < table->sh_size / sizeof *symbols && !result; i++) {
        const Elf64_Sym *symbol = &symbols[i];
        const char *name =
            elf_string(names, elf.sections[table->sh_link].sh_size, symbol->st_name);
        if (!*name || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= elf.count)
            continue;
        if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && (symbol->st_other & KERNEL_FLAG))
            result = add_kernel(image, &elf, name);
        else if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && symbol->st_size &&
                 symbol->st_size < IMAGE_MOST)
            result = add_global(image, &elf, symbol, name);
    }
    return result;
}

/* An ELF file that stands alone ends behind the last of its sections and its section table. */
static size_t cubin_size(const void *bytes)
{
    const Elf64_Ehdr *header = bytes;
    const uint64_t table_end = header->e_shoff + (uint64_t)header->e_shnum * sizeof(Elf64_Shdr);
    uint64_t end = table_end;

    if (header->e_shoff > IMAGE_MOST || header->e_shoff % _Alignof(Elf64_Shdr))
        return 0;
    const Elf64_Shdr *sections =
        (const Elf64_Shdr *)(const void *)((const char *)bytes + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type != SHT_NOBITS && sections[i].sh_offset < IMAGE_MOST &&
            sections[i].sh_size < IMAGE_MOST &&
            sections[i].sh_offset + sections[i].sh_size > end)
            end = sections[i].sh_offset + sections[i].sh_size;
    return (size_t)end;
}

static CUresult read_fatbin(const struct fatbin *fatbin, struct sim_image *image)
{
    CUresult result = CUDA_SUCCESS;
    bool read = false;

    if (fatbin->header_size < sizeof *fatbin || fatbin->size > IMAGE_MOST)
        return CUDA_ERROR_INVALID_IMAGE;
    const char *at = (const char *)fatbin + fatbin->header_size;
    const char *end = at + fatbin->size;
    while ((size_t)(end - at) >= sizeof(struct entry) && !result) {
        struct entry entry;
        memcpy(&entry, at, sizeof entry);
        if (entry.header_size < sizeof entry || entry.header_size > (size_t)(end - at) ||
            entry.size > (size_t)(end - at) - entry.header_size)
            return CUDA_ERROR_INVALID_IMAGE;
        if (entry.kind == ENTRY_CUBIN && !(entry.flags & ENTRY_PACKED)) {
            result = read_cubin(at + entry.header_size, entry.size, image);
            read = true;
        } else if (entry.kind == ENTRY_CUBIN) {
            image->any_name = true;
        }
        at += entry.header_size + entry.size;
    }
    if (!read)
        image->any_name = true;
    return result;
}

CUresult sim_image_read(const void *code, struct sim_image *image)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t magic = 0;

    memset(image, 0, sizeof *image);
    if (!code)
        return CUDA_ERROR_INVALID_VALUE;
    if (strnlen(code, sizeof magic) <
        sizeof magic) /* no magic number below holds a zero byte */
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&magic, code, sizeof magic);
    if (magic == WRAPPER_MAGIC && (uintptr_t)code % _Alignof(struct wrapper) == 0) {
        code = ((const struct wrapper *)code)->data;
        if (!code)
            return CUDA_ERROR_INVALID_IMAGE;
        memcpy(&magic, code, sizeof magic);
    }
    const bool aligned = (uintptr_t)code % 8 == 0;
    if (magic == FATBIN_MAGIC && aligned)
        result = read_fatbin(code, image);
    else if (memcmp(&magic, ELFMAG, SELFMAG) == 0 && aligned)
        result = read_cubin(code, cubin_size(code), image);
    else if (memchr(code, '.', 4) || memchr(code, '/', 4) || memchr(code, '\n', 4))
        image->any_name = true; /* PTX: ".version" behind comments and blank lines */
    else
        result = CUDA_ERROR_INVALID_IMAGE;
    if (result)
        sim_image_free(image);
    return result;
}
