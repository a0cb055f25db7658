/* SPDX-License-Identifier: Apache-2.0
 *
 * needed.c: makes the runtime library the first DT_NEEDED, but for a sanitizer's.
 *
 * The dynamic section stays where it is whenever possible, because code may read its own
 * _DYNAMIC and strip keeps what does not move. DT_DEBUG is never taken: debuggers need it. No
 * state, any thread.
 */
#include "rewriter/elf/dynamic.h"
#include "rewriter/plan/plan.h"
#include "rewriter/plan/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOT_FOUND SIZE_MAX

static size_t find(const struct elf_image *image, int64_t tag)
{
    for (size_t i = 0; i < image->dynamic_count; i++)
        if (image->dynamic[i].d_tag == tag)
            return i;
    return NOT_FOUND;
}

/* The entry that can be given up, NOT_FOUND if none is. */
static size_t choose_way(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    const Elf64_Dyn *flags = elf_image_dynamic(image, DT_FLAGS);
    size_t index;

    plan->dynamic_way = ELF_DYNAMIC_SPARE;
    if (image->dynamic_room - image->dynamic_count >= 2)
        return NOT_FOUND;
    plan->dynamic_way = ELF_DYNAMIC_MOVE;
    if (image->dynamic_room == image->dynamic_count)
        return NOT_FOUND; /* not even a DT_NULL */
    plan->dynamic_way = ELF_DYNAMIC_COUNT;
    index = find(image, DT_RELACOUNT);
    if (index != NOT_FOUND)
        return index;
    plan->dynamic_way = ELF_DYNAMIC_NOW;
    index = find(image, DT_BIND_NOW);
    if (index != NOT_FOUND &&
        ((flags != NULL && (flags->d_un.d_val & DF_BIND_NOW)) || (image->flags_1 & DF_1_NOW)))
        return index;
    plan->dynamic_way = ELF_DYNAMIC_MOVE;
    return NOT_FOUND;
}

/* The entry that the new one precedes. */
static size_t find_place(const struct elf_image *image)
{
    size_t place = 0;

    for (size_t i = 0; i < image->dynamic_count; i++) {
        if (image->dynamic[i].d_tag != DT_NEEDED)
            continue;
        if (!elf_dynamic_stays_first(elf_image_string(image, image->dynamic[i].d_un.d_val)))
            return i;
        place = i + 1;
    }
    return place;
}

int elf_plan_needed(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    size_t given_up = choose_way(plan), place = find_place(image), n = 0;

    plan->dynamic = calloc(image->dynamic_count + 2, sizeof *plan->dynamic);
    if (plan->dynamic == NULL)
        return -ENOMEM;
    for (size_t i = 0; i <= image->dynamic_count; i++) {
        if (i == place)
            plan->dynamic[n++] =
                (Elf64_Dyn){.d_tag = DT_NEEDED, .d_un.d_val = plan->needed_name};
        if (i != given_up && i < image->dynamic_count)
            plan->dynamic[n++] = image->dynamic[i];
    }
    plan->dynamic_count = n + 1; /* with the DT_NULL that calloc made */
    return 0;
}

/* Writes what differs from the table in the file, in place. */
static int change_in_place(struct elf_plan *plan, const Elf64_Dyn *table, size_t count)
{
    const struct elf_image *image = plan->image;
    size_t first = 0, last = count;

    while (first < last && memcmp(&table[first], &image->dynamic[first], sizeof *table) == 0)
        first++;
    while (last > first &&
           memcmp(&table[last - 1], &image->dynamic[last - 1], sizeof *table) == 0)
        last--;
    return elf_plan_change(
        plan, image->segments[image->dynamic_segment].p_offset + first * sizeof *table,
        &table[first], (last - first) * sizeof *table);
}

/* Entries that point at what moves get the new addresses. */
static void mend(const struct elf_plan *plan, Elf64_Dyn *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Elf64_Dyn *entry = &table[i];

        switch (entry->d_tag) {
        case DT_STRTAB:
            entry->d_un.d_ptr = plan->strings.address;
            break;
        case DT_STRSZ:
            entry->d_un.d_val = plan->strings.size;
            break;
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
}

int elf_plan_needed_finish(struct elf_plan *plan)
{
    const struct elf_image *image = plan->image;
    Elf64_Dyn *old;
    int ret;

    mend(plan, plan->dynamic, plan->dynamic_count);
    if (plan->dynamic_way != ELF_DYNAMIC_MOVE)
        return change_in_place(plan, plan->dynamic, plan->dynamic_count);
    /* code that reads its own _DYNAMIC still finds the old table: let it say what is true now
     */
    old = calloc(image->dynamic_room, sizeof *old);
    if (old == NULL)
        return -ENOMEM;
    memcpy(old, image->dynamic, image->dynamic_room * sizeof *old);
    mend(plan, old, image->dynamic_count);
    ret = change_in_place(plan, old, image->dynamic_room);
    free(old);
    return ret;
}
