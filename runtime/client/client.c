/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: starts the client thread (base/worker.h) with the first context of the process, and
 * registers contexts and devices. reconcile.c has the rounds of that thread.
 */
#include "runtime/client/client.h"
#include "runtime/client/reconcile.h"
#include "runtime/gate/drain.h"
#include "runtime/gate/gate.h"
#include "runtime/client/evidence.h"
#include "runtime/client/relocate.h"
#include "runtime/client/session.h"
#include "runtime/memory/openings.h"
#include "runtime/base/stats.h"
#include "runtime/swap/swap.h"

/* At exit, the longest wait for the client thread to rest: enough for some steps of moving, and
 * for the usual drain. */
#define EXIT_LIMIT_NS 300000000ull

bool gs_client_ready(void)
{
    gs_stats_called();
    return gs_driver_load();
}

static bool is_not_draining(void)
{
    return !gs_drain_busy() && !gs_relocate_holds();
}

static void *client_main(void *unused)
{
    CUstreamCaptureMode mode =
        CU_STREAM_CAPTURE_MODE_RELAXED; /* nothing that we do touches a captured stream */
    bool relaxed = false;

    (void)unused;
    gs_cancel_off();
    for (;;) {
        uint64_t timeout;

        if (!relaxed &&
            gs_device_at(0) != NULL) { /* before, the driver is not called: it may */
            gs_driver.cuThreadExchangeStreamCaptureMode(&mode); /* be making the context */
            relaxed = true;
        }

        if (gs_worker_is_asked_to_park()) {
            gs_swap_settle();
            gs_worker_stay_parked(is_not_draining);
        }
        gs_worker_mend_wake();
        timeout = gs_reconcile();
        if (timeout > 0)
            gs_worker_rest(gs_reconcile_fd(), timeout);
    }
    return NULL;
}

/* Runs before the driver's own exit handlers, which were registered when it was loaded. From
 * here on the client thread calls the driver only while a thread of the program waits for it
 * (that thread then delays the driver's end as well). So the exporters of memory that is kept open
 * hear here that it is closed. Work that does not end is not waited for, as without gpushare. */
static void at_exit(void)
{
    gs_reconcile_exiting();
    gs_worker_park_for(EXIT_LIMIT_NS);
    gs_worker_unpark();
    gs_openings_let_go();
}

static void start_thread(void)
{
    switch (gs_worker_start(client_main)) {
    case 0:
        break;
    case 1:
        atexit(at_exit);
        break;
    default:
        /* Without the thread nothing takes turns, moves memory or opens the gate later: the gate
         * stays open, and memory is the driver's own. Starting it is not tried again, since memory
         * allocated meanwhile could not be moved. For each context, since its device may be new. */
        gs_session_give_up("this process cannot start a thread");
        gs_each_device (device)
            atomic_store_explicit(&device->movable, false, memory_order_relaxed);
        gs_session_allow_everything();
        gs_gate_open(false);
    }
}

static void start_client(void)
{
    gs_reconcile_begin();
    start_thread();
}

void gs_client_begin(CUdevice ordinal)
{
    int count = 0;

    if (!gs_runtime.config.disabled && gs_driver.cuDeviceGetCount(&count) == CUDA_SUCCESS &&
        ordinal >= 0 && ordinal < count)
        start_thread();
}

void gs_client_attach_room(CUdevice ordinal)
{
    struct gs_device *device = gs_runtime.config.disabled ? NULL : gs_device_get(ordinal);

    if (device == NULL)
        return;
    gs_evidence_collect();
    start_client();
    gs_daemon_await_target(device);
}

void gs_client_attach(CUcontext context, CUdevice ordinal)
{
    struct gs_device *device = gs_device_get(ordinal);

    if (device == NULL || context == NULL || gs_runtime.config.disabled)
        return;
    gs_evidence_collect(); /* first: the daemon learns of it before the device */
    gs_relocate_collect();
    if (!gs_context_add(context, device))
        gs_daemon_remark(
            "out of memory while recording a context: gpushare does not wait for its "
            "work");
    start_client();
    gs_worker_wake();
}

/* what this thread has attached already; a primary context may end and begin anew with the same
 * handle */
static _Thread_local CUcontext known;
static _Thread_local uint32_t known_generation;

void gs_client_attach_current(struct gs_device *device)
{
    const uint32_t generation = gs_contexts_generation();
    CUcontext context = NULL;

    if (gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL ||
        (context == known && generation == known_generation))
        return;
    known = context;
    known_generation = generation;
    gs_client_attach(context, device->ordinal);
}

bool gs_client_attach_device(struct gs_device *device)
{
    if (gs_context_for(device) != NULL)
        return true;
    if (gs_device_current() != device)
        return false;
    gs_client_attach_current(device);
    return gs_context_for(device) != NULL;
}

bool gs_client_wish(void)
{
    struct gs_device *current;

    if (!gs_driver_load() || gs_runtime.config.disabled)
        return false;
    current = gs_device_current();
    if (current != NULL)
        gs_client_attach_current(current);
    else if (!GS_ANY_DEVICE(gs_context_for(device) != NULL))
        return false; /* with any context calls on memory work, if it is current or not */
    gs_evidence_collect();
    start_client();
    gs_worker_wake();
    return true;
}

void gs_client_after_fork(void)
{
    gs_worker_after_fork();
    known = NULL;
}
