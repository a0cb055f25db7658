/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_alone.c: plays what gate.c needs of the rest of the library, and runs a body in a process of
 * its own.
 */
#include "tests/runtime/gate/gate_alone.h"

#include <sys/wait.h>
#include <time.h>

#include "runtime/base/stats.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/throttle.h"

_Atomic(bool) gate_no_context, gate_capturing, gate_capture_ends;

uint64_t gs_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool gate_may_wait(void)
{
    return !atomic_load(&gate_no_context);
}

void gs_stats_called(void)
{
}

void gs_throttle_thread_ends(struct gs_throttle *throttle)
{
    (void)throttle;
}

bool gs_capture_active(void)
{
    return atomic_load(&gate_capturing);
}

CUstreamCaptureStatus gs_capture_status(CUstream stream, bool per_thread)
{
    return atomic_load(&gate_capturing) && stream != NULL && !per_thread
               ? CU_STREAM_CAPTURE_STATUS_ACTIVE
               : CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gs_capture_begins(CUstream stream, bool per_thread, bool beside)
{
    (void)stream;
    (void)per_thread;
    return beside && atomic_load(&gate_capturing) && !atomic_load(&gate_capture_ends);
}

void gs_capture_thread_ends(void)
{
}

void gate_sleep(uint64_t ns)
{
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&pause, NULL);
}

void gate_run_alone(int (*body)(void))
{
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(300);
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
