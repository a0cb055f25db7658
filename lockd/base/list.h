/* SPDX-License-Identifier: Apache-2.0
 *
 * list.h: a circular doubly linked list whose links live inside the elements. A list of zeros is
 * empty, and a link of zeros on no list; removing it twice is harmless.
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

/* type *name for each element of the list, which `member` links; that element may be removed from the
 * list inside the loop, others may not. */
#define lockd_each(type, name, list, member)                                                   \
    for (type *name = lockd_entry(lockd_list_first(list), type, member),                       \
              *name##_next = lockd_entry(name->member.next, type, member);                     \
         &name->member != (list);                                                              \
         name = name##_next, name##_next = lockd_entry(name->member.next, type, member))

/* The list itself if it is empty. */
static inline struct lockd_list *lockd_list_first(const struct lockd_list *list)
{
    return list->next != NULL ? list->next : lockd_entry(list, struct lockd_list, next);
}

static inline bool lockd_list_empty(const struct lockd_list *link)
{
    return link->next == NULL || link->next == link;
}

static inline void lockd_list_append(struct lockd_list *list, struct lockd_list *link)
{
    if (list->next == NULL)
        list->next = list->prev = list;
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

static inline void lockd_list_remove(struct lockd_list *link)
{
    if (link->next == NULL)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = NULL;
}
