/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_driver.h: the driver functions that a guard calls, and its messages to the daemon.
 */
#ifndef GS_LOCKD_MOVE_GUARD_DRIVER_H
#define GS_LOCKD_MOVE_GUARD_DRIVER_H

#include "lockd/move/guard.h"

#include <stdbool.h>

#include <cuda.h>

/* The functions that the guard calls. Drivers have checkpoints since 12.8. */
#define GUARD_FUNCTIONS(EACH)                                                                  \
    EACH(cuInit)                                                                               \
    EACH(cuDriverGetVersion)                                                                   \
    EACH(cuGetErrorName)                                                                       \
    EACH(cuDeviceGetCount)                                                                     \
    EACH(cuDeviceGetUuid_v2)                                                                   \
    EACH(cuDeviceGetName)                                                                      \
    EACH(cuDeviceTotalMem_v2)                                                                  \
    EACH(cuDevicePrimaryCtxRetain)                                                             \
    EACH(cuDevicePrimaryCtxRelease_v2)                                                         \
    EACH(cuCtxPushCurrent_v2)                                                                  \
    EACH(cuCtxPopCurrent_v2)                                                                   \
    EACH(cuMemGetInfo_v2)                                                                      \
    EACH(cuCheckpointProcessCheckpoint)                                                        \
    EACH(cuCheckpointProcessGetState)                                                          \
    EACH(cuCheckpointProcessLock)                                                              \
    EACH(cuCheckpointProcessRestore)                                                           \
    EACH(cuCheckpointProcessUnlock)

struct guard_driver {
#define MEMBER(symbol) typeof(&symbol) symbol;
    GUARD_FUNCTIONS(MEMBER)
};

/* Loads and initialises the driver. False: it cannot be used, and the daemon has been told why. */
bool lockd_guard_load(struct guard_driver *driver);
/* The name of a result, never NULL. */
const char *lockd_guard_result(const struct guard_driver *driver, CUresult result);
/* The driver's state of the process, as a word. */
const char *lockd_guard_state(const struct guard_driver *driver, int pid);
/* Sends a word to the daemon, followed by the text "WHAT: WHY", or by either alone. */
void lockd_guard_say(enum lockd_guard_word word, const char *what, const char *why);

#endif
