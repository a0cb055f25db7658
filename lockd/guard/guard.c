/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: the guard of one checkpointed program (checkpoint.h). It makes the driver's
 * checkpoint calls and may take as long as they do. It lives while the program is checkpointed;
 * a guard that loses its daemon, or is told to end, brings the program back before it ends. One
 * thread.
 */
#include "lockd/guard/guard.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LOCK_MS 10000 /* for work that was submitted to finish */

/* The families of the table that the guard needs: WANTED is 1 for them, else 0. */
#define IS_INIT              ~, 1
#define IS_CKPT              ~, 1
#define SECOND(a, b, ...)    b
#define WANTED(...)          SECOND(__VA_ARGS__, 0, 0)
#define JOIN(word, number)   JOINED(word, number)
#define JOINED(word, number) word##number

/* The driver has the checkpoints since 12.8. */
struct driver {
    typeof(&cuGetErrorName) cuGetErrorName;
#define MEMBER_0(symbol)
#define MEMBER_1(symbol) typeof(&symbol) symbol;
#define GS_API(symbol, base, since, variant, family, action)                                   \
    JOIN(MEMBER_, WANTED(IS_##family))(symbol)
#include "wrap/driver_api.def"
};

static void send_word(enum lockd_guard_word word, const char *what, const char *why)
{
    char text[200];
    const int length = snprintf(text, sizeof text, "%c%s%s%s", (char)word, what,
                                *why != '\0' ? ": " : "", why);

    if (send(STDIN_FILENO, text,
             (size_t)length < sizeof text ? (size_t)length : sizeof text - 1, MSG_NOSIGNAL) < 0)
        return; /* the daemon has gone; the next recv() says so */
}

static const char *name_of_result(const struct driver *driver, CUresult result)
{
    const char *name = NULL;

    return driver->cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name
                                                                                 : "unknown";
}

static bool load_driver(struct driver *driver)
{
    const struct {
        const char *name;
        void **pointer;
    } names[] = {
#define NAME_0(symbol)
#define NAME_1(symbol) {#symbol, (void **)&driver->symbol},
        NAME_1(cuGetErrorName)
#define GS_API(symbol, base, since, variant, family, action)                                   \
    JOIN(NAME_, WANTED(IS_##family))(symbol)
#include "wrap/driver_api.def"
    };
    void *library;
    CUresult result;

    unsetenv("CUDA_VISIBLE_DEVICES");   /* of the program that started the daemon */
    setenv("GPUSHARE_DISABLE", "1", 1); /* the driver itself, also behind the fourth door */
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        send_word(LOCKD_GUARD_FAILED, "libcuda.so.1 cannot be loaded", "");
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *names[i].pointer = dlsym(library, names[i].name);
        if (*names[i].pointer == NULL) {
            send_word(LOCKD_GUARD_FAILED, names[i].name,
                      "this driver cannot checkpoint processes (12.8 and later can)");
            return false;
        }
    }
    result = driver->cuInit(0);
    if (result != CUDA_SUCCESS)
        send_word(LOCKD_GUARD_FAILED, "cuInit", name_of_result(driver, result));
    return result == CUDA_SUCCESS;
}

/* Locks the program: true when its calls wait and its submitted work has finished. */
static bool lock_program(const struct driver *driver, int pid)
{
    CUcheckpointLockArgs patience = {.timeoutMs = LOCK_MS};
    const CUresult result = driver->cuCheckpointProcessLock(pid, &patience);

    if (result == CUDA_SUCCESS)
        return true;
    send_word(LOCKD_GUARD_FAILED,
              result == CUDA_ERROR_NOT_READY ? "its work does not end" : "it cannot be locked",
              name_of_result(driver, result));
    return false;
}

static bool checkpoint_program(const struct driver *driver, int pid)
{
    const CUresult result = driver->cuCheckpointProcessCheckpoint(pid, NULL);

    if (result == CUDA_SUCCESS) {
        send_word(LOCKD_GUARD_CHECKPOINTED, "", "");
        return true;
    }
    driver->cuCheckpointProcessUnlock(pid, NULL);
    send_word(LOCKD_GUARD_FAILED, "it cannot be checkpointed", name_of_result(driver, result));
    return false;
}

/* Carries out the daemon's first order. True when the program is checkpointed. */
static bool take_order(const struct driver *driver, int pid, char order)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    const CUresult result = driver->cuCheckpointProcessGetState(pid, &state);

    if (result != CUDA_SUCCESS) {
        send_word(LOCKD_GUARD_FAILED, "the driver does not know the process",
                  name_of_result(driver, result));
        return false;
    }
    if (order == LOCKD_GUARD_ADOPT && state == CU_PROCESS_STATE_CHECKPOINTED) {
        send_word(LOCKD_GUARD_CHECKPOINTED, "", "");
        return true;
    }
    if (order == LOCKD_GUARD_ADOPT && state == CU_PROCESS_STATE_LOCKED)
        return checkpoint_program(driver, pid);
    if (order == LOCKD_GUARD_ADOPT) {
        /* the guard before this one had brought it back */
        send_word(LOCKD_GUARD_RESTORE, "", "");
        return false;
    }
    if (state != CU_PROCESS_STATE_RUNNING) {
        send_word(LOCKD_GUARD_FAILED, "another program has locked or checkpointed it", "");
        return false;
    }
    return lock_program(driver, pid) && checkpoint_program(driver, pid);
}

static CUresult restore_program(const struct driver *driver, int pid)
{
    CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
    CUresult result = driver->cuCheckpointProcessGetState(pid, &state);

    /* locked: the guard before this one had restored it */
    if (result == CUDA_SUCCESS && state != CU_PROCESS_STATE_LOCKED)
        result = driver->cuCheckpointProcessRestore(pid, NULL);
    return result == CUDA_SUCCESS ? driver->cuCheckpointProcessUnlock(pid, NULL) : result;
}

/* False when the program has ended, or another process has brought it back. */
static bool is_checkpointed(const struct driver *driver, int pid)
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

/* Waits for the order to restore the program, and restores it: true. False: the daemon has
 * gone. */
static bool keep_checkpoint(const struct driver *driver, int pid)
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
            send_word(LOCKD_GUARD_RESTORE, "", "");
            return true;
        }
        send_word(LOCKD_GUARD_NO_ROOM, "the driver says", name_of_result(driver, result));
    }
    return false;
}

int lockd_guard(int32_t pid)
{
    const struct sigaction action = {.sa_handler = note_signal};
    const struct timespec second = {.tv_sec = 1};
    struct driver driver;
    char order;

    signal(SIGCHLD, SIG_DFL); /* the driver may start helpers and wait for them */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (recv(STDIN_FILENO, &order, 1, 0) != 1 || !load_driver(&driver) ||
        !take_order(&driver, pid, order))
        return 1;
    if (keep_checkpoint(&driver, pid))
        return 0;
    while (restore_program(&driver, pid) != CUDA_SUCCESS && is_checkpointed(&driver, pid))
        nanosleep(&second, NULL);
    return 0;
}
