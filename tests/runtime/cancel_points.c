/* SPDX-License-Identifier: Apache-2.0
 *
 * cancel_points.c: in front of a program (LD_PRELOAD): sees every call of libgpushare into libc
 * that could end a thread that somebody has cancelled (pthreads(7), "Cancellation points").
 *
 * An application's call of the driver is no such point, so the library may make none of these
 * with cancellation enabled. Writes at the end of the process to GS_CANCEL_POINTS, a file that
 * is appended to: "seen N", how many there were, and for each place in the library where it was
 * enabled "enabled NAME OFFSET". Stateless but for these. Names that need not be here: the
 * library uses stdio only between fopen() and fclose().
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACES 256

static struct place {
    _Atomic(uintptr_t) offset; /* 0: free */
    const char *name;
} places[PLACES];
static _Atomic(unsigned) seen;

/* Not stdio and not close(): those are here. */
static void put_text(int fd, const char *text)
{
    syscall(SYS_write, fd, text, strlen(text));
}

static void write_down(void)
{
    const char *path = getenv("GS_CANCEL_POINTS");
    const int fd = path != NULL ? (int)syscall(SYS_openat, AT_FDCWD, path,
                                               O_WRONLY | O_CREAT | O_APPEND, 0600)
                                : -1;
    char line[128];

    if (fd < 0)
        return;
    snprintf(line, sizeof line, "seen %u\n", atomic_load(&seen));
    put_text(fd, line);
    for (unsigned i = 0; i < PLACES && atomic_load(&places[i].offset) != 0; i++) {
        snprintf(line, sizeof line, "enabled %s %#zx\n", places[i].name,
                 (size_t)atomic_load(&places[i].offset));
        put_text(fd, line);
    }
    syscall(SYS_close, fd);
}

__attribute__((destructor)) static void end(void)
{
    write_down();
}

static void look_at_caller(const char *name, void *caller)
{
    const uintptr_t address = (uintptr_t)caller;
    uintptr_t free_place;
    Dl_info info;
    int state;

    if (dladdr(caller, &info) == 0 || strstr(info.dli_fname, "libgpushare") == NULL)
        return;
    atomic_fetch_add(&seen, 1);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, NULL);
    if (state == PTHREAD_CANCEL_DISABLE)
        return;
    for (unsigned i = 0; i < PLACES; i++) {
        const uintptr_t offset = address - (uintptr_t)info.dli_fbase;

        free_place = 0;
        if (atomic_compare_exchange_strong(&places[i].offset, &free_place, offset))
            places[i].name = name;
        if (free_place == 0 || free_place == offset)
            return;
    }
}

#define SHOWN __attribute__((visibility("default")))

/* The real one; symbols that exist in several versions by the newest. */
static void *find_real(const char *name)
{
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");

    return found != NULL ? found : dlsym(RTLD_NEXT, name);
}

#define POINT(type, name, params, args)                                                        \
    SHOWN type name params                                                                     \
    {                                                                                          \
        static typeof(type(*) params) next;                                                    \
                                                                                               \
        if (next == NULL)                                                                      \
            next = __extension__(typeof(next)) find_real(#name);                               \
        look_at_caller(#name, __builtin_return_address(0));                                    \
        return next args;                                                                      \
    }

POINT(int, close, (int fd), (fd))
POINT(int, connect, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size))
POINT(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
POINT(int, fclose, (FILE * file), (file))
POINT(FILE *, fopen, (const char *path, const char *mode), (path, mode))
POINT(ssize_t, getrandom, (void *bytes, size_t size, unsigned flags), (bytes, size, flags))
POINT(int, mkostemp, (char *path, int flags), (path, flags))
POINT(int, nanosleep, (const struct timespec *pause, struct timespec *left), (pause, left))
POINT(int, poll, (struct pollfd * fds, nfds_t count, int ms), (fds, count, ms))
POINT(int, ppoll,
      (struct pollfd * polled, nfds_t count, const struct timespec *timeout,
       const sigset_t *mask),
      (polled, count, timeout, mask))
POINT(ssize_t, pread, (int fd, void *bytes, size_t size, off_t at), (fd, bytes, size, at))
POINT(ssize_t, pwrite, (int fd, const void *bytes, size_t size, off_t at),
      (fd, bytes, size, at))
POINT(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t *mutex),
      (condition, mutex))
POINT(int, pthread_cond_timedwait,
      (pthread_cond_t * condition, pthread_mutex_t *mutex, const struct timespec *until),
      (condition, mutex, until))
POINT(int, pthread_join, (pthread_t thread, void **result), (thread, result))
POINT(ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size))
POINT(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
POINT(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
POINT(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
POINT(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))

SHOWN int open(const char *path, int flags, ...)
{
    static int (*next)(const char *, int, ...);
    mode_t mode = 0;
    va_list ap;

    if (next == NULL)
        next = __extension__(typeof(next)) find_real("open");
    va_start(ap, flags);
    if ((flags & (O_CREAT | O_TMPFILE)) != 0)
        mode = va_arg(ap, mode_t);
    va_end(ap);
    look_at_caller("open", __builtin_return_address(0));
    return next(path, flags, mode);
}

SHOWN int openat(int folder, const char *path, int flags, ...)
{
    static int (*next)(int, const char *, int, ...);
    mode_t mode = 0;
    va_list ap;

    if (next == NULL)
        next = __extension__(typeof(next)) find_real("openat");
    va_start(ap, flags);
    if ((flags & (O_CREAT | O_TMPFILE)) != 0)
        mode = va_arg(ap, mode_t);
    va_end(ap);
    look_at_caller("openat", __builtin_return_address(0));
    return next(folder, path, flags, mode);
}

SHOWN int fcntl(int fd, int command, ...)
{
    static int (*next)(int, int, ...);
    long argument;
    va_list ap;

    if (next == NULL)
        next = __extension__(typeof(next)) find_real("fcntl");
    va_start(ap, command);
    argument = va_arg(ap, long);
    va_end(ap);
    if (command == F_SETLKW || command == F_OFD_SETLKW) /* the others never wait */
        look_at_caller("fcntl", __builtin_return_address(0));
    return next(fd, command, argument);
}
