/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: the guard of a program that changes devices, by the driver's checkpoint. One thread.
 */
#include "lockd/move/guard.h"
#include "common/packet.h"
#include "lockd/programs/identity.h"
#include "lockd/protocol/move_record.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

/* Sends a word to the daemon, then the text "WHAT: WHY", or either alone. */
static void lockd_guard_say(enum lockd_guard_word word, const char *what, const char *why)
{
    char text[LOCKD_GUARD_TEXT];
    const int length = snprintf(text, sizeof text, "%c%s%s%s", (char)word, what,
                                *what != '\0' && *why != '\0' ? ": " : "", why);

    /* when the daemon has gone the next recv() says so */
    send(STDIN_FILENO, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1,
         MSG_NOSIGNAL);
}

/* The name of a result, never NULL. */
static const char *lockd_guard_result(const struct guard_driver *driver, CUresult result)
{
    const char *name = NULL;

    return driver->cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name
                                                                                 : "unknown";
}

/* The driver's state of the process, as a word. */
static const char *lockd_guard_state(const struct guard_driver *driver, int pid)
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

/* Loads and initialises the driver. False: it cannot be used, and the daemon has been told why. */
static bool lockd_guard_load(struct guard_driver *driver)
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

/* The place of the program follows from two things: the last step in the record, and the
 * state of the process according to the driver. Each step reads both, so a guard that
 * replaces a killed one does the same as the killed guard would have done. Until the
 * program is locked nothing has happened to it; from then on the guard ends only when the
 * program runs again, or has ended. */

#define LOCK_MS       10000 /* for submitted work to finish */
#define SETTLE_MS     10000 /* for the driver to finish what a killed guard had asked for */
#define CONTEXT_LEAST (2ull << 20) /* bytes */
#define FIRST_VERSION 13000        /* of the driver, that restores onto other devices */

struct move {
    const struct guard_driver *driver;
    int pid, record;
    int process; /* pidfd: nothing is done to a process that has the number of one that has ended */
    CUcheckpointGpuPair pairs[LOCKD_GUARD_PAIRS];
    unsigned pair_count;
    bool all_named; /* pairs names each device that the guard sees */
    char said;      /* 0, WAITS or HELD */
    bool unsettled; /* a killed guard's last call may still be carried out, in the program */
    char why[LOCKD_GUARD_TEXT / 2]; /* it is not on the other device */
};

enum may { MAY, MAY_LATER, MAY_NOT };

/* The daemon's next packet. with: the descriptor that came with it, or -1. False: the daemon has
 * gone, or sent no valid message. */
static bool lockd_guard_hear(struct lockd_guard_order *order, int *with)
{
    struct pollfd line = {.fd = STDIN_FILENO, .events = POLLIN};
    struct gs_descriptors got;
    ssize_t size;

    *with = -1;
    memset(order, 0, sizeof *order);
    do {
        while (poll(&line, 1, -1) < 0 && errno == EINTR)
            ;
        size = gs_packet_receive(STDIN_FILENO, order, sizeof *order, 1, &got);
    } while (size < 0 && (errno == EAGAIN || errno == EINTR));
    if (size > 0 && got.count == 1) {
        *with = got.fd[0];
        got.count = 0;
    }
    gs_descriptors_close(&got);
    return size == (ssize_t)sizeof *order && order->count <= LOCKD_GUARD_PAIRS;
}

/* --- before anything is done --- */

static int find_device(const struct guard_driver *driver, const uint8_t uuid[16])
{
    int count = 0;

    if (driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < count; i++) {
        CUuuid its;

        if (driver->cuDeviceGetUuid_v2(&its, i) == CUDA_SUCCESS &&
            memcmp(its.bytes, uuid, sizeof its.bytes) == 0)
            return i;
    }
    return -1;
}

static bool are_alike(const struct guard_driver *driver, CUdevice one, CUdevice other)
{
    char name[2][128] = {"", ""};
    size_t total[2] = {0, 0};

    return driver->cuDeviceGetName(name[0], (int)sizeof name[0], one) == CUDA_SUCCESS &&
           driver->cuDeviceGetName(name[1], (int)sizeof name[1], other) == CUDA_SUCCESS &&
           driver->cuDeviceTotalMem_v2(&total[0], one) == CUDA_SUCCESS &&
           driver->cuDeviceTotalMem_v2(&total[1], other) == CUDA_SUCCESS &&
           strcmp(name[0], name[1]) == 0 && total[0] == total[1];
}

/* A context of our own shows that the program's has room, and tells what is left then. */
static enum may has_room(const struct guard_driver *driver, CUdevice device, uint64_t bytes)
{
    CUcontext context = NULL;
    size_t free_bytes = 0, total = 0, most = 0;
    char text[LOCKD_GUARD_TEXT];
    CUresult result = driver->cuDevicePrimaryCtxRetain(&context, device);

    driver->cuDeviceTotalMem_v2(&most, device);
    most = most / 64 > CONTEXT_LEAST ? most / 64 : CONTEXT_LEAST; /* that a context may take */

    if (result == CUDA_SUCCESS) {
        result = driver->cuCtxPushCurrent_v2(context);
        if (result == CUDA_SUCCESS) {
            result = driver->cuMemGetInfo_v2(&free_bytes, &total);
            driver->cuCtxPopCurrent_v2(&context);
        }
        driver->cuDevicePrimaryCtxRelease_v2(device);
    }
    if (result == CUDA_SUCCESS && free_bytes >= bytes)
        return MAY;
    if (result == CUDA_SUCCESS)
        snprintf(text, sizeof text, "%llu there is no room on that GPU",
                 (unsigned long long)(bytes - free_bytes));
    else
        snprintf(text, sizeof text, "%llu cannot create a CUDA context on that GPU: %s",
                 (unsigned long long)(bytes + most), lockd_guard_result(driver, result));
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) {
        lockd_guard_say(LOCKD_GUARD_NO_ROOM, text, "");
        return MAY_LATER;
    }
    lockd_guard_say(LOCKD_GUARD_CANNOT, strchr(text, ' ') + 1, "");
    return MAY_NOT;
}

/* Checks all that can be known before the program is stopped. */
static enum may may_move(const struct guard_driver *driver,
                         const struct lockd_guard_order *order)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    int version = 0, from, onto;
    CUresult result;

    if (driver->cuDriverGetVersion(&version) != CUDA_SUCCESS || version < FIRST_VERSION) {
        lockd_guard_say(LOCKD_GUARD_UNABLE, "this driver cannot move programs",
                        "13.0 (580) and later can");
        return MAY_NOT;
    }
    result = driver->cuCheckpointProcessGetState(order->pid, &state);
    if (result != CUDA_SUCCESS) {
        lockd_guard_say(result == CUDA_ERROR_NOT_PERMITTED ? LOCKD_GUARD_UNABLE
                                                           : LOCKD_GUARD_FAILED,
                        "the driver does not tell the state of the process",
                        lockd_guard_result(driver, result));
        return MAY_NOT;
    }
    if (state != CU_PROCESS_STATE_RUNNING) {
        lockd_guard_say(LOCKD_GUARD_FAILED, "another process has locked or checkpointed it",
                        "");
        return MAY_NOT;
    }
    from = find_device(driver, order->pairs[0].from);
    onto = find_device(driver, order->pairs[0].to);
    if (from < 0 || onto < 0)
        lockd_guard_say(LOCKD_GUARD_CANNOT,
                        from < 0 ? "the guard does not see the GPU that it is on"
                                 : "there is no such GPU",
                        "");
    else if (!are_alike(driver, from, onto))
        lockd_guard_say(LOCKD_GUARD_CANNOT, "that GPU is of another model", "");
    else
        return has_room(driver, onto, order->bytes);
    return MAY_NOT;
}

/* --- the record --- */

static char read_record(const struct move *move)
{
    char byte;

    return (char)(pread(move->record, &byte, 1, 0) == 1 ? byte : GS_RECORD_STAYED);
}

static bool try_write(const struct move *move, enum gs_move_record what)
{
    const char byte = (char)what;

    return pwrite(move->record, &byte, 1, 0) == 1;
}

static CUprocessState read_state(const struct move *move)
{
    CUprocessState state;

    if (move->driver->cuCheckpointProcessGetState(move->pid, &state) != CUDA_SUCCESS)
        state = CU_PROCESS_STATE_FAILED;
    return state;
}

/* The word for a program that cannot go on. HELD has others make room for it on both devices, so
 * the driver must have said that it is on neither. */
static enum lockd_guard_word held_word(CUprocessState state)
{
    return state == CU_PROCESS_STATE_CHECKPOINTED ? LOCKD_GUARD_HELD : LOCKD_GUARD_WAITS;
}

static bool has_ended(const struct move *move)
{
    struct pollfd process = {.fd = move->process, .events = POLLIN};

    return poll(&process, 1, 0) == 1;
}

/* Waits for a guard that still works on the record: the program too can lock it. begin: there can
 * be no such guard, so not for long. This guard has done nothing yet, so it need not wait for a daemon
 * that has gone, or that does not want the move any more, nor for a process that has ended. */
static bool lock_record(const struct move *move, bool begin)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct pollfd daemon = {.fd = STDIN_FILENO};
    struct timespec pause = {.tv_nsec = 20000000};
    CUprocessState state;
    bool said = false;
    int ms = 0;

    for (; fcntl(move->record, F_OFD_SETLK, &whole) != 0; ms += ms < SETTLE_MS ? 20 : 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return false;
        if (ms >= SETTLE_MS &&
            (begin || poll(&daemon, 1, 0) > 0 || has_ended(move) ||
             move->driver->cuCheckpointProcessGetState(move->pid, &state) != CUDA_SUCCESS))
            return false;
        state = ms >= SETTLE_MS ? read_state(move) : CU_PROCESS_STATE_RUNNING;
        if (!said && state != CU_PROCESS_STATE_RUNNING) {
            lockd_guard_say(held_word(state),
                            "an earlier guard is still at work, the process is",
                            lockd_guard_state(move->driver, move->pid));
            said = true;
        }
        if (ms >= SETTLE_MS)
            pause = (struct timespec){.tv_sec = 1};
        nanosleep(&pause, NULL);
    }
    return true;
}

/* A lock belongs to an open file, so the program's file is opened once more. It is a file in
 * memory, or the program has sent something else, and to open that might take for ever. A lease
 * of the program's would make it wait too. The program may send any descriptor, so this opens nothing
 * for writing that the program itself cannot write. */
static bool take_record(struct move *move, int with, bool begin)
{
    const int flags = fcntl(with, F_GETFL);
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", with);
    if (flags >= 0 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) == O_RDWR &&
        fcntl(with, F_GET_SEALS) >= 0)
        move->record = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (with >= 0)
        close(with);
    return move->record >= 0 && lock_record(move, begin);
}

/* --- the steps --- */

/* A driver that counts all devices of the machine expects also those that the program does not
 * see; they keep their places. False: there are none. */
static bool name_all(struct move *move)
{
    const unsigned before = move->pair_count;
    int count = 0;

    CUuuid uuid;

    move->all_named = true;
    if (move->driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < count && move->pair_count < LOCKD_GUARD_PAIRS; i++) {
        bool named = move->driver->cuDeviceGetUuid_v2(&uuid, i) != CUDA_SUCCESS;

        for (unsigned k = 0; k < move->pair_count && !named; k++)
            named = memcmp(move->pairs[k].oldUuid.bytes, uuid.bytes, sizeof uuid.bytes) == 0;
        if (named)
            continue;
        move->pairs[move->pair_count].oldUuid = uuid;
        move->pairs[move->pair_count++].newUuid = uuid;
    }
    return move->pair_count != before;
}

/* The program cannot go on for now. WAITS may become HELD. */
static void hold_program(struct move *move, const char *what, const char *why)
{
    const struct timespec second = {.tv_sec = 1};
    const enum lockd_guard_word word = held_word(read_state(move));
    char text[LOCKD_GUARD_TEXT];

    if (move->said == 0 || (move->said == LOCKD_GUARD_WAITS && word == LOCKD_GUARD_HELD)) {
        snprintf(text, sizeof text, "%s: %s (%s); the process is %s", what, why, move->why,
                 lockd_guard_state(move->driver, move->pid));
        lockd_guard_say(word, text, "");
        move->said = (char)word;
    }
    nanosleep(&second, NULL);
}

/* The program can make its file unwritable for everybody: that stops itself, and no guard. */
static void write_record(struct move *move, enum gs_move_record what)
{
    if (!try_write(move, what))
        hold_program(move, "the record of the move", strerror(errno));
}

/* A restore has failed. The driver restores within the program, by a thread of its own, so the
 * call of a killed guard may be the reason, and may still succeed: then the process is locked on
 * the device in the record. True: its state has changed and is to be read again. */
static bool has_settled_otherwise(struct move *move)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
    bool changed = false;

    for (int ms = 0; move->unsettled && !changed && ms < SETTLE_MS; ms += 20) {
        nanosleep(&pause, NULL);
        changed =
            move->driver->cuCheckpointProcessGetState(move->pid, &state) != CUDA_SUCCESS ||
            state != CU_PROCESS_STATE_CHECKPOINTED;
    }
    move->unsettled = false;
    return changed;
}

/* A step onto the other device has succeeded; or the way is back, for that reason. */
static void go_back_unless(struct move *move, CUresult result, const char *why)
{
    if (result == CUDA_SUCCESS)
        return;
    if (move->why[0] == '\0')
        snprintf(move->why, sizeof move->why, "%s: %s", why,
                 lockd_guard_result(move->driver, result));
    write_record(move, GS_RECORD_BACK);
}

static void restore_onto(struct move *move)
{
    CUcheckpointRestoreArgs args = {.gpuPairs = move->pairs, .gpuPairsCount = move->pair_count};
    CUresult result = move->driver->cuCheckpointProcessRestore(move->pid, &args);

    if (result == CUDA_ERROR_INVALID_VALUE && !move->all_named && name_all(move)) {
        args.gpuPairsCount = move->pair_count;
        result = move->driver->cuCheckpointProcessRestore(move->pid, &args);
    }
    if (result != CUDA_SUCCESS && !has_settled_otherwise(move))
        go_back_unless(move, result, "it cannot be restored on that GPU");
}

static void end_move(struct move *move, bool moved)
{
    try_write(move, moved ? GS_RECORD_MOVED : GS_RECORD_STAYED);
    lockd_guard_say(moved ? LOCKD_GUARD_MOVED : LOCKD_GUARD_STAYED, moved ? "" : move->why, "");
}

/* Takes one step. False: there is nothing more to do. begin: this guard has not locked the
 * program yet, and is to lock it. */
static bool make_step(struct move *move, CUprocessState state, bool *begin)
{
    CUcheckpointLockArgs patience = {.timeoutMs = LOCK_MS};
    const struct guard_driver *driver = move->driver;
    const char record = read_record(move);
    CUresult result = CUDA_SUCCESS;

    if (record == GS_RECORD_MOVED || record == GS_RECORD_STAYED) {
        end_move(move, record == GS_RECORD_MOVED);
        return false;
    }
    if (record == GS_RECORD_NEW || (record == GS_RECORD_TAKEN && *begin)) {
        if (!*begin || !try_write(move, GS_RECORD_TAKEN)) {
            end_move(move, false);
            return false;
        }
        *begin = false;
        result = driver->cuCheckpointProcessLock(move->pid, &patience);
        go_back_unless(move, result,
                       result == CUDA_ERROR_NOT_READY ? "its work does not end"
                                                      : "it cannot be locked");
        return true;
    }
    if (state == CU_PROCESS_STATE_RUNNING) {
        end_move(move, record == GS_RECORD_ONTO);
        return false;
    }
    if (state == CU_PROCESS_STATE_LOCKED && record == GS_RECORD_TAKEN) {
        go_back_unless(move, driver->cuCheckpointProcessCheckpoint(move->pid, NULL),
                       "it cannot be checkpointed");
    } else if (state == CU_PROCESS_STATE_LOCKED) {
        result = driver->cuCheckpointProcessUnlock(move->pid, NULL);
        if (result != CUDA_SUCCESS)
            hold_program(move, "cuCheckpointProcessUnlock", lockd_guard_result(driver, result));
    } else if (state != CU_PROCESS_STATE_CHECKPOINTED) {
        hold_program(move, "cuCheckpointProcessGetState", lockd_guard_result(driver, result));
    } else if (record == GS_RECORD_TAKEN) {
        write_record(move, GS_RECORD_ONTO);
    } else if (record == GS_RECORD_ONTO) {
        restore_onto(move);
    } else {
        result = driver->cuCheckpointProcessRestore(move->pid, NULL);
        if (result != CUDA_SUCCESS && !has_settled_otherwise(move)) {
            hold_program(move, "cuCheckpointProcessRestore",
                         lockd_guard_result(driver, result));
            write_record(move, GS_RECORD_ONTO); /* in turn: either may have room then */
        }
    }
    return true;
}

/* Carries out MOVE or TAKE_UP, on the process of that pidfd. record: the descriptor that came
 * with TAKE_UP; -1: none. Returns only when the program is on one of the devices, with or
 * without the daemon. Returns an exit code. */
static int lockd_guard_move(const struct guard_driver *driver,
                            const struct lockd_guard_order *order, int process, int record)
{
    struct move move = {.driver = driver, .pid = order->pid, .process = process, .record = -1};
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    struct lockd_guard_order go = *order;
    bool begin = order->word == LOCKD_GUARD_MOVE;
    enum may may;

    if (begin) {
        /* asks again when the daemon does: it has others make room */
        while ((may = may_move(driver, order)) == MAY_LATER) {
            if (!lockd_guard_hear(&go, &record) || go.word != LOCKD_GUARD_MOVE)
                return 1; /* nobody wants it any more */
            if (record >= 0)
                close(record);
        }
        if (may == MAY_NOT)
            return 1;
        lockd_guard_say(LOCKD_GUARD_MAY, "", "");
        if (!lockd_guard_hear(&go, &record) || go.word != LOCKD_GUARD_GO)
            return 0; /* the move is no longer wanted */
    } else {
        move.unsettled = true;
        snprintf(move.why, sizeof move.why, "its guard was killed");
    }
    if (!take_record(&move, record, begin)) {
        /* without a record nobody can tell where a program is that the driver has locked; one that
         * runs is where it was, whatever it has sent as a record */
        state = read_state(&move);
        lockd_guard_say(begin                               ? LOCKD_GUARD_FAILED
                        : state == CU_PROCESS_STATE_RUNNING ? LOCKD_GUARD_STAYED
                                                            : held_word(state),
                        "the record of the move cannot be used", "");
        return 1;
    }
    if (begin && read_record(&move) != GS_RECORD_NEW)
        snprintf(move.why, sizeof move.why, "the program has given it up");
    move.pair_count = go.count;
    for (unsigned i = 0; i < go.count; i++) {
        memcpy(move.pairs[i].oldUuid.bytes, go.pairs[i].from, 16);
        memcpy(move.pairs[i].newUuid.bytes, go.pairs[i].to, 16);
    }
    while (!has_ended(&move) &&
           driver->cuCheckpointProcessGetState(move.pid, &state) == CUDA_SUCCESS &&
           make_step(&move, state, &begin))
        ;
    close(move.record);
    return 0;
}

static void ignore_signal(int number)
{
    (void)number;
}

int lockd_guard(int32_t pid)
{
    /* A handler rather than SIG_IGN, which the helpers of the driver would inherit. */
    const struct sigaction action = {.sa_handler = ignore_signal};
    struct lockd_guard_order order;
    struct guard_driver driver;
    struct lockd_identity who = {0};
    int with, process;

    signal(SIGCHLD, SIG_DFL); /* the driver may start helpers and wait for them */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (!lockd_guard_hear(&order, &with) || order.pid <= 0 || (pid != 0 && order.pid != pid) ||
        (order.word != LOCKD_GUARD_MOVE && order.word != LOCKD_GUARD_TAKE_UP) ||
        !lockd_guard_load(&driver))
        return 1;
    who.pid = order.pid;
    who.started = order.started;
    process = lockd_identity_pidfd(&who);
    if (process < 0) {
        lockd_guard_say(LOCKD_GUARD_FAILED, "the process has ended", "");
        return 1;
    }
    return lockd_guard_move(&driver, &order, process, with);
}
