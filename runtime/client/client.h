/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h: the thread that talks to the daemon, opens and closes the gate and moves memory.
 *
 * The first context of the process starts it. If it cannot start, the gate opens for good. No
 * wait at the gate lasts for ever: the daemon promises a turn to every program that fits; without
 * a daemon the gate opens after GS_ALONE_AFTER_NS; if memory cannot be brought back within
 * GS_SHORT_LIMIT_NS, waiting calls fail with CUDA_ERROR_OUT_OF_MEMORY.
 */
#pragma once

#include "runtime/base/base.h"

/* Called at the start of every hook: true if the real driver is there. */
bool gs_client_ready(void);

/* A context of the program: registers its device with the daemon (in the background). */
void gs_client_attach(CUcontext context, CUdevice ordinal);

/* A context is about to be made: the client thread looks for the daemon meanwhile. */
void gs_client_begin(CUdevice ordinal);

/* Registers a device on which no context could be made yet, so that the daemon can be asked for
 * room. */
void gs_client_attach_room(CUdevice ordinal);

/* Attaches the current context of this thread; fast if it is known already. */
void gs_client_attach_current(struct gs_device *device);

/* A device that is used without a current context of it (VMM calls need none): true if the
 * process has a context there, so that its memory can be moved. */
bool gs_client_attach_device(struct gs_device *device);

/* A thread is about to wait at the gate. False: the process has no context, so there is nothing
 * to wait for. */
bool gs_client_wish(void);

void gs_client_after_fork(void);
