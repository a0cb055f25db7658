/* SPDX-License-Identifier: Apache-2.0
 *
 * slot.c: finds places for the program header of the new segment and for the new dynamic entry.
 *
 * Loadable segments must ascend in the table, so the new one follows the last PT_LOAD, whatever
 * slot is used. GNU_STACK, GNU_EH_FRAME, GNU_RELRO and notes with information of their own are
 * never taken. No state, any thread.
 */
#include "rewriter/plan/slot.h"
#include "rewriter/plan/block.h"
#include "rewriter/elf/dynamic.h"

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

/* The PT_NOTE that begins with the note of PT_GNU_PROPERTY (exact: with nothing behind it). */
static size_t find_note(const struct elf_image *image, size_t property, bool exact)
{
    for (size_t i = 0; property != NOT_FOUND && i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i], *its = &image->segments[property];

        if (p->p_type == PT_NOTE && p->p_offset == its->p_offset &&
            p->p_vaddr == its->p_vaddr && p->p_filesz >= its->p_filesz &&
            (exact ? p->p_filesz == its->p_filesz : p->p_align == 8))
            return i;
    }
    return NOT_FOUND;
}

static size_t choose_way(struct elf_plan *plan)
{
    const size_t property = find_type(plan->image, PT_GNU_PROPERTY);
    size_t taken = find_type(plan->image, PT_NULL);

    plan->slot.way = ELF_SLOT_NULL;
    if (taken != NOT_FOUND)
        return taken;
    /* every program that knows the note looks for PT_GNU_PROPERTY first */
    plan->slot.way = ELF_SLOT_PROPERTY;
    taken = find_note(plan->image, property, true);
    if (taken != NOT_FOUND)
        return taken;
    plan->slot.way = ELF_SLOT_GROW;
    if (elf_plan_block(plan) == 0)
        return NOT_FOUND;
    /* glibc for x86-64 also looks for it in each PT_NOTE that is aligned to 8 bytes
     * (sysdeps/x86/dl-prop.h), as before PT_GNU_PROPERTY existed, and the kernel does not look.
     * For aarch64 both need the header. */
    plan->slot.way = ELF_SLOT_NOTE;
    if (plan->image->header.e_machine == EM_X86_64 &&
        find_note(plan->image, property, false) != NOT_FOUND)
        return property;
    plan->slot.way = ELF_SLOT_END;
    return NOT_FOUND;
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

/* Makes the runtime library the first DT_NEEDED (the second behind a sanitizer's).
 *
 * The dynamic section stays where it is, and keeps every entry that a program may look for
 * in it. Code that reads its own _DYNAMIC (System V's way to the list of loaded objects)
 * would find a copy that the loader has neither relocated nor filled in. DT_DEBUG is never
 * taken: debuggers need it, too. */

/* given_up: the entry that the new entry replaces, NULL if there is a spare entry. */
static int choose_entry(struct elf_plan *plan, const Elf64_Dyn **given_up, struct gs_err *err)
{
    static const struct {
        enum elf_dynamic_way way;
        int64_t tag;
    } ways[] = {{ELF_DYNAMIC_COUNT, DT_RELACOUNT},
                {ELF_DYNAMIC_NOW, DT_BIND_NOW},
                {ELF_DYNAMIC_VERSIONS, DT_VERNEEDNUM}};
    const struct elf_image *image = plan->image;
    const Elf64_Dyn *flags = elf_image_dynamic(image, DT_FLAGS);
    /* other flags say the same as DT_BIND_NOW */
    const bool repeated = (flags != NULL && (flags->d_un.d_val & DF_BIND_NOW)) ||
                          (image->dynamic.flags_1 & DF_1_NOW);

    *given_up = NULL;
    plan->dynamic.way = ELF_DYNAMIC_SPARE;
    if (image->dynamic.room - image->dynamic.count >= 2)
        return 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        plan->dynamic.way = ways[i].way;
        *given_up = elf_image_dynamic(image, ways[i].tag);
        if (*given_up != NULL && (ways[i].tag != DT_BIND_NOW || repeated))
            return 0;
    }
    return elf_refuse(
        image->source.name, err,
        "its dynamic section has no free entry and cannot move, because code may read it at "
        "its place; link it again with GNU ld (-fuse-ld=bfd) or with gpushare-cc");
}

/* The index at which the new entry is inserted. */
static size_t find_place(const struct elf_image *image)
{
    size_t place = 0;

    for (size_t i = 0; i < image->dynamic.count; i++) {
        if (image->dynamic.entries[i].d_tag != DT_NEEDED)
            continue;
        if (!elf_dynamic_stays_first(
                elf_image_string(image, image->dynamic.entries[i].d_un.d_val)))
            return i;
        place = i + 1;
    }
    return place;
}

int elf_plan_needed(struct elf_plan *plan, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    const Elf64_Dyn *given_up;
    size_t place = find_place(image), n = 0;
    int ret = choose_entry(plan, &given_up, err);

    if (ret != 0)
        return ret;
    plan->dynamic.entries = calloc(image->dynamic.count + 2, sizeof *plan->dynamic.entries);
    if (plan->dynamic.entries == NULL)
        return -ENOMEM;
    for (size_t i = 0; i <= image->dynamic.count; i++) {
        if (i == place)
            plan->dynamic.entries[n++] =
                (Elf64_Dyn){.d_tag = DT_NEEDED, .d_un.d_val = plan->names.needed};
        if (i < image->dynamic.count && &image->dynamic.entries[i] != given_up)
            plan->dynamic.entries[n++] = image->dynamic.entries[i];
    }
    /* with the DT_NULL that calloc made, if the old table has it: bfd omits it if it is to
     * leave no spare entries, and the loader reads on into zeros */
    plan->dynamic.count = n < image->dynamic.room ? n + 1 : n;
    return 0;
}

/* Writes the entries that differ from the table in the file. */
int elf_plan_needed_finish(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    const Elf64_Dyn *new = plan->dynamic.entries, *old = image->dynamic.entries;
    size_t first = 0, last = plan->dynamic.count;

    /* Gives new addresses to entries that point at parts which move. */
    gs_each (entry, plan->dynamic.entries, plan->dynamic.count) {
        switch (entry->d_tag) {
        case DT_STRTAB:
            entry->d_un.d_ptr = plan->tail.strings.address;
            break;
        case DT_STRSZ:
            entry->d_un.d_val = plan->tail.strings.size;
            break;
        case DT_INIT:
        case DT_HASH:
        case DT_GNU_HASH:
        case DT_SYMTAB:
        case DT_VERSYM:
        case DT_VERNEED:
        case DT_VERDEF:
            entry->d_un.d_ptr = elf_plan_moved(plan, entry->d_un.d_ptr);
            break;
        default:
            break;
        }
    }
    while (first < last && memcmp(&new[first], &old[first], sizeof *new) == 0)
        first++;
    while (last > first && memcmp(&new[last - 1], &old[last - 1], sizeof *new) == 0)
        last--;
    return elf_plan_change(
        plan, image->segments[image->dynamic_segment].p_offset + first * sizeof *new,
        &new[first], (last - first) * sizeof *new);
}
