/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h: the thread that talks to the daemon, opens and closes the gate and moves memory.
 *
 * Started by the first context of the process; where it cannot be, the gate opens for good.
 * Waiting at the gate ends because: the daemon promises a turn to every program that fits;
 * without a daemon the gate opens after GS_ALONE_AFTER_NS; memory that cannot be brought back
 * within GS_SHORT_LIMIT_NS makes waiting calls fail with CUDA_ERROR_OUT_OF_MEMORY.
 */
#ifndef GS_RUNTIME_CLIENT_CLIENT_H
#define GS_RUNTIME_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/device.h"

/* Start-up of any hook: true if the real driver is there. */
bool gs_client_ready(void);

/* A context of the program: registers its device with the daemon (in the background). */
void gs_client_attach(CUcontext context, CUdevice ordinal);

/* A context is about to be made: the client thread begins to look for the daemon meanwhile. */
void gs_client_begin(CUdevice ordinal);

/* A device on which no context could be made yet: registers it, so that room can be asked for.
 */
void gs_client_attach_room(CUdevice ordinal);

/* The same for the current context of this thread; cheap when known. */
void gs_client_attach_current(struct gs_device *device);

/* A device that is used without a current context of it (VMM calls need none): true if the
 * process has a context there, so that its memory can be moved. */
bool gs_client_attach_device(struct gs_device *device);

/* A thread is about to wait at the gate. False: the process has no context, so there is nothing
 * to wait for. */
bool gs_client_wish(void);

void gs_client_after_fork(void);

#endif
