/* SPDX-License-Identifier: Apache-2.0
 *
 * wishes.c: does with the functions of gpushare.h what it is told on standard input, a command
 * a line, so that a test can see what becomes of it.
 *
 *   alloc MIB         a block of that size, filled with a pattern (the answer: its number)
 *   fill I FROM N V   N MiB of block I from FROM MiB on become V, by a submission
 *   read I FROM N     "V" if all of that is V, else "mixed"
 *   discard I FROM N  in KiB: the call's result
 *   keep I FROM N     in KiB: the call's result
 *   free I
 *   idle, class N, suspend, resume       the call's result
 *   pressure MODE [I] a callback that: "free"s block I; "hang"s; "call"s CUDA for ever; "none"
 *   called            how often a callback has begun
 *   begin             a thread makes one submission
 *   begun             "yes" when that has returned
 *   bad               hostile arguments: "ok", or the line of the first wrong answer
 *   threads           eight threads call everything for a moment
 *   fork              a child calls everything: "ok" if it ends well
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/client/gpushare.h"
#include "tests/runtime/check.h"

#define BLOCKS  64
#define THREADS 8

static struct {
    CUdeviceptr device;
    size_t bytes;
} blocks[BLOCKS];
static CUcontext context;
static _Atomic(unsigned) called;
static _Atomic(bool) begun;

static void *make_pointer(CUdeviceptr address)
{
    return (
        void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr): as programs have them
}

/* --- memory --- */

static void allocate_block(size_t mib)
{
    unsigned i = 0;

    while (blocks[i].device != 0)
        i++;
    OK(cuMemAlloc(&blocks[i].device, mib * MIB));
    blocks[i].bytes = mib * MIB;
    OK(cuMemsetD8(blocks[i].device, (unsigned char)(i + 1), mib * MIB));
    printf("%u\n", i);
}

static void read_block(size_t i, size_t from, size_t count)
{
    static unsigned char copy[MIB];
    bool mixed = false;
    int value = -1;

    for (size_t at = from; at < from + count; at++) {
        OK(cuMemcpyDtoH(copy, blocks[i].device + at * MIB, sizeof copy));
        value = value < 0 ? copy[0] : value;
        for (size_t k = 0; k < sizeof copy; k++)
            mixed |= copy[k] != value;
    }
    if (mixed)
        puts("mixed");
    else
        printf("%d\n", value);
}

/* --- callbacks --- */

static void free_block(void *argument)
{
    const size_t i = (size_t)(uintptr_t)argument;

    OK(cuCtxSetCurrent(context));
    OK(cuMemFree(blocks[i].device));
    blocks[i].device = 0;
    atomic_fetch_add(&called, 1);
}

static void hang_callback(void *argument)
{
    (void)argument;
    atomic_fetch_add(&called, 1);
    for (;;)
        pause();
}

static void call_for_ever(void *argument)
{
    CUdeviceptr address;

    (void)argument;
    atomic_fetch_add(&called, 1);
    OK(cuCtxSetCurrent(context));
    for (;;) {
        OK(cuMemAlloc(&address, MIB));
        OK(cuMemsetD8(address, 1, MIB));
        OK(cuMemFree(address));
    }
}

static int set_callback(const char *mode, size_t i)
{
    if (strcmp(mode, "free") == 0)
        return gpushare_on_pressure(free_block, (void *)(uintptr_t)i); // NOLINT
    if (strcmp(mode, "hang") == 0)
        return gpushare_on_pressure(hang_callback, NULL);
    if (strcmp(mode, "call") == 0)
        return gpushare_on_pressure(call_for_ever, NULL);
    return gpushare_on_pressure(NULL, NULL);
}

/* --- hostile arguments --- */

#define WANT(call, expected)                                                                   \
    do {                                                                                       \
        errno = 4711;                                                                          \
        if ((call) != (expected) || errno != 4711) {                                           \
            printf("line %d: %lld, errno %d\n", __LINE__, (long long)(call), errno);           \
            return;                                                                            \
        }                                                                                      \
    } while (0)

static void try_bad_arguments(void)
{
    static char host[4 * 1024 * 1024];
    CUdeviceptr whole, small, gone;

    OK(cuMemAlloc(&whole, 8 * MIB + 512));
    OK(cuMemAlloc(&small, 4096));
    OK(cuMemAlloc(&gone, 8 * MIB));
    OK(cuMemFree(gone));
    WANT(gpushare_discard(NULL, 1), -EINVAL);
    WANT(gpushare_keep(NULL, 1), -EINVAL);
    WANT(gpushare_discard(make_pointer(whole), 0), -EINVAL);
    WANT(gpushare_discard(make_pointer(whole), SIZE_MAX), -EINVAL);
    WANT(gpushare_discard(make_pointer(whole), SIZE_MAX - (size_t)whole), -EINVAL);
    WANT(gpushare_keep(make_pointer(whole), SIZE_MAX), -EINVAL);
    WANT(gpushare_discard(make_pointer(whole), (size_t)INT64_MAX - (size_t)whole), -EFAULT);
    WANT(gpushare_discard(make_pointer(UINT64_MAX), 1), -EINVAL);
    WANT(gpushare_discard(make_pointer(1), 1), -EFAULT);
    WANT(gpushare_discard(host, sizeof host), -EFAULT);
    WANT(gpushare_keep(host, sizeof host), -EFAULT);
    WANT(gpushare_discard(make_pointer(gone), 8 * MIB), -EFAULT);
    WANT(gpushare_discard(make_pointer(whole), 8 * MIB + 513), -EFAULT);
    WANT(gpushare_discard(make_pointer(whole + 8 * MIB + 512), 1), -EFAULT);
    WANT(gpushare_discard(make_pointer(whole - 1), 2), -EFAULT);
    WANT(gpushare_discard(make_pointer(small), 4096), 0);
    WANT(gpushare_discard(make_pointer(small), 4097), -EFAULT);
    WANT(gpushare_discard(make_pointer(whole), 1), 0);
    WANT(gpushare_discard(make_pointer(whole + 1), 4 * MIB - 1), 2 * (int64_t)MIB);
    WANT(gpushare_discard(make_pointer(whole), 8 * MIB + 512), 10 * (int64_t)MIB);
    WANT(gpushare_keep(make_pointer(whole), 8 * MIB + 512), 0);
    WANT(gpushare_set_class(-1), -EINVAL);
    WANT(gpushare_set_class(4), -EINVAL);
    WANT(gpushare_set_class(0x7fffffff), -EINVAL);
    WANT(gpushare_set_class(GPUSHARE_CLASS_AUTO), 0);
    WANT(gpushare_resume(), 0); /* nothing was suspended */
    WANT(gpushare_on_pressure(NULL, make_pointer(whole)), 0);
    OK(cuMemFree(whole));
    OK(cuMemFree(small));
    puts("ok");
}

/* --- threads and children --- */

static void do_nothing(void *argument)
{
    (void)argument;
}

static void *call_everything(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    CUdeviceptr own;

    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&own, 6 * MIB));
    for (unsigned i = 0; i < 2000; i++) {
        seed = seed * 1664525u + 1013904223u;
        switch (seed >> 29) {
        case 0:
            OK(cuMemsetD8(own, 1, 2 * MIB));
            break;
        case 1:
            CHECK(gpushare_set_class((int)(seed >> 20 & 3)) == 0);
            break;
        case 2:
            CHECK(gpushare_idle() == 0);
            break;
        case 3:
            CHECK(gpushare_on_pressure((seed >> 20 & 1) != 0 ? do_nothing : NULL, NULL) == 0);
            break;
        case 4:
            CHECK(gpushare_keep(make_pointer(own), 6 * MIB) == 0);
            break;
        case 5:
            CHECK(gpushare_discard(make_pointer(own ^ (seed >> 8 & 0xffff) << 20), 2 * MIB) !=
                  1);
            break;
        default:
            CHECK(gpushare_discard(make_pointer(own), 6 * MIB) == 6 * (int64_t)MIB);
        }
    }
    CHECK(gpushare_set_class(GPUSHARE_CLASS_AUTO) == 0);
    OK(cuMemFree(own));
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, call_everything, (void *)(i + 1)) ==
              0); // NOLINT
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(gpushare_on_pressure(NULL, NULL) == 0);
    puts("ok");
}

static void run_child(void)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        const bool good =
            gpushare_discard(make_pointer(blocks[0].device), 2 * MIB) == -EFAULT &&
            gpushare_idle() == 0 && gpushare_set_class(GPUSHARE_CLASS_BATCH) == 0 &&
            gpushare_suspend() == 0 && gpushare_resume() == 0 &&
            gpushare_on_pressure(do_nothing, NULL) == 0;

        _exit(good ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    puts(status == 0 ? "ok" : "the child failed");
}

static void *submit_once(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    OK(cuMemsetD8(blocks[0].device, 1, MIB));
    atomic_store(&begun, true);
    return NULL;
}

static void begin_thread(void)
{
    pthread_t thread;

    atomic_store(&begun, false);
    CHECK(pthread_create(&thread, NULL, submit_once, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    puts("ok");
}

/* --- */

static void *address_at(size_t i, size_t kib)
{
    return make_pointer(blocks[i].device + kib * 1024);
}

static bool obey_calls(const char *word, const char *mode, size_t i)
{
    if (strcmp(word, "idle") == 0)
        printf("%d\n", gpushare_idle());
    else if (strcmp(word, "class") == 0)
        printf("%d\n", gpushare_set_class(atoi(mode))); // NOLINT(cert-err34-c)
    else if (strcmp(word, "suspend") == 0)
        printf("%d\n", gpushare_suspend());
    else if (strcmp(word, "resume") == 0)
        printf("%d\n", gpushare_resume());
    else if (strcmp(word, "pressure") == 0)
        printf("%d\n", set_callback(mode, i));
    else if (strcmp(word, "called") == 0)
        printf("%u\n", atomic_load(&called));
    else if (strcmp(word, "begin") == 0)
        begin_thread();
    else if (strcmp(word, "begun") == 0)
        puts(atomic_load(&begun) ? "yes" : "no");
    else if (strcmp(word, "bad") == 0)
        try_bad_arguments();
    else if (strcmp(word, "threads") == 0)
        run_threads();
    else if (strcmp(word, "fork") == 0)
        run_child();
    else
        return false;
    return true;
}

static bool obey_line(const char *line)
{
    char word[16] = "", mode[16] = "";
    size_t i = 0, from = 0, count = 0, value = 0, block = 0;

    sscanf(line, "%15s %15s %zu", word, mode, &block);                     // NOLINT
    sscanf(line, "%15s %zu %zu %zu %zu", word, &i, &from, &count, &value); // NOLINT
    if (obey_calls(word, mode, block))
        return true;
    if (i >= BLOCKS && strcmp(word, "alloc") != 0)
        return false;
    if (strcmp(word, "alloc") == 0)
        allocate_block(i);
    else if (strcmp(word, "fill") == 0) {
        OK(cuMemsetD8(blocks[i].device + from * MIB, (unsigned char)value, count * MIB));
        puts("ok");
    } else if (strcmp(word, "read") == 0)
        read_block(i, from, count);
    else if (strcmp(word, "discard") == 0)
        printf("%lld\n", (long long)gpushare_discard(address_at(i, from), count * 1024));
    else if (strcmp(word, "keep") == 0)
        printf("%lld\n", (long long)gpushare_keep(address_at(i, from), count * 1024));
    else if (strcmp(word, "free") == 0) {
        OK(cuMemFree(blocks[i].device));
        blocks[i].device = 0;
        puts("ok");
    } else
        return false;
    return true;
}

int main(void)
{
    char line[128];

    setvbuf(stdout, NULL, _IOLBF, 0);
    context = begin_context();
    while (fgets(line, sizeof line, stdin) != NULL)
        if (!obey_line(line))
            return 2;
    return 0;
}
