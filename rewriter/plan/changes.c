/* SPDX-License-Identifier: Apache-2.0
 *
 * changes.c: records the bytes that change, and gives the new addresses of what moves.
 *
 * Owns the list of changes of a plan. No state, any thread.
 */
#include "rewriter/plan/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rewriter/elf/grow.h"

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
