/* SPDX-License-Identifier: Apache-2.0
 *
 * find_driver.h: finds the driver's library, and the door.
 */
#ifndef GS_WRAP_FIND_DRIVER_H
#define GS_WRAP_FIND_DRIVER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define GS_DRIVERS_MOST 16

/* Files of this machine, symbolic links resolved. */
struct gs_drivers {
    char path[GS_DRIVERS_MOST][PATH_MAX]; /* the first is the one that the loader finds */
    size_t count;
    bool bound; /* the first is already a door */
};

/* Finds libcuda.so.1 as the loader does (LD_LIBRARY_PATH, the loader's cache), then copies in
 * the usual places: CUDA's compat folders, other library folders. Libraries of another
 * architecture (32 bits) are left out. 0; -ENOENT: the loader finds none. */
int gs_find_drivers(struct gs_drivers *drivers, struct gs_err *err);

/* The file of the door that belongs to this program. path has PATH_MAX bytes. */
int gs_find_door(char *path, struct gs_err *err);

#endif
