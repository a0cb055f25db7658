/* SPDX-License-Identifier: Apache-2.0
 *
 * slot.c: finds a place for the program header of the new segment.
 *
 * Loadable segments must ascend in the table, so the new one follows the last PT_LOAD, whatever
 * slot is used. GNU_STACK, GNU_EH_FRAME, GNU_RELRO and notes with information of their own are
 * never taken. No state, any thread.
 */
#include "rewriter/plan/block.h"
#include "rewriter/plan/changes.h"
#include "rewriter/plan/slot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOT_FOUND SIZE_MAX

static size_t find_type(const struct elf_image *image, uint32_t type)
{
    for (size_t i = 0; i < image->header.e_phnum; i++)
        if (image->segments[i].p_type == type)
            return i;
    return NOT_FOUND;
}

/* The PT_NOTE with exactly the range of PT_GNU_PROPERTY: every program that knows the note looks
 * for PT_GNU_PROPERTY first. */
static size_t find_property_note(const struct elf_image *image)
{
    size_t found = find_type(image, PT_GNU_PROPERTY);

    for (size_t i = 0; found != NOT_FOUND && i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i], *property = &image->segments[found];

        if (p->p_type == PT_NOTE && p->p_offset == property->p_offset &&
            p->p_filesz == property->p_filesz && p->p_vaddr == property->p_vaddr)
            return i;
    }
    return NOT_FOUND;
}

/* The PT_GNU_PROPERTY whose note is the first of a PT_NOTE. glibc for x86-64 also looks for it
 * in each PT_NOTE that is aligned to 8 bytes (sysdeps/x86/dl-prop.h), as before PT_GNU_PROPERTY
 * existed, and the kernel does not look. For aarch64 both need the header. */
static size_t find_property(const struct elf_image *image)
{
    size_t found = find_type(image, PT_GNU_PROPERTY);

    for (size_t i = 0; found != NOT_FOUND && i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i], *property = &image->segments[found];

        if (image->header.e_machine == EM_X86_64 && p->p_type == PT_NOTE && p->p_align == 8 &&
            p->p_offset == property->p_offset && p->p_vaddr == property->p_vaddr &&
            p->p_filesz >= property->p_filesz)
            return found;
    }
    return NOT_FOUND;
}

static size_t choose_way(struct elf_plan *plan)
{
    size_t taken = find_type(plan->image, PT_NULL);

    plan->slot.way = ELF_SLOT_NULL;
    if (taken != NOT_FOUND)
        return taken;
    plan->slot.way = ELF_SLOT_PROPERTY;
    taken = find_property_note(plan->image);
    if (taken != NOT_FOUND)
        return taken;
    plan->slot.way = ELF_SLOT_GROW;
    if (elf_plan_block(plan) == 0)
        return NOT_FOUND;
    plan->slot.way = ELF_SLOT_NOTE;
    taken = find_property(plan->image);
    if (taken == NOT_FOUND)
        plan->slot.way = ELF_SLOT_END;
    return taken;
}

int elf_plan_slot(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    size_t taken = choose_way(plan), last_load = 0, n = 0;

    plan->slot.segments =
        calloc((size_t)image->header.e_phnum + 1, sizeof *plan->slot.segments);
    if (plan->slot.segments == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < image->header.e_phnum; i++)
        if (image->segments[i].p_type == PT_LOAD)
            last_load = i;
    for (size_t i = 0; i < image->header.e_phnum; i++) {
        if (i != taken)
            plan->slot.segments[n++] = image->segments[i];
        if (i == last_load)
            plan->slot.added = n++;
    }
    plan->slot.count = n;
    return 0;
}

static void fill_new(const struct elf_plan *plan, Elf64_Phdr *p)
{
    *p = (Elf64_Phdr){
        .p_type = PT_LOAD,
        .p_flags = plan->init_moves ? PF_R | PF_X : PF_R,
        .p_offset = plan->tail.segment.offset,
        .p_vaddr = plan->tail.segment.address,
        .p_paddr = plan->tail.segment.address,
        .p_filesz = plan->tail.segment.size,
        .p_memsz = plan->tail.segment.size,
        .p_align = plan->image->page,
    };
}

static void move_segment(Elf64_Phdr *p, uint64_t offset, uint64_t address)
{
    p->p_paddr = p->p_paddr - p->p_vaddr + address;
    p->p_offset = offset;
    p->p_vaddr = address;
}

int elf_plan_slot_finish(struct elf_plan *plan)
{
    size_t bytes = plan->slot.count * sizeof(Elf64_Phdr);

    for (size_t i = 0; i < plan->slot.count; i++) {
        Elf64_Phdr *p = &plan->slot.segments[i];

        if (i == plan->slot.added) {
            fill_new(plan, p);
        } else if (p->p_type == PT_PHDR) {
            if (plan->slot.way == ELF_SLOT_END)
                move_segment(p, plan->tail.table.offset, plan->tail.table.address);
            p->p_filesz = p->p_memsz = bytes;
        } else if (p->p_type != PT_LOAD && p->p_filesz > 0 &&
                   elf_plan_moved(plan, p->p_vaddr) != p->p_vaddr) {
            uint64_t address = elf_plan_moved(plan, p->p_vaddr);

            move_segment(p, address - plan->tail.segment.address + plan->tail.segment.offset,
                         address);
        }
    }
    if (plan->slot.way == ELF_SLOT_END)
        return 0; /* it is part of the tail */
    return elf_plan_change(plan, plan->image->header.e_phoff, plan->slot.segments, bytes);
}
