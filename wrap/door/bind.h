/* SPDX-License-Identifier: Apache-2.0
 *
 * bind.h: mounts the door over the driver's library.
 */
#ifndef GS_WRAP_DOOR_BIND_H
#define GS_WRAP_DOOR_BIND_H

#include "common/err.h"
#include "wrap/door/find_driver.h"
#include "wrap/door/stage.h"

/* Gives this process a mount namespace of its own, in which mounts stay: by its right, or in a
 * user namespace of its own that has this user and group only. 0 or -errno. */
int gs_bind_unshare(struct gs_err *err);

/* -EPERM if mounts made here would be seen by processes elsewhere. */
int gs_bind_check(struct gs_err *err);

/* Mounts, in this mount namespace, the first driver at the stage's place for it, and the
 * stage's door over each of them. 0 or -errno. */
int gs_bind_mount(const struct gs_stage *stage, const struct gs_drivers *drivers,
                  struct gs_err *err);

#endif
