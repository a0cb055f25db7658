/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_driver.c: loads the driver for a guard, and sends its messages to the daemon. No state.
 */
#include "lockd/move/guard_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void lockd_guard_say(enum lockd_guard_word word, const char *what, const char *why)
{
    char text[LOCKD_GUARD_TEXT];
    const int length = snprintf(text, sizeof text, "%c%s%s%s", (char)word, what,
                                *what != '\0' && *why != '\0' ? ": " : "", why);

    if (send(STDIN_FILENO, text,
             (size_t)length < sizeof text ? (size_t)length : sizeof text - 1, MSG_NOSIGNAL) < 0)
        return; /* the daemon has gone; the next recv() says so */
}

const char *lockd_guard_result(const struct guard_driver *driver, CUresult result)
{
    const char *name = NULL;

    return driver->cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name
                                                                                 : "unknown";
}

const char *lockd_guard_state(const struct guard_driver *driver, int pid)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;

    if (driver->cuCheckpointProcessGetState(pid, &state) != CUDA_SUCCESS)
        return "not known to the driver";
    switch (state) {
    case CU_PROCESS_STATE_RUNNING:
        return "running";
    case CU_PROCESS_STATE_LOCKED:
        return "locked";
    case CU_PROCESS_STATE_CHECKPOINTED:
        return "checkpointed";
    default:
        return "failed";
    }
}

bool lockd_guard_load(struct guard_driver *driver)
{
    const struct {
        const char *name;
        void **pointer;
    } names[] = {
#define NAME(symbol) {#symbol, (void **)&driver->symbol},
        GUARD_FUNCTIONS(NAME)};
    void *library;
    CUresult result;

    unsetenv("CUDA_VISIBLE_DEVICES");   /* a setting of the program that started the daemon */
    setenv("GPUSHARE_DISABLE", "1", 1); /* the driver itself, also behind the fourth door */
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        lockd_guard_say(LOCKD_GUARD_UNABLE, "libcuda.so.1 cannot be loaded", "");
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *names[i].pointer = dlsym(library, names[i].name);
        if (*names[i].pointer == NULL) {
            lockd_guard_say(LOCKD_GUARD_UNABLE, names[i].name,
                            "this driver cannot checkpoint processes (12.8 and later can)");
            return false;
        }
    }
    result = driver->cuInit(0);
    if (result != CUDA_SUCCESS)
        lockd_guard_say(LOCKD_GUARD_UNABLE, "cuInit", lockd_guard_result(driver, result));
    return result == CUDA_SUCCESS;
}
