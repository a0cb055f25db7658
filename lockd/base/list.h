/* SPDX-License-Identifier: Apache-2.0
 *
 * list.h: a circular doubly linked list whose links live inside the elements. An element that
 * is on no list points at itself, so that removing it twice is harmless.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lockd_list {
    struct lockd_list *next, *prev;
};

/* The element that a link is part of; also from a const link. */
#define lockd_entry(pointer, type, member)                                                     \
    ((type *)((uintptr_t)(pointer)-offsetof(type, member)))

/* The element may be removed from the list inside the loop, others may not. */
#define lockd_list_each(at, list)                                                              \
    for (struct lockd_list *at = (list)->next, *at##_next = at->next; at != (list);            \
         at = at##_next, at##_next = at->next)

/* The same with the elements themselves: type *name for each, which `member` links. */
#define lockd_each(type, name, list, member)                                                   \
    for (type *name = lockd_entry((list)->next, type, member),                                 \
              *name##_next = lockd_entry(name->member.next, type, member);                     \
         &name->member != (list);                                                              \
         name = name##_next, name##_next = lockd_entry(name->member.next, type, member))

static inline void lockd_list_init(struct lockd_list *link)
{
    link->next = link->prev = link;
}

static inline bool lockd_list_empty(const struct lockd_list *link)
{
    return link->next == link;
}

static inline void lockd_list_append(struct lockd_list *list, struct lockd_list *link)
{
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

static inline void lockd_list_remove(struct lockd_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    lockd_list_init(link);
}
