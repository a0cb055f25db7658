/* SPDX-License-Identifier: Apache-2.0
 *
 * host_memory.c: huge-page friendly anonymous memory, touched by several threads. No state; any
 * thread.
 */
#include "runtime/range/host_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "common/memory_left.h"

#define TOUCH_STEP (8ull << 20) /* one more thread for each of these, up to TOUCH_THREADS */
#define COPY_STEP                                                                              \
    HUGE_PAGE /* the same: a copy of so much takes longer than to start a thread */
#define TOUCH_THREADS 8
#define HUGE_PAGE     (2ull << 20)
#define POLICY_PREFER 1 /* MPOL_PREFERRED, linux/mempolicy.h */

/* for a limit of the process itself; this field of statm counts the use in pages */
static uint64_t limit_leaves(int resource, unsigned field)
{
    struct rlimit limit;
    char text[128] = "", *at = text;
    uint64_t used;
    ssize_t length;
    GS_CLOSE_FD int fd = -1;

    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (length <= 0)
        return UINT64_MAX;
    for (unsigned i = 0; i < field; i++)
        strtoull(at, &at, 10);
    used = strtoull(at, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    return used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

uint64_t gs_host_limits(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const uint64_t data = limit_leaves(RLIMIT_DATA, 5), space = limit_leaves(RLIMIT_AS, 0);

    return data < space ? data : space;
}

uint64_t gs_host_left(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const uint64_t machine = gs_memory_machine("");
    struct gs_memory_group group;
    uint64_t left;

    gs_memory_group_of(&group, "", 0);
    left = gs_memory_group_left(&group, "");
    return left < machine ? left : machine;
}

uint64_t gs_host_available(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const uint64_t left = gs_host_left(), limits = gs_host_limits();

    return left < limits ? left : limits;
}

struct span {
    char *from;
    uint64_t bytes;
    const char *source; /* NULL: it is only touched */
};

static void *fill_span(void *argument)
{
    const struct span *span = argument;

    if (span->source != NULL) {
        memcpy(span->from, span->source, span->bytes);
        return NULL;
    }
    for (uint64_t at = 0; at < span->bytes; at += 4096)
        *(volatile char *)(span->from + at) = 0;
    return NULL;
}

void gs_host_copy(char *memory, const char *source, uint64_t bytes)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const uint64_t steps = bytes / (source != NULL ? COPY_STEP : TOUCH_STEP);
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = steps < TOUCH_THREADS ? (unsigned)steps : TOUCH_THREADS;
    uint64_t part;
    bool running[TOUCH_THREADS] = {false};
    struct span spans[TOUCH_THREADS];
    pthread_t ids[TOUCH_THREADS];

    if (processors > 0 && count > (unsigned long)processors / 2 + 1)
        count = (unsigned)processors / 2 + 1; /* the program has work of its own */
    count = count != 0 ? count : 1;
    part = (bytes + count * HUGE_PAGE - 1) / (count * HUGE_PAGE) * HUGE_PAGE;
    for (unsigned i = 0; i < count; i++) {
        const uint64_t from = part * i < bytes ? part * i : bytes;

        spans[i] = (struct span){memory + from, bytes - from < part ? bytes - from : part,
                                 source != NULL ? source + from : NULL};
        running[i] = i + 1 < count && pthread_create(&ids[i], NULL, fill_span, &spans[i]) == 0;
        if (!running[i])
            fill_span(&spans[i]);
    }
    for (unsigned i = 0; i < count; i++)
        if (running[i])
            pthread_join(ids[i], NULL);
}

char *gs_host_map(uint64_t bytes, int node)
{
    char *all = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const uint64_t ahead = HUGE_PAGE - (uint64_t)(uintptr_t)all % HUGE_PAGE;
    char *memory = all + ahead;

    if (all == MAP_FAILED)
        return NULL;
    munmap(all, ahead);
    if (ahead < HUGE_PAGE)
        munmap(memory + bytes, HUGE_PAGE - ahead);
    madvise(memory, bytes, MADV_HUGEPAGE);
    madvise(memory, bytes,
            MADV_DONTFORK); /* a forked child must not copy memory that the device writes to */
    madvise(memory, bytes, MADV_DONTDUMP);
    if (node >= 0 && node < 64) {
        const unsigned long mask = 1ul << node;

        syscall(SYS_mbind, memory, bytes, POLICY_PREFER, &mask, 65ul, 0u);
    }
    gs_host_copy(memory, NULL, bytes);
    return memory;
}

void gs_host_unmap(char *memory, uint64_t bytes)
{
    munmap(memory, bytes);
}
