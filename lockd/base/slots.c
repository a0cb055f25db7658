/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c: chooses the entry of a full table that is replaced. No state.
 */
#include "lockd/base/slots.h"

struct table {
    const char *slots;
    size_t count, size;
};

static const struct lockd_stamp *stamp_of(const struct table *table, size_t index)
{
    return (const void *)(table->slots + index * table->size);
}

size_t lockd_slots_choose(const void *slots, size_t count, size_t size, uint32_t owner)
{
    const struct table table = {slots, count, size};
    size_t found = 0, most = 0;

    for (size_t i = 0; i < count; i++) {
        const struct lockd_stamp *stamp = stamp_of(&table, i);
        size_t entries = stamp->owner == owner;

        if (stamp->at == 0)
            return i;
        for (size_t k = 0; k < count; k++)
            entries += stamp_of(&table, k)->owner == stamp->owner;
        if (entries > most || (entries == most && stamp->at < stamp_of(&table, found)->at)) {
            found = i;
            most = entries;
        }
    }
    return found;
}
