/* SPDX-License-Identifier: Apache-2.0
 *
 * relocate.c: owns the list of devices that this process sees, and the move that is under way.
 *
 * A thread of the program fills the list once and publishes it by its count. From then on only
 * the client thread changes it. The move is the client thread's. Invariant: after the answer to
 * STOP the client thread calls no driver function. A process that the driver has locked would
 * never come back from such a call while daemon and guard are gone; so it can always find another
 * daemon. It may take gs_memory_lock, which no thread holds across a driver call.
 */
#include "runtime/client/relocate.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "lockd/protocol/move_record.h"
#include "runtime/client/connect.h"
#include "runtime/range/host.h"
#include "runtime/memory/foreign_mapping.h"
#include "runtime/memory/openings.h"
#include "runtime/range/handover.h"
#include "runtime/swap/swap.h"

#define MS          1000000ull
#define NEVER       UINT64_MAX
#define MFD_CLOEXEC 1u /* linux/memfd.h */

enum stage {
    NONE,
    ASKED,    /* it may be moved */
    STOPPING, /* its memory leaves */
    HELD,     /* a guard is at work */
};

static pthread_once_t once GS_ZERO_IN_CHILD;
static struct gs_wire_sees devices[GS_SEES_MOST]; /* without headers */
static struct {
    _Atomic(unsigned) count; /* release: pairs with the acquire of the client thread */
    unsigned said;           /* number of them sent on this connection; client thread only */
} seen GS_ZERO_IN_CHILD;

static struct {
    enum stage stage;
    uint8_t from[16], to[16];
    uint32_t number;
    struct gs_own_fd record;
    bool answer_due; /* the answer to STOP, or LEFT, is not sent yet */
    bool lost;       /* the connection on which the move began has ended */
    bool asked;      /* ... and this process's daemon has asked for the record */
} self GS_ZERO_IN_CHILD;

/* --- the devices --- */

static void look_at_devices(void)
{
    int count = 0;

    if (gs_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count <= 0 ||
        count > GS_SEES_MOST)
        return;
    for (int i = 0; i < count; i++) {
        struct gs_wire_sees *one = &devices[i];
        size_t total = 0;
        CUuuid uuid;

        if (gs_driver.cuDeviceGetUuid_v2(&uuid, i) != CUDA_SUCCESS ||
            gs_driver.cuDeviceTotalMem_v2(&total, i) != CUDA_SUCCESS)
            return;
        if (gs_driver.cuDeviceGetName(one->name, (int)sizeof one->name, i) != CUDA_SUCCESS)
            one->name[0] = '\0';
        memcpy(one->uuid, uuid.bytes, sizeof one->uuid);
        one->total = total;
        one->index = (uint32_t)i;
        one->count = (uint32_t)count;
    }
    atomic_store_explicit(&seen.count, (unsigned)count, memory_order_release);
}

void gs_relocate_collect(void)
{
    pthread_once(&once, look_at_devices);
}

static bool is_visible(const uint8_t uuid[16])
{
    const unsigned count = atomic_load_explicit(&seen.count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++)
        if (memcmp(devices[i].uuid, uuid, 16) == 0)
            return true;
    return false;
}

static int send_devices(int fd)
{
    const unsigned count = atomic_load_explicit(&seen.count, memory_order_acquire);

    for (; seen.said < count; seen.said++) {
        struct gs_wire_sees message = devices[seen.said];
        int error;

        gs_connect_header(&message.header, GS_WIRE_SEES, sizeof message);
        error = gs_connect_send(fd, &message, sizeof message, NULL);
        if (error != 0)
            return error;
    }
    return 0;
}

/* --- whether it may be moved --- */

/* Under the lock: the reason why this range cannot be moved; NULL: it can. */
static const char *hindrance_of(const struct gs_range *range)
{
    if (range->theirs != NULL)
        return "it has managed memory";
    if (range->pin.shares != 0 || range->exports != NULL)
        return "it has memory that other processes may open (CUDA IPC)";
    return range->pinned ? "it has memory that it exported, or mapped more than once" : NULL;
}

static const char *hindrance_on(const struct gs_device *device)
{
    const char *why = NULL;

    if (atomic_load_explicit(&gs_runtime.partial, memory_order_relaxed))
        why = "it is partly covered: some of its calls go past gpushare";
    else if (!gs_device_is_movable(device))
        why = "its memory is not moved (GPUSHARE_MEMORY=native, or an old driver)";
    else if (device->managed)
        why = "its memory is managed memory (GPUSHARE_MEMORY=managed, or an old driver)";
    else if (device->peers.count != 0)
        why = "its GPUs reach each other's memory (peer access)";
    GS_HOLD_MEMORY;
    if (device->accounts.managed != 0 || device->accounts.loose != 0)
        why = "it has managed memory";
    if (device->accounts.over != 0) /* no driver was seen to restore that */
        why = "it has memory beyond the card, in host memory";
    for (const struct gs_range *range = device->ranges; range != NULL && why == NULL;
         range = range->next)
        why = hindrance_of(range);
    return why;
}

/* The reason why the program cannot be moved at present; NULL: it can. */
static const char *find_hindrance(int *code)
{
    const struct gs_device *device;
    const char *why = NULL;
    bool opened, foreign;

    *code = -ENOTSUP;
    gs_openings_tend(gs_now(), true);
    GS_WITH_MEMORY(opened = gs_openings_any(); foreign = gs_foreign_any());
    if (opened)
        return "it has memory of other processes open (CUDA IPC)";
    if (foreign)
        return "it has mapped memory that it imported, or mapped more than once";
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && why == NULL; i++) {
        why = hindrance_on(device);
        if (memcmp(device->uuid, self.to, sizeof self.to) == 0 &&
            gs_context_for(device) != NULL)
            why = "it uses that GPU already";
    }
    if (why == NULL && !is_visible(self.to)) {
        *code = -ENODEV;
        why = "it does not see that GPU (CUDA_VISIBLE_DEVICES)";
    }
    return why;
}

/* --- answers --- */

/* Goes with it to the other device. The next daemon has no report from it. */
static uint64_t pinned_bytes(void)
{
    uint64_t bytes = 0;

    gs_each_device (device) {
        const struct gs_accounts accounts = gs_memory_accounts(device);

        if (memcmp(device->uuid, self.from, sizeof self.from) == 0)
            bytes = gs_memory_pinned(device, &accounts);
    }
    return bytes;
}

static int send_step(int fd, enum gs_move_step step, int code, const char *why, int record)
{
    struct gs_wire_move message = {.number = self.number, .step = (uint32_t)step, .code = code};
    const struct gs_descriptors with = {.fd = {record}, .count = 1};

    gs_connect_header(&message.header, GS_WIRE_MOVE, sizeof message);
    memcpy(message.from, self.from, sizeof message.from);
    memcpy(message.to, self.to, sizeof message.to);
    message.pinned = step == GS_MOVE_LEFT ? pinned_bytes() : 0;
    snprintf(message.text, sizeof message.text, "%s", why);
    return gs_connect_send(fd, &message, sizeof message, record >= 0 ? &with : NULL);
}

static void forget_move(void)
{
    gs_own_fd_close(&self.record);
    self.stage = NONE;
    self.answer_due = false;
}

/* The daemon takes the program off its list of moves. A lost answer counts as too late. */
static void refuse_move(int fd, enum gs_move_step step, int code, const char *why)
{
    gs_log("it cannot be moved: %s", why);
    send_step(fd, step, code, why, -1);
    forget_move();
}

/* --- the end --- */

static const uint8_t *place_of(const uint8_t uuid[16])
{
    if (memcmp(uuid, self.from, 16) == 0)
        return self.to;
    return memcmp(uuid, self.to, 16) == 0 ? self.from : uuid;
}

static void end_move(bool moved)
{
    gs_log("the move is over: it is on %s device", moved ? "the other" : "the same");
    if (moved) {
        const unsigned count = atomic_load_explicit(&seen.count, memory_order_acquire);
        uint8_t uuid[16];

        gs_each_device (device) {
            memcpy(uuid, place_of(device->uuid), sizeof uuid);
            gs_device_set_uuid(device, uuid);
            device->report.known = false;
        }
        for (unsigned i = 0; i < count; i++) {
            memcpy(uuid, place_of(devices[i].uuid), sizeof uuid);
            memcpy(devices[i].uuid, uuid, sizeof uuid);
        }
        seen.said = 0;
        gs_host_device_changed();
    }
    forget_move();
}

void gs_relocate_heard(const struct gs_wire_move *message)
{
    if (message->step == GS_MOVE_OVER && message->number == self.number) {
        if (self.stage == HELD)
            end_move(message->code == 0);
        else
            forget_move();
    } else if (message->step == GS_MOVE_LEFT && self.stage == HELD && self.lost &&
               message->number == self.number) {
        self.asked = self.answer_due = true;
    } else if (message->step == GS_MOVE_ASK && self.stage == NONE) {
        self.stage = ASKED;
        self.number = message->number;
        self.answer_due = true;
        self.lost = false;
        memcpy(self.from, message->from, sizeof self.from);
        memcpy(self.to, message->to, sizeof self.to);
    } else if (message->step == GS_MOVE_STOP && self.stage == ASKED &&
               message->number == self.number) {
        self.stage = STOPPING;
    }
}

/* --- stopping --- */

/* True if nothing is on any device except what the driver's checkpoint takes along. */
static bool has_left(void)
{
    bool left = !gs_handover_has_any();

    gs_each_device (device) {
        const struct gs_accounts accounts = gs_memory_accounts(device);

        left &= accounts.resident == 0 && !gs_swap_is_under_way(device, true);
    }
    return left;
}

static bool make_record(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const char fresh = GS_RECORD_NEW;
    const int fd = (int)syscall(SYS_memfd_create, "gpushare-move", MFD_CLOEXEC);

    if (fd < 0)
        return false;
    if (pwrite(fd, &fresh, 1, 0) != 1) {
        close(fd);
        return false;
    }
    gs_own_fd_set(&self.record, fd);
    return true;
}

static void hold_still(int fd)
{
    int code;
    const char *why = find_hindrance(&code);

    if (why == NULL && !make_record()) {
        code = -EMFILE;
        why = "it can open no more files";
    }
    if (why != NULL) {
        refuse_move(fd, GS_MOVE_STOP, code, why);
        return;
    }
    self.stage = HELD;
    self.answer_due = true;
    gs_log("its memory has left: it can be moved");
}

/* Sends the answer that is due. */
static int send_answer(int fd)
{
    const bool with = !self.lost || self.asked;
    int code = 0, record = -1, error;
    const char *why;

    if (self.stage == ASKED) {
        why = find_hindrance(&code);
        if (why != NULL) {
            refuse_move(fd, GS_MOVE_ASK, code, why);
            return 0;
        }
        error = send_step(fd, GS_MOVE_ASK, 0, "", -1);
    } else {
        record = gs_own_fd(&self.record);
        if (record < 0) /* closed by the program; the guard has its own */
            return 0;
        error =
            send_step(fd, self.lost ? GS_MOVE_LEFT : GS_MOVE_STOP, 0, "", with ? record : -1);
    }
    if (error == 0)
        self.answer_due = false;
    return error;
}

int gs_relocate_send(int fd)
{
    int error = 0;

    if (fd < 0)
        return 0;
    error = send_devices(fd); /* a daemon that takes over the move must learn of them first */
    if (error == 0 && self.answer_due)
        error = send_answer(fd);
    return error;
}

/* --- without the daemon --- */

/* Looks whether the guard has written how the move ends. If there was no guard, none comes any
 * more. */
static void look_at_record(void)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = gs_own_fd(&self.record);
    const char stayed = GS_RECORD_STAYED;
    char byte = GS_RECORD_NEW;
    bool locked;

    if (fd < 0)
        return;
    locked = fcntl(fd, F_OFD_SETLK, &whole) == 0;
    if (pread(fd, &byte, 1, 0) == 1 && byte == GS_RECORD_NEW && locked &&
        pwrite(fd, &stayed, 1, 0) == 1)
        byte = stayed;
    whole.l_type = F_UNLCK;
    if (locked)
        fcntl(fd, F_OFD_SETLK, &whole);
    if (byte == GS_RECORD_MOVED || byte == GS_RECORD_STAYED)
        end_move(byte == GS_RECORD_MOVED);
}

uint64_t gs_relocate_step(bool stopped, int fd)
{
    if (self.stage == STOPPING && stopped && fd >= 0 && has_left())
        hold_still(fd);
    if (self.stage == HELD && fd < 0)
        look_at_record();
    if (self.stage == HELD)
        return fd < 0 ? 20 * MS : 1000 * MS;
    return self.stage == STOPPING ? 2 * MS : NEVER;
}

bool gs_relocate_is_asked(void)
{
    return self.stage != NONE;
}

bool gs_relocate_holds(void)
{
    return self.stage == HELD;
}

void gs_relocate_lost(void)
{
    seen.said = 0;
    self.lost = true;
    self.asked = false;
    if (self.stage == HELD)
        self.answer_due = true;
    else
        forget_move();
}

void gs_relocate_after_fork(void)
{
    gs_own_fd_close(&self.record);
}
