/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c: which entry of a full table makes room. No state.
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

/* How many entries the user of that one has. */
static size_t count_beside(const struct table *table, const struct lockd_stamp *stamp)
{
    size_t count = 0;

    for (size_t i = 0; i < table->count; i++)
        count += stamp_of(table, i)->uid == stamp->uid;
    return count;
}

size_t lockd_slots_choose(const void *slots, size_t count, size_t size, size_t most, uid_t uid)
{
    const struct table table = {slots, count, size};
    size_t oldest = 0, own = count, above = count, of_own = 0;

    for (size_t i = 0; i < count; i++) {
        const struct lockd_stamp *stamp = stamp_of(&table, i);

        if (stamp->at == 0)
            return i;
        if (stamp->at < stamp_of(&table, oldest)->at)
            oldest = i;
        if (stamp->uid == uid && (own == count || stamp->at < stamp_of(&table, own)->at))
            own = i;
        of_own += stamp->uid == uid;
    }
    if (of_own >= most)
        return own;
    for (size_t i = 0; i < count; i++) {
        const struct lockd_stamp *stamp = stamp_of(&table, i);

        if ((above == count || stamp->at < stamp_of(&table, above)->at) &&
            count_beside(&table, stamp) > most)
            above = i;
    }
    return above != count ? above : oldest;
}
