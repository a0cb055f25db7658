/* SPDX-License-Identifier: Apache-2.0
 *
 * past.h: objects of this process whose calls of the driver go past gpushare, because their files
 * are not patched.
 *
 * A program with such an object is *partly covered* (gs_runtime.partial): its memory must not
 * move, since nobody stops the object's calls meanwhile.
 */
#pragma once

#include "runtime/base/base.h"

/* Looks at the objects that were loaded since the last look; costs less than a microsecond if
 * there are none. The first object whose calls go past gpushare makes the program partly covered.
 * Any thread. */
void gs_past_look(void);

/* True if a function of this name, with or without the suffix of a form, is beside the driver's
 * interface and known (GS_SIDE of wrap/driver_api.def). */
bool gs_past_is_known(const char *name);
