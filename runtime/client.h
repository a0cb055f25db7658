/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h: the thread that talks to the daemon, opens and closes the gate and moves memory.
 *
 * Started by the first context of the process; where it cannot be, the gate opens for good.
 * Waiting at the gate ends because: the daemon promises a turn to whoever fits; without a
 * daemon the gate opens after GS_ALONE_AFTER_NS; memory that cannot be brought back within
 * GS_SHORT_LIMIT_NS makes waiting calls fail with CUDA_ERROR_OUT_OF_MEMORY.
 */
#ifndef GS_RUNTIME_CLIENT_H
#define GS_RUNTIME_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device.h"

#define GS_ALONE_AFTER_NS 5000000000ull
#define GS_SHORT_LIMIT_NS 60000000000ull

/* A program that is to stop counts as stuck after so long: because its work does not finish, or
 * because a capture is open (most last for milliseconds, but some programs compile meanwhile,
 * and nothing can be waited for then without spoiling it). */
#define GS_DRAIN_LIMIT_NS   2000000000ull
#define GS_CAPTURE_LIMIT_NS 5000000000ull

/* The most that work may take while a thread waits at the gate, before that is let in. */
#define GS_DRAIN_MOST_NS 10000000000ull

/* Start-up of any hook: true if the real driver is there. */
bool gs_client_ready(void);

/* A context of the program: registers its device with the daemon (in the background). */
void gs_client_attach(CUcontext context, CUdevice ordinal);

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

/* Something changed that the client thread should look at. Any thread; never blocks. */
void gs_client_wake(void);

/* The same, but within a few milliseconds is soon enough, and often costs no system call. */
void gs_client_wake_soon(void);

/* The driver has no memory for something that cannot be moved: others are asked to leave this
 * device; the longer it lasts (seconds), the more of them. False: nobody can help (no daemon,
 * or no other program). */
bool gs_client_short(struct gs_device *device, unsigned seconds);

/* Between the two the client thread makes no driver call. They nest over threads. Waits for at
 * most one step of moving. */
void gs_client_park(void);
void gs_client_unpark(void);

/* True while this process runs without a daemon. */
bool gs_client_is_alone(void);

/* Waits until a daemon has told what this device offers, or there is none (GS_ALONE_AFTER_NS
 * after nobody answered); for answers that depend on it. */
void gs_client_await_target(struct gs_device *device);

/* A remark for gpusharectl status: something of this program is not covered. Once per text is
 * enough. */
void gs_client_note_partial(const char *text);

void gs_client_after_fork(void);

#endif
