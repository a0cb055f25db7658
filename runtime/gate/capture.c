/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.c: counts stream captures under way.
 *
 * A capture begins inside the gate. The client thread looks at the count after the gate is
 * closed, so it cannot miss a capture. State: the count and the time of the last change (relaxed:
 * the client thread reads them without a lock, and looks again).
 */
#include "runtime/gate/capture.h"

#define FORGOTTEN_NS 60000000000ull
#define HELD_OFF_NS  10000000000ull

static _Atomic(int) captures GS_ZERO_IN_CHILD, synchronizing GS_ZERO_IN_CHILD;
static _Atomic(uint64_t) last_activity, last_seen;
static uint64_t (*ask_activity)(bool *busy); /* constant once gs_capture_init() was called */

/* The clock is read after the time of the last change, and may still be behind it: another thread
 * reads it, too. */
static bool is_forgotten(void)
{
    const uint64_t seen = atomic_load_explicit(&last_seen, memory_order_relaxed),
                   now = gs_now();

    return now > seen && now - seen >= FORGOTTEN_NS;
}

void gs_capture_init(uint64_t (*activity)(bool *busy))
{
    ask_activity = activity;
}

bool gs_capture_active(void)
{
    int count = atomic_load_explicit(&captures, memory_order_acquire);
    bool busy;
    uint64_t activity;

    if (count <= 0)
        return false;
    activity = ask_activity(&busy);
    if (atomic_exchange_explicit(&last_activity, activity, memory_order_relaxed) != activity)
        atomic_store_explicit(&last_seen, gs_now(), memory_order_relaxed);
    /* a capture that has begun since the count was read is not forgotten */
    return !is_forgotten() ||
           !atomic_compare_exchange_strong_explicit(&captures, &count, 0, memory_order_relaxed,
                                                    memory_order_relaxed);
}

bool gs_capture_records(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result;

    if (!gs_capture_active())
        return false;
    result = per_thread ? gs_driver.cuStreamIsCapturing_ptsz(stream, &status)
                        : gs_driver.cuStreamIsCapturing(stream, &status);
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gs_capture_refuses(void)
{
    const CUdeviceptr unknown = 1;

    return gs_capture_is_any() &&
           gs_driver.cuMemFree_v2(unknown) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* After it is counted, and before the driver begins the capture. Otherwise a thread that sees no
 * capture here and synchronises the context could meet a capture. */
static void await_synchronizing(void)
{
    const uint64_t until = gs_now() + HELD_OFF_NS;

    while (atomic_load_explicit(&synchronizing, memory_order_seq_cst) > 0 && gs_now() < until)
        gs_pause(20000);
}

void gs_capture_begins(void)
{
    atomic_store_explicit(&last_seen, gs_now(), memory_order_relaxed);
    atomic_fetch_add_explicit(&captures, 1, memory_order_seq_cst);
    await_synchronizing();
}

bool gs_capture_joins(void)
{
    int count = gs_capture_active() ? atomic_load_explicit(&captures, memory_order_relaxed) : 0;

    while (count > 0 &&
           !atomic_compare_exchange_weak_explicit(&captures, &count, count + 1,
                                                  memory_order_seq_cst, memory_order_relaxed))
        continue;
    if (count > 0)
        await_synchronizing();
    return count > 0;
}

void gs_capture_ended(void)
{
    int count = atomic_load_explicit(&captures, memory_order_relaxed);

    while (count > 0 && /* else it was forgotten before */
           !atomic_compare_exchange_weak_explicit(&captures, &count, count - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
        continue;
}

bool gs_capture_is_any(void)
{
    return atomic_load_explicit(&captures, memory_order_relaxed) > 0;
}

bool gs_capture_hold_off(void)
{
    atomic_fetch_add_explicit(&synchronizing, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&captures, memory_order_seq_cst) <= 0)
        return true;
    gs_capture_release();
    return false;
}

void gs_capture_release(void)
{
    atomic_fetch_sub_explicit(&synchronizing, 1, memory_order_seq_cst);
}

CUstreamCaptureMode gs_capture_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void gs_capture_restore(CUstreamCaptureMode mode)
{
    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
}
