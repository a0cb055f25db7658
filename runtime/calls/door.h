/* SPDX-License-Identifier: Apache-2.0
 *
 * door.h: the library in the driver's place.
 */
#pragma once

#include "runtime/base/base.h"

/* Exported: the handle of the driver's own library; NULL: there is none. A libgpushare.so.1 in
 * the same process recognises the door by this name (runtime/base/driver.c). */
__attribute__((visibility("default"))) void *gpushare_door_driver(void);

/* The driver's function for a row of pass_*.S, which is stored in its slot of `slots`. Never NULL. Leaves
 * errno and dlerror() as the driver's loading left them. */
void *gs_door_resolve(size_t row, void **slots);
