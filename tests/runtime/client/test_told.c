/* SPDX-License-Identifier: Apache-2.0
 *
 * test_told.c: a thread that registers NCCL's memory waits until the daemon has been told of it
 * (evidence.c). One thread: the client thread's step is made in the pauses of that wait.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lockd/protocol/wire.h"
#include "runtime/base/clock.h"
#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"

#define FD 3 /* any */

static unsigned sent; /* keys */

int gs_connect_send(int fd, const void *message, uint32_t length,
                    const struct gs_descriptors *with)
{
    const struct gs_wire_kin *kin = message;

    assert_int_equal(fd, FD);
    assert_int_equal(length, sizeof *kin);
    assert_int_equal(kin->kind, GS_KIN_NCCL);
    assert_null(with);
    sent++;
    return 0;
}

/* Not hidden: ThreadSanitizer's library asks for nanosleep(), too, and a program that hides it
 * cannot be linked with that. */
__attribute__((visibility("default"))) int __wrap_nanosleep(const struct timespec *pause,
                                                            struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void)pause;
    (void)left;
    assert_int_equal(gs_evidence_send(FD, gs_now()), 0);
    return 0;
}

static void *map_shared(const char *name)
{
    char path[64];
    void *page;
    int fd;

    snprintf(path, sizeof path, "/dev/shm/%s-told-%d", name, (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    close(fd);
    assert_int_equal(unlink(path), 0);
    memset(page, 1, 4096);
    return page;
}

static void registered_the_daemon_has_been_told(void **state)
{
    void *page = map_shared("nccl");

    (void)state;
    gs_evidence_registered(page);
    assert_int_equal(sent, 1);
    gs_evidence_registered(page); /* it knows */
    assert_int_equal(sent, 1);
    gs_evidence_lost(); /* the next daemon does not */
    gs_evidence_registered(page);
    assert_int_equal(sent, 2);
    gs_evidence_registered(page);
    assert_int_equal(sent, 2);
    munmap(page, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registered_the_daemon_has_been_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
