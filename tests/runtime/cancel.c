/* SPDX-License-Identifier: Apache-2.0
 *
 * cancel.c: threads that were cancelled before they call the driver. None of these calls is a
 * cancellation point without gpushare, so all come back from them, and end only afterwards.
 *
 *   cancel SECONDS    then "idle", and a line on standard input is waited for
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/check.h"

#define HELD (40 * MIB)

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

static CUcontext context;
static CUdeviceptr held;
static _Atomic(unsigned) came_back;

static void *call_cancelled(void *unused)
{
    CUdeviceptr address;

    (void)unused;
    CHECK(pthread_cancel(pthread_self()) == 0);
    OK(cuCtxSetCurrent(context));
    OK(cuMemsetD8Async(held, 1, 1000, NULL));
    OK(cuMemAlloc(&address, MIB));
    OK(cuMemFree(address));
    OK(cuMemAllocAsync(&address, MIB, NULL));
    OK(cuMemFreeAsync(address, NULL));
    atomic_fetch_add(&came_back, 1);
    pthread_testcancel();
    return NULL;
}

/* parks the client thread */
static void *end_context_cancelled(void *unused)
{
    CUcontext other;

    OK(cuCtxCreate(&other, NULL, 0, 0));
    CHECK(pthread_cancel(pthread_self()) == 0);
    OK(cuCtxDestroy(other));
    atomic_fetch_add(&came_back, 1);
    pthread_testcancel();
    return unused;
}

static unsigned run_cancelled(void *(*call)(void *))
{
    pthread_t thread;
    void *result = NULL;

    CHECK(pthread_create(&thread, NULL, call, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    return 1;
}

int main(int argc, char **argv)
{
    const struct timespec pause = {0, 2000000};
    unsigned count = 0;
    time_t until;

    CHECK(argc == 2);
    context = begin_context();
    OK(cuMemAlloc(&held, HELD));
    OK(cuMemsetD8(held, 0, HELD));
    for (until = time(NULL) + strtol(argv[1], NULL, 10); time(NULL) < until;
         nanosleep(&pause, NULL)) {
        count += run_cancelled(call_cancelled);
        if (count % 16 == 0)
            count += run_cancelled(end_context_cancelled);
        OK(cuCtxSynchronize());
    }
    printf("%u of %u came back from their calls\nidle\n", atomic_load(&came_back), count);
    fflush(stdout);
    CHECK(getchar() != EOF);
    return atomic_load(&came_back) == count ? 0 : 1;
}
