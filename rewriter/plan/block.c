/* SPDX-License-Identifier: Apache-2.0
 *
 * block.c: decides what moves when the program header table grows in place.
 *
 * Behind the table lie small parts that only headers and dynamic entries refer to: .interp,
 * notes, hash tables, .init. The block is the smallest run of such parts, each as a whole, that
 * makes room for one header. Parts to which code or data may refer directly do not move, nor do
 * notes that may refer to something relative to their place. No state, any thread.
 */
#include "rewriter/plan/block.h"
#include "rewriter/elf/grow.h"

#include <errno.h>
#include <string.h>

/* Records the bytes that change, and gives the new addresses of what moves.
 *
 * Owns the list of changes of a plan. */

int elf_plan_change(struct elf_plan *plan, uint64_t offset, const void *bytes, size_t length)
{
    struct elf_change *list =
        elf_grow(plan->changes.list, plan->changes.count, &plan->changes.room, sizeof *list);
    uint8_t *copy = malloc(length > 0 ? length : 1);

    if (list != NULL)
        plan->changes.list = list;
    if (list == NULL || copy == NULL) {
        free(copy);
        return -ENOMEM;
    }
    memcpy(copy, bytes, length);
    plan->changes.list[plan->changes.count++] =
        (struct elf_change){.offset = offset, .length = (uint32_t)length, .bytes = copy};
    return 0;
}

uint64_t elf_plan_moved(const struct elf_plan *plan, uint64_t address)
{
    if (address >= plan->block.address && address - plan->block.address < plan->block.size)
        return address - plan->block.address + plan->tail.block.address;
    return address;
}

/* Knows the code of .init that may move with the block behind the program headers.
 *
 * The C library's start files (crti.o, crtn.o) make .init. In a library it calls
 * __gmon_start__, if there is one, and only DT_INIT leads to it. Red Hat's gcc-toolset-15
 * puts it right behind the build id, for x86-64 alone. */

#define CHUNK ((size_t)64 * 1024) /* bytes of code read at a time */
#define REACH (1ull << 30)        /* bytes that a displacement reaches, with room to spare */
#define ENDBR 4                   /* bytes of the first instruction, which may be missing */

/* endbr64; sub $8, %rsp; mov __gmon_start__@GOTPCREL(%rip), %rax; test %rax, %rax; je over;
 * call *%rax; over: add $8, %rsp; ret */
static const uint8_t code[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x48,
                               0x8b, 0x05, 0,    0,    0,    0,    0x48, 0x85, 0xc0,
                               0x74, 0x02, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3};
#define BEHIND (12 + sizeof(int32_t)) /* bytes from the displacement to the end */

static bool is_known_code(const struct elf_image *image, const Elf64_Shdr *s)
{
    uint8_t bytes[sizeof code];
    size_t size = (size_t)s->sh_size;
    uint64_t offset;

    if ((s->sh_size != sizeof code && s->sh_size != sizeof code - ENDBR) ||
        elf_image_offset(image, s->sh_addr, s->sh_size, &offset) != 0 ||
        offset != s->sh_offset ||
        elf_source_read(&image->source, s->sh_offset, bytes, size, NULL) != 0)
        return false;
    memset(bytes + size - BEHIND, 0, sizeof(int32_t));
    return memcmp(bytes, code + (sizeof code - size), size) == 0;
}

/* The section at DT_INIT if its code is known and may move; else ELF_NO_SECTION. */
static size_t elf_init_section(const struct elf_image *image)
{
    const Elf64_Dyn *init = elf_image_dynamic(image, DT_INIT);

    /* a program's start code may call it */
    if (init == NULL || image->header.e_machine != EM_X86_64 || image->interpreter != NULL ||
        image->highest > REACH)
        return ELF_NO_SECTION;
    for (size_t i = 1; i < image->section_count; i++) {
        const Elf64_Shdr *s = &image->sections[i];

        if (s->sh_type == SHT_PROGBITS && (s->sh_flags & SHF_EXECINSTR) &&
            s->sh_addr == init->d_un.d_ptr && s->sh_size > 0)
            return is_known_code(image, s) ? i : ELF_NO_SECTION;
    }
    return ELF_NO_SECTION;
}

/* Whether four bytes of the segment are, wherever they start, the displacement of a call, a
 * jump or a lea to the address. */
static bool segment_leads_to(const struct elf_image *image, const Elf64_Phdr *p,
                             uint64_t address)
{
    uint8_t *bytes = malloc(CHUNK);
    bool found = bytes == NULL;
    int32_t distance;

    for (uint64_t at = 0; !found && at < p->p_filesz; at += CHUNK - sizeof distance + 1) {
        size_t n = p->p_filesz - at < CHUNK ? (size_t)(p->p_filesz - at) : CHUNK;

        found = elf_source_read(&image->source, p->p_offset + at, bytes, n, NULL) != 0;
        for (size_t i = 0; !found && i + sizeof distance <= n; i++) {
            memcpy(&distance, bytes + i, sizeof distance);
            found =
                p->p_vaddr + at + i + sizeof distance + (uint64_t)(int64_t)distance == address;
        }
    }
    free(bytes);
    return found;
}

int elf_plan_init(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    const Elf64_Shdr *s;
    uint64_t at;
    int32_t distance;
    int ret;

    if (!plan->init_moves)
        return 0;
    s = &image->sections[elf_init_section(image)];
    at = s->sh_offset + s->sh_size - BEHIND;
    ret = elf_source_read(&image->source, at, &distance, sizeof distance, NULL);
    if (ret != 0)
        return ret;
    /* its target stays where it is; all of this is below REACH */
    distance -= (int32_t)(plan->tail.block.address - plan->block.address);
    return elf_plan_change(plan, at, &distance, sizeof distance);
}

#define MAX_BLOCK (64ull << 20) /* bytes; the symbols of TensorFlow are 12 MB */
#define MAX_NOTES (1ull << 16)  /* bytes */
#define NEEDED    sizeof(Elf64_Phdr)
#define ALIGNED   8 /* nothing that moves is aligned to more */

struct range {
    uint64_t start, end; /* file offsets */
};

static bool overlaps_block(const struct range *block, uint64_t offset, uint64_t size)
{
    return size > 0 && offset < block->end && offset + size > block->start;
}

/* Takes [offset, offset + size) into the block. -ENOENT if it starts before the block: then it
 * is not behind the table. */
static int take_range(struct range *block, uint64_t offset, uint64_t size)
{
    if (offset < block->start)
        return -ENOENT;
    if (offset + size > block->end)
        block->end = offset + size;
    return 0;
}

static bool is_plain_owner(const char *name, uint32_t size)
{
    static const char *const owners[] = {"GNU", "Go", "FDO", "Linux"};

    while (size > 0 && name[size - 1] == '\0') /* Go counts the padding in */
        size--;
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++)
        if (size == strlen(owners[i]) && memcmp(name, owners[i], size) == 0)
            return true;
    return false;
}

/* Whether these are notes (gABI "Note Section") of owners whose notes are known to be plain
 * data. Others may contain relative addresses: crashpad's says how far away its table is. */
static bool notes_may_move(const struct elf_image *image, uint64_t offset, uint64_t size,
                           uint64_t align)
{
    char *bytes =
        size <= MAX_NOTES ? elf_source_load(&image->source, offset, size, NULL) : NULL;
    uint64_t mask = align == 8 ? 7 : 3, at = 0;
    bool plain = bytes != NULL;

    while (plain && size - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        uint64_t step;

        memcpy(&note, bytes + at, sizeof note);
        at += sizeof note;
        plain = note.n_namesz <= size - at && is_plain_owner(bytes + at, note.n_namesz);
        step = (((uint64_t)note.n_namesz + 3) & ~3ull) + note.n_descsz;
        step = (sizeof note + step + mask) / (mask + 1) * (mask + 1) - sizeof note;
        at = step < size - at ? at + step : size;
    }
    free(bytes);
    return plain;
}

static bool section_may_move(const struct elf_image *image, size_t index)
{
    const Elf64_Shdr *s = &image->sections[index];

    switch (s->sh_type) {
    case SHT_NOTE:
        return notes_may_move(image, s->sh_offset, s->sh_size, s->sh_addralign);
    case SHT_HASH:
    case SHT_GNU_HASH:
    case SHT_DYNSYM:
    case SHT_GNU_versym:
    case SHT_GNU_verneed:
    case SHT_GNU_verdef:
        return true;
    case SHT_STRTAB:
        return s->sh_addr == image->tables.strings.address;
    default:
        return strcmp(elf_image_section_name(image, index), ".interp") == 0 ||
               index == elf_init_section(image);
    }
}

static int take_sections(const struct elf_image *image, struct range *block)
{
    for (size_t i = 1; i < image->section_count; i++) {
        const Elf64_Shdr *s = &image->sections[i];

        if (s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL ||
            !overlaps_block(block, s->sh_offset, s->sh_size))
            continue;
        if (!section_may_move(image, i) || take_range(block, s->sh_offset, s->sh_size) != 0)
            return -ENOENT;
    }
    return 0;
}

static int take_segments(const struct elf_image *image, struct range *block)
{
    gs_each (p, image->segments, image->header.e_phnum) {
        if (p->p_type == PT_LOAD || p->p_type == PT_PHDR || p->p_type == PT_NULL ||
            !overlaps_block(block, p->p_offset, p->p_filesz))
            continue;
        if (p->p_type != PT_NOTE && p->p_type != PT_INTERP && p->p_type != PT_GNU_PROPERTY)
            return -ENOENT;
        /* with section headers each note is checked by itself: mold puts different alignments
         * into one segment */
        if (p->p_type == PT_NOTE && image->section_count == 0 &&
            !notes_may_move(image, p->p_offset, p->p_filesz, p->p_align))
            return -ENOENT;
        if (take_range(block, p->p_offset, p->p_filesz) != 0)
            return -ENOENT;
    }
    return 0;
}

#define TABLES 5

static void list_tables(const struct elf_image *image, const struct elf_table *tables[TABLES])
{
    tables[0] = &image->tables.strings;
    tables[1] = &image->tables.symbols;
    tables[2] = &image->tables.versions;
    tables[3] = &image->tables.hash;
    tables[4] = &image->tables.gnu_hash;
}

static int take_tables(const struct elf_image *image, struct range *block)
{
    const struct elf_table *tables[TABLES];

    list_tables(image, tables);
    for (size_t i = 0; i < TABLES; i++)
        if (overlaps_block(block, tables[i]->offset, tables[i]->size) &&
            take_range(block, tables[i]->offset, tables[i]->size) != 0)
            return -ENOENT;
    /* without section headers the version tables stay */
    if (image->section_count == 0 &&
        (overlaps_block(block, image->tables.verneed.offset, image->tables.verneed.size) ||
         overlaps_block(block, image->tables.verdef.offset, image->tables.verdef.size)))
        return -ENOENT;
    return 0;
}

/* Whether some section, note or table covers this byte of the block. */
static bool is_covered(const struct elf_image *image, uint64_t at)
{
    const struct range byte = {at, at + 1};
    const struct elf_table *tables[TABLES];

    list_tables(image, tables);
    for (size_t i = 0; i < TABLES; i++)
        if (overlaps_block(&byte, tables[i]->offset, tables[i]->size))
            return true;
    for (size_t i = 1; i < image->section_count; i++)
        if (image->sections[i].sh_type != SHT_NOBITS &&
            image->sections[i].sh_type != SHT_NULL &&
            overlaps_block(&byte, image->sections[i].sh_offset, image->sections[i].sh_size))
            return true;
    for (size_t i = 0; i < image->header.e_phnum; i++)
        if ((image->segments[i].p_type == PT_NOTE || image->segments[i].p_type == PT_INTERP) &&
            overlaps_block(&byte, image->segments[i].p_offset, image->segments[i].p_filesz))
            return true;
    return false;
}

/* The bytes that the header will overwrite must belong to a part that moves, or be padding:
 * linkers pad with zeros; patchelf, which vendors use, leaves X or Z where something was. Without
 * section headers zeros may also be constants: then only as many of them count as padding as align
 * the next part. */
static int check_gaps(const struct elf_image *image, const struct range *block)
{
    uint8_t bytes[NEEDED + ALIGNED];
    size_t gap = 0;

    if (elf_source_read(&image->source, block->start, bytes, sizeof bytes, NULL) != 0)
        return -ENOENT;
    for (size_t i = 0; i < NEEDED || (gap > 0 && i < sizeof bytes); i++) {
        gap = is_covered(image, block->start + i) ? 0 : gap + 1;
        if ((gap > 0 && i < NEEDED && bytes[i] != 0 && bytes[i] != 'X' && bytes[i] != 'Z') ||
            (gap == ALIGNED && image->section_count == 0))
            return -ENOENT;
    }
    return 0;
}

static bool leads_into_block(const struct elf_plan *plan, int64_t tag)
{
    const Elf64_Dyn *entry = elf_image_dynamic(plan->image, tag);

    return entry != NULL && entry->d_un.d_ptr >= plan->block.address &&
           entry->d_un.d_ptr - plan->block.address < plan->block.size;
}

/* Checks the entries that lead to code: except DT_INIT's known code none of it may lie in the
 * block, and no code may seem to lead to that. */
static int check_pointers(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    static const int64_t tags[] = {DT_RELA,          DT_JMPREL,     DT_REL,
                                   DT_RELR,          DT_INIT_ARRAY, DT_FINI_ARRAY,
                                   DT_PREINIT_ARRAY, DT_FINI,       DT_PLTGOT};

    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (leads_into_block(plan, tags[i]))
            return -ENOENT;
    plan->init_moves = leads_into_block(plan, DT_INIT);
    if (!plan->init_moves)
        return 0;
    if (elf_init_section(image) == ELF_NO_SECTION)
        return -ENOENT;
    for (size_t i = 0; i < image->header.e_phnum; i++)
        if (image->segments[i].p_type == PT_LOAD && (image->segments[i].p_flags & PF_X) &&
            segment_leads_to(image, &image->segments[i],
                             elf_image_dynamic(image, DT_INIT)->d_un.d_ptr))
            return -ENOENT;
    return 0;
}

int elf_plan_block(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    uint64_t table_end = image->header.e_phoff + image->header.e_phnum * sizeof(Elf64_Phdr),
             last;
    struct range block = {table_end, table_end + NEEDED};

    do { /* until no further part is involved */
        last = block.end;
        if (take_sections(image, &block) != 0 || take_segments(image, &block) != 0 ||
            take_tables(image, &block) != 0 || block.end - block.start > MAX_BLOCK)
            return -ENOENT;
    } while (block.end != last);
    if (check_gaps(image, &block) != 0)
        return -ENOENT;
    gs_each (p, image->segments, image->header.e_phnum) {
        if (p->p_type != PT_LOAD || p->p_offset > image->header.e_phoff ||
            block.end - p->p_offset > p->p_filesz)
            continue;
        plan->block = (struct elf_extent){.offset = block.start,
                                          .address = p->p_vaddr + (block.start - p->p_offset),
                                          .size = block.end - block.start};
        if (check_pointers(plan) == 0)
            return 0;
        plan->block.size = 0;
        plan->init_moves = false;
        return -ENOENT;
    }
    return -ENOENT;
}
