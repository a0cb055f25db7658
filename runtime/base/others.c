/* SPDX-License-Identifier: Apache-2.0
 *
 * others.c: owns the list of the objects that define dlsym before libc does, and which copy of
 * this library is the first.
 *
 * Everything is found in the loader's own list, which begins with the objects of the program's
 * start in their search order. Written once, before the program's own code runs, and constant
 * afterwards. Only the function where doors go on is settled later, by the first call through a
 * door.
 */
#include "runtime/base/others.h"

#include <dlfcn.h>
#include <link.h>

#define MOST 16

gs_dlsym_fn *gs_next_dlsym;
gs_dlvsym_fn *gs_next_dlvsym;

static struct {
    struct {
        gs_dlsym_fn *dlsym; /* or NULL */
        gs_dlvsym_fn *dlvsym;
    } list[MOST];
    unsigned count;
    const struct link_map *first; /* copy of this library; NULL: ours is the first */
    bool before_libc, is_door;
    _Atomic(bool) looked; /* release, pairs with acquire: the other fields are written. Two
                             threads that look at once write the same */
} others;

static bool is_copy(const struct link_map *object)
{
    return gs_object_function(object, "__wrap_cuInit") != NULL ||
           gs_object_function(object, "gpushare_door_driver") != NULL;
}

/* Finds the first copy before ours. In a namespace of its own, whose objects are not in the
 * list, ours is the first. */
static const struct link_map *find_first(void)
{
    const struct link_map *first = NULL;

    for (const struct link_map *object = _r_debug.r_map; object != NULL;
         object = object->l_next) {
        if (object->l_ld == _DYNAMIC)
            return first;
        if (first == NULL && is_copy(object))
            first = object;
    }
    return NULL;
}

static unsigned list_others(void)
{
    unsigned count = 0;

    for (const struct link_map *object = _r_debug.r_map; object != NULL && count < MOST;
         object = object->l_next) {
        void *const dlsym_there = gs_object_function(object, "dlsym"), *const dlvsym_there =
                                                                           gs_object_function(
                                                                               object,
                                                                               "dlvsym");

        if (dlsym_there == (void *)gs_libc_dlsym || dlvsym_there == (void *)gs_libc_dlvsym)
            break;
        if (object->l_ld == _DYNAMIC || (dlsym_there == NULL && dlvsym_there == NULL) ||
            is_copy(object))
            continue;
        others.list[count].dlsym = (gs_dlsym_fn *)dlsym_there;
        others.list[count++].dlvsym = (gs_dlvsym_fn *)dlvsym_there;
    }
    return count;
}

void *gs_others_first(const char *name)
{
    return others.first != NULL ? gs_object_function(others.first, name) : NULL;
}

bool gs_others_are_first(void)
{
    return others.first != NULL;
}

bool gs_others_come_first(void)
{
    return others.before_libc;
}

bool gs_others_is_door(void)
{
    return others.is_door;
}

void gs_others_publish(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    Dl_info info;

    if (others.before_libc || others.is_door || others.first != NULL ||
        dladdr((const void *)gs_others_publish, &info) == 0 || info.dli_fname == NULL)
        return;
    dlopen(info.dli_fname,
           RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL); /* kept: it is never unloaded */
}

/* Whether ours stands before the object with libc's dlsym. */
static void find_place(void)
{
    bool libc = false;

    for (const struct link_map *object = _r_debug.r_map; object != NULL;
         object = object->l_next) {
        libc |= gs_object_function(object, "dlsym") == (void *)gs_libc_dlsym;
        if (object->l_ld != _DYNAMIC)
            continue;
        others.before_libc = !libc;
        others.is_door = gs_object_function(object, "gpushare_door_driver") != NULL;
        return;
    }
}

void gs_others_init(void)
{
    if (atomic_load_explicit(&others.looked, memory_order_acquire))
        return;
    gs_libc_symbols_init();
    others.first = find_first();
    find_place();
    if (others.first != NULL) {
        gs_next_dlsym = (gs_dlsym_fn *)gs_others_first("dlsym");
        gs_next_dlvsym = (gs_dlvsym_fn *)gs_others_first("dlvsym");
    } else {
        others.count = list_others();
    }
    if (others.count == 0 && gs_next_dlsym == NULL)
        gs_next_dlsym = gs_libc_dlsym;
    if (others.count == 0 && gs_next_dlvsym == NULL)
        gs_next_dlvsym = gs_libc_dlvsym;
    atomic_store_explicit(&others.looked, true, memory_order_release);
}

/* --- does one come back to us? ---
 * Such a dlsym may look for libc's and find ours, which stands before it. So it is asked for a
 * name that no object has. If that request comes to us, this dlsym is left out, since it would
 * come back for ever. */

static _Thread_local struct probe {
    bool asking, came_back;
} probes[2]; /* of dlsym and of dlvsym, since either may call the other */

static bool comes_back(struct probe *probe, unsigned i)
{
    static const char *const names[] = {"gpushare_probe", "cuGpushareProbe"};
    GS_KEEP_ERRNO;

    *probe = (struct probe){.asking = true};
    for (unsigned k = 0; k < 2; k++) {
        if (probe == &probes[0])
            others.list[i].dlsym(RTLD_DEFAULT, names[k]);
        else
            others.list[i].dlvsym(RTLD_DEFAULT, names[k], "GPUSHARE");
    }
    probe->asking = false;
    dlerror();
    return probe->came_back;
}

static bool is_probe(struct probe *probe)
{
    probe->came_back |= probe->asking;
    return probe->asking;
}

#define NEXT(kind, probe)                                                                      \
    gs_##kind##_fn *gs_others_##kind(void)                                                     \
    {                                                                                          \
        gs_##kind##_fn *next = __atomic_load_n(&gs_next_##kind, __ATOMIC_RELAXED);             \
                                                                                               \
        if (next != NULL)                                                                      \
            return next;                                                                       \
        gs_others_init();                                                                      \
        next = gs_libc_##kind;                                                                 \
        if (is_probe(probe))                                                                   \
            return next;                                                                       \
        for (unsigned i = 0; i < others.count && next == gs_libc_##kind; i++)                  \
            if (others.list[i].kind != NULL && !comes_back(probe, i))                          \
                next = others.list[i].kind;                                                    \
        __atomic_store_n(&gs_next_##kind, next, __ATOMIC_RELAXED);                             \
        return next;                                                                           \
    }

NEXT(dlsym, &probes[0])
NEXT(dlvsym, &probes[1])
