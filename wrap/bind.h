/* SPDX-License-Identifier: Apache-2.0
 *
 * bind.h: mounts the door over the driver's library.
 */
#ifndef GS_WRAP_BIND_H
#define GS_WRAP_BIND_H

#include "common/err.h"
#include "wrap/find_driver.h"
#include "wrap/stage.h"

/* Gives this process a mount namespace of its own, in which its mounts stay. If it may not, it
 * first gets a user namespace that has only this user and group. 0 or -errno. */
int gs_bind_unshare(struct gs_err *err);

/* -EPERM if processes elsewhere would see mounts that are made here. */
int gs_bind_check(struct gs_err *err);

/* In this mount namespace, mounts the first driver at the stage's place for it, and the stage's
 * door over each driver. 0 or -errno. */
int gs_bind_mount(const struct gs_stage *stage, const struct gs_drivers *drivers,
                  struct gs_err *err);

#endif
