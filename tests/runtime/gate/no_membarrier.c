/* SPDX-License-Identifier: Apache-2.0
 *
 * no_membarrier.c: linked into test_gate_fenced, makes syscall(SYS_membarrier) fail as on a
 * kernel without it, so that the gate takes its fenced path. Everything else goes to the
 * kernel. No state; any thread.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;

    if (number == SYS_membarrier) {
        errno = ENOSYS;
        return -1;
    }
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
