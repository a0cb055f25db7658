/* SPDX-License-Identifier: Apache-2.0
 *
 * init.c: knows the code of .init that may move with the block behind the program headers.
 *
 * The C library's start files (crti.o, crtn.o) make .init. In a library it calls
 * __gmon_start__, if there is one, and only DT_INIT leads to it. Red Hat's gcc-toolset-15 puts
 * it right behind the build id, for x86-64 alone. No state, any thread.
 */
#include "rewriter/plan/changes.h"
#include "rewriter/plan/init.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

size_t elf_init_section(const struct elf_image *image)
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

bool elf_init_is_called(const struct elf_image *image)
{
    uint64_t address = elf_image_dynamic(image, DT_INIT)->d_un.d_ptr;

    for (size_t i = 0; i < image->header.e_phnum; i++)
        if (image->segments[i].p_type == PT_LOAD && (image->segments[i].p_flags & PF_X) &&
            segment_leads_to(image, &image->segments[i], address))
            return true;
    return false;
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
