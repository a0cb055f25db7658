/* SPDX-License-Identifier: Apache-2.0
 *
 * gpushare.h: what a program can tell gpushare about itself. It is optional: a program that calls
 * nothing here shares the GPU as well. With it, less memory moves at each switch.
 *
 * The functions are weak symbols: a program that calls them links without a library, and runs
 * without gpushare, where each returns -ENOSYS. A position independent executable, or a shared
 * library, finds them when it is patched later; an executable at fixed addresses (-no-pie) must
 * be linked with gpushare-cc. C and C++. gpushare.h(3) is the manual page.
 *
 * Every function may be called by any thread at any time, also before the first CUDA call. None
 * waits, calls CUDA or writes errno. A forked child starts without anything that its parent has
 * said. Results below 0 are errors: a negative value of errno.h.
 */
#ifndef GPUSHARE_H
#define GPUSHARE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef GPUSHARE_INSIDE /* the library itself */
#define GPUSHARE_FUNCTION __attribute__((visibility("default")))
#else
#define GPUSHARE_FUNCTION __attribute__((weak, visibility("default")))
#endif

/* How the daemon treats the program; gpushare-lockd(8) says more. */
enum gpushare_class {
    GPUSHARE_CLASS_AUTO = 0, /* the default: first while it has run little since it rested */
    GPUSHARE_CLASS_INTERACTIVE = 1,
    GPUSHARE_CLASS_BATCH = 2,
    GPUSHARE_CLASS_BACKGROUND = 3,
};

/* Runs in a thread of gpushare's, before memory leaves the device; see gpushare_on_pressure(). */
typedef void gpushare_callback(void *argument);

GPUSHARE_FUNCTION int64_t gpushare_1_discard(const void *address, size_t bytes);
GPUSHARE_FUNCTION int64_t gpushare_1_keep(const void *address, size_t bytes);
GPUSHARE_FUNCTION int gpushare_1_idle(void);
GPUSHARE_FUNCTION int gpushare_1_set_class(int class_number);
GPUSHARE_FUNCTION int gpushare_1_suspend(void);
GPUSHARE_FUNCTION int gpushare_1_resume(void);
GPUSHARE_FUNCTION int gpushare_1_on_pressure(gpushare_callback *callback, void *argument);

#ifndef GPUSHARE_INSIDE

/* 1 if the library is in this process, else 0. */
static inline int gpushare_is_there(void)
{
    return gpushare_1_discard != NULL;
}

/* The contents of `bytes` bytes of device memory from `address` on (cudaMalloc, cuMemAlloc,
 * cuMemCreate, pools) are not needed any more, until they are written again. Bytes that
 * work submitted before this call writes there are given up as well, even if that work has not
 * finished.
 *
 * The discard holds until this process submits any work to any GPU, since nobody can know what
 * that writes: memory that leaves the device earlier is not copied for these bytes, and comes
 * back as zeros. So it belongs at the end of a burst of work, before the program waits for a
 * request or computes on the CPU. Work that another thread submits at the same time ends it.
 *
 * Only whole blocks of 2 MiB, counted from the beginning of the allocation, can be left out;
 * the last block of an allocation may be shorter. The rest is kept.
 * Returns the number of bytes that will be left out, 0 or more. -EINVAL: no address, no bytes,
 * or an end beyond the address space. -EFAULT: the bytes are not all in one live allocation of
 * this process that gpushare can move; nothing has changed then. The address is never read. */
static inline int64_t gpushare_discard(const void *address, size_t bytes)
{
    return gpushare_1_discard != NULL ? gpushare_1_discard(address, bytes) : -ENOSYS;
}

/* Cancels a discard, for each block that has any of these bytes: contents that are still there
 * are kept from now on. Contents that have left the device in between are lost. 0, or as
 * gpushare_discard(). */
static inline int64_t gpushare_keep(const void *address, size_t bytes)
{
    return gpushare_1_keep != NULL ? gpushare_1_keep(address, bytes) : -ENOSYS;
}

/* The program has nothing to do on the GPU now, so the daemon need not wait to find that out. It
 * ends with the next work that the program submits. 0. */
static inline int gpushare_idle(void)
{
    return gpushare_1_idle != NULL ? gpushare_1_idle() : -ENOSYS;
}

/* Asks the daemon to treat the program as one of that class (enum gpushare_class) from now on.
 * 0; -EINVAL: there is no such class. */
static inline int gpushare_set_class(int class_number)
{
    return gpushare_1_set_class != NULL ? gpushare_1_set_class(class_number) : -ENOSYS;
}

/* Suspends the program: it loses its turn, all its memory leaves the devices, and its threads
 * wait at their next CUDA call until gpushare_resume(), called by a thread that does not wait,
 * or gpusharectl resume. Without a daemon nothing happens. Returns 0 at once, before the memory
 * has left. */
static inline int gpushare_suspend(void)
{
    return gpushare_1_suspend != NULL ? gpushare_1_suspend() : -ENOSYS;
}

/* Ends gpushare_suspend(), but not a gpusharectl pause. 0. */
static inline int gpushare_resume(void)
{
    return gpushare_1_resume != NULL ? gpushare_1_resume() : -ENOSYS;
}

/* `callback(argument)` is called, in a thread of its own, when the program is to stop for
 * others, before its memory leaves. Memory that it frees with the usual calls (cudaFree, or
 * PyTorch's torch.cuda.empty_cache()) need not be moved. The program goes on meanwhile. Memory
 * moves 100 ms after the call, whether the callback has returned or not; CUDA calls that it
 * makes later wait for the program's next turn. It is not called again before it has returned.
 * There is one callback for each process, the newest; NULL removes it, though one that has begun
 * goes on. 0; -EAGAIN: no thread could be made, and nothing has changed. */
static inline int gpushare_on_pressure(gpushare_callback *callback, void *argument)
{
    return gpushare_1_on_pressure != NULL ? gpushare_1_on_pressure(callback, argument)
                                          : -ENOSYS;
}

#endif /* GPUSHARE_INSIDE */

#ifdef __cplusplus
}
#endif

#endif
