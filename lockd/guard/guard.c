/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: the start of every guard, and the guard of one checkpointed program (checkpoint.h). The
 * guard of a program that changes devices is in guard_move.c. A guard makes the driver's checkpoint
 * calls, however long they take. It lives while the program is checkpointed; a guard that loses its
 * daemon, or is told to end, brings the program back before it ends. One thread.
 */
#include "lockd/guard/guard.h"

#include "lockd/guard/guard_driver.h"
#include "lockd/guard/guard_move.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LOCK_MS 10000 /* for submitted work to finish */

/* Locks the program: true when its calls wait and its submitted work has finished. */
static bool lock_program(const struct guard_driver *driver, int pid)
{
    CUcheckpointLockArgs patience = {.timeoutMs = LOCK_MS};
    const CUresult result = driver->cuCheckpointProcessLock(pid, &patience);

    if (result == CUDA_SUCCESS)
        return true;
    lockd_guard_say(LOCKD_GUARD_FAILED,
                    result == CUDA_ERROR_NOT_READY ? "its work does not end"
                                                   : "it cannot be locked",
                    lockd_guard_result(driver, result));
    return false;
}

static bool checkpoint_program(const struct guard_driver *driver, int pid)
{
    const CUresult result = driver->cuCheckpointProcessCheckpoint(pid, NULL);

    if (result == CUDA_SUCCESS) {
        lockd_guard_say(LOCKD_GUARD_CHECKPOINTED, "", "");
        return true;
    }
    driver->cuCheckpointProcessUnlock(pid, NULL);
    lockd_guard_say(LOCKD_GUARD_FAILED, "it cannot be checkpointed",
                    lockd_guard_result(driver, result));
    return false;
}

/* Carries out the daemon's first order. True when the program is checkpointed. */
static bool take_order(const struct guard_driver *driver, int pid, char order)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    const CUresult result = driver->cuCheckpointProcessGetState(pid, &state);

    if (result != CUDA_SUCCESS) {
        lockd_guard_say(LOCKD_GUARD_FAILED, "the driver does not know the process",
                        lockd_guard_result(driver, result));
        return false;
    }
    if (order == LOCKD_GUARD_ADOPT && state == CU_PROCESS_STATE_CHECKPOINTED) {
        lockd_guard_say(LOCKD_GUARD_CHECKPOINTED, "", "");
        return true;
    }
    if (order == LOCKD_GUARD_ADOPT && state == CU_PROCESS_STATE_LOCKED)
        return checkpoint_program(driver, pid);
    if (order == LOCKD_GUARD_ADOPT) {
        /* the previous guard had brought it back */
        lockd_guard_say(LOCKD_GUARD_RESTORE, "", "");
        return false;
    }
    if (state != CU_PROCESS_STATE_RUNNING) {
        lockd_guard_say(LOCKD_GUARD_FAILED, "another program has locked or checkpointed it",
                        "");
        return false;
    }
    return lock_program(driver, pid) && checkpoint_program(driver, pid);
}

static CUresult restore_program(const struct guard_driver *driver, int pid)
{
    CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
    CUresult result = driver->cuCheckpointProcessGetState(pid, &state);

    /* locked: the previous guard had restored it */
    if (result == CUDA_SUCCESS && state != CU_PROCESS_STATE_LOCKED)
        result = driver->cuCheckpointProcessRestore(pid, NULL);
    return result == CUDA_SUCCESS ? driver->cuCheckpointProcessUnlock(pid, NULL) : result;
}

/* False when the program has ended, or another process has brought it back. */
static bool is_checkpointed(const struct guard_driver *driver, int pid)
{
    CUprocessState state = CU_PROCESS_STATE_RUNNING;

    return driver->cuCheckpointProcessGetState(pid, &state) == CUDA_SUCCESS &&
           (state == CU_PROCESS_STATE_CHECKPOINTED || state == CU_PROCESS_STATE_LOCKED);
}

static volatile sig_atomic_t ended;

static void note_signal(int number)
{
    (void)number;
    ended = 1;
}

/* Waits for the order to restore the program, and restores it. False: the daemon has gone. */
static bool keep_checkpoint(const struct guard_driver *driver, int pid)
{
    char word;

    while (ended == 0) {
        const ssize_t got = recv(STDIN_FILENO, &word, 1, 0);
        CUresult result;

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || word != LOCKD_GUARD_RESTORE)
            return false;
        result = restore_program(driver, pid);
        if (result == CUDA_SUCCESS) {
            lockd_guard_say(LOCKD_GUARD_RESTORE, "", "");
            return true;
        }
        lockd_guard_say(LOCKD_GUARD_NO_ROOM, "the driver says",
                        lockd_guard_result(driver, result));
    }
    return false;
}

int lockd_guard(int32_t pid)
{
    const struct sigaction action = {.sa_handler = note_signal};
    const struct timespec second = {.tv_sec = 1};
    struct lockd_guard_order order;
    struct guard_driver driver;
    int with;

    signal(SIGCHLD, SIG_DFL); /* the driver may start helpers and wait for them */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (!lockd_guard_hear(&order, &with) || order.pid <= 0 || (pid != 0 && order.pid != pid) ||
        !lockd_guard_load(&driver))
        return 1;
    pid = order.pid;
    if (order.word == LOCKD_GUARD_MOVE || order.word == LOCKD_GUARD_TAKE_UP)
        return lockd_guard_move(&driver, &order, with);
    if (!take_order(&driver, pid, order.word))
        return 1;
    if (keep_checkpoint(&driver, pid))
        return 0;
    while (restore_program(&driver, pid) != CUDA_SUCCESS && is_checkpointed(&driver, pid))
        nanosleep(&second, NULL);
    return 0;
}
