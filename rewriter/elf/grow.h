/* SPDX-License-Identifier: Apache-2.0
 *
 * grow.h: lists that double their room.
 */
#pragma once

#include <stdlib.h>

/* Makes room for one more element of `size` bytes in a list of `count` elements with room for
 * `*room`. Returns the list, perhaps in another place; NULL if there is no memory, and then
 * nothing has changed. */
static inline void *elf_grow(void *list, size_t count, size_t *room, size_t size)
{
    size_t wanted = *room > 0 ? *room * 2 : 32;

    if (count < *room)
        return list;
    list = reallocarray(list, wanted, size);
    if (list != NULL)
        *room = wanted;
    return list;
}
