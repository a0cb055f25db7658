/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c: a limit of processes, as a container may have: with GS_THREADS=N libgpushare gets
 * no more than N threads. The program's own pthread_create, which comes first in the search
 * order. State: how many it got. Not for sanitizers, which have a hand in pthread_create.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static _Atomic(int) got;

__attribute__((visibility("default"))) int
pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
               void *(*run)(void *), void *restrict argument)
{
    create_thread *real = __extension__(create_thread *) dlsym(RTLD_NEXT, "pthread_create");
    const char *limit = getenv("GS_THREADS");
    Dl_info caller;

    if (limit != NULL && dladdr(__builtin_return_address(0), &caller) != 0 &&
        strstr(caller.dli_fname, "libgpushare") != NULL &&
        atomic_fetch_add(&got, 1) >= strtol(limit, NULL, 10))
        return EAGAIN;
    return real(thread, attributes, run, argument);
}
