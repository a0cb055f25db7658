/* SPDX-License-Identifier: Apache-2.0
 *
 * room.c: makes room on a full card. State: the number of threads that wait for room.
 */
#include "runtime/memory/room.h"
#include "lockd/protocol/wire.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/graph_memory.h"
#include "runtime/memory/idle_ranges.h"

/* 5 s: the daemon counts one request a second, each for a small part of the card. It takes
 * longer while other programs are on their way out */
#define ATTEMPTS      50
#define ATTEMPTS_MOST 200
#define A_SECOND      10 /* attempts in a second */
#define SECONDS_MOST  4  /* seconds for which the request grows */

/* A driver without memory is asked so often again while the card has some */
#define DOUBTS        3
#define DOUBT_WAIT_NS 10000000u

#define SHORT_STEP_MIN (2ull << 20)
#define SHORT_STEP_MAX (512ull << 20)

/* Relaxed: the client thread is woken after a rise, and a fall may be seen later. */
static _Atomic(unsigned) waiting GS_ZERO_IN_CHILD;

bool gs_room_is_wanted(void)
{
    return atomic_load_explicit(&waiting, memory_order_relaxed) != 0;
}

/* Bytes that others are asked for, for each request: the driver does not say how much it lacks. */
static uint64_t short_step(const struct gs_device *device)
{
    const uint64_t part = device->total / 64;

    return part < SHORT_STEP_MIN   ? SHORT_STEP_MIN
           : part > SHORT_STEP_MAX ? SHORT_STEP_MAX
                                   : part;
}

/* Asks others to leave this device, and more of them the longer it lasts (seconds). False:
 * nothing helps (no daemon, or no other program). */
static bool ask_for_room(struct gs_device *device, unsigned seconds)
{
    uint64_t step;

    if (gs_runtime.config.disabled || gs_daemon_is_absent() ||
        ((gs_device_flags(device) & GS_TARGET_SOLE) != 0 && !gs_daemon_is_new(gs_now())))
        return false;
    step = short_step(device) << (seconds < SECONDS_MOST ? seconds : SECONDS_MOST);
    atomic_store_explicit(&device->report.short_asked,
                          step < device->total / 2 ? step : device->total / 2,
                          memory_order_relaxed);
    gs_worker_wake();
    return true;
}

#define UNKNOWN UINT64_MAX

/* UNKNOWN for a device that is not current. */
static uint64_t free_bytes(const struct gs_device *device)
{
    size_t free = 0, total;

    return device == gs_device_current() &&
                   gs_driver.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS
               ? free
               : UNKNOWN;
}

/* Releases memory that this process holds and does not use; true: there was some. */
static bool begin_asking(struct gs_device *device)
{
    const uint64_t idle = gs_idle_give_back(device, NULL, UINT64_MAX);
    const bool gave = gs_graph_memory_trim(device) || idle != 0;

    atomic_store_explicit(&device->report.room_before, gs_device_room(device),
                          memory_order_relaxed);
    atomic_store_explicit(&device->report.free_before, free_bytes(device),
                          memory_order_relaxed);
    return gave;
}

/* The daemon has taken room from all programs, and not all of it has become free yet. */
static bool is_on_its_way(const struct gs_device *device)
{
    const uint64_t room = gs_device_room(device), free = free_bytes(device),
                   before =
                       atomic_load_explicit(&device->report.room_before, memory_order_relaxed),
                   free_before =
                       atomic_load_explicit(&device->report.free_before, memory_order_relaxed);

    return free != UNKNOWN && free_before != UNKNOWN && room < before &&
           free < free_before + (before - room);
}

bool gs_room_make(struct gs_device *device, unsigned attempt)
{
    GS_KEEP_ERRNO;
    uint64_t free;
    bool asked;

    if (device == NULL)
        device = gs_device_current();
    if (device == NULL) /* without a current device it can only be guessed */
        device = gs_device_at(0);
    if (device == NULL)
        return false;
    if (attempt == 0 && begin_asking(device)) { /* then no other program has to leave */
        return true;
    }
    atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
    asked = (attempt < ATTEMPTS || (attempt < ATTEMPTS_MOST && is_on_its_way(device))) &&
            ask_for_room(device, attempt / A_SECOND);
    if (asked) {
        /* The daemon counts what a program asks for in its turn: what passes until then is no
         * attempt. A thread with an open capture goes on, since the program cannot stop before that
         * ends. REFUSED: there will be no turn. */
        const unsigned pass = gs_gate_enter_on(NULL, GS_CALL_BUILDS);

        asked = pass != GS_PASS_REFUSED;
        if (asked) {
            gs_gate_leave(pass);
            gs_log("the driver has no memory for an allocation that cannot be moved: asked "
                   "the daemon for room, attempt %u",
                   attempt + 1);
            gs_pause(100000000);
        }
    }
    atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
    if (asked || attempt >= DOUBTS)
        return asked;
    /* The card may have as much free as others would be asked for: the driver lacks something else,
     * perhaps only beside other calls of the process. (On an H200 a launch of a graph with memory of
     * its own was refused once in 34 000, with nearly all of the card free.) */
    free = free_bytes(device);
    if (free == UNKNOWN || free < short_step(device))
        return false;
    gs_pause(DOUBT_WAIT_NS);
    return true;
}
