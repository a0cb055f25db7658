/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shared_many.c: much of the memory that processes share by descriptors: as many pieces as
 * a card has entries for, no descriptor left, many processes that are killed at any moment.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/simcuda/sharekit.h"

static void two_hundred_do_not_slow_the_card(void)
{
    int fd[200];

    kit_context();
    const size_t before = share_memory_left();
    for (int i = 0; i < 200; i++) {
        const CUmemGenericAllocationHandle handle = share_make(2 * MIB);
        fd[i] = share_export(handle);
        OK(cuMemRelease(handle));
    }
    const uint64_t began = kit_processor_ns();
    CHECK(share_memory_left() == before - 400 * MIB);
    CHECK(kit_processor_ns() - began < 5000000);
    for (int i = 0; i < 200; i++)
        close(fd[i]);
    CHECK(share_memory_left() == before && share_files() == 0);
}

static void card_full_of_pieces(void)
{
    enum { MOST = 4096 };
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle handle = 0;
    static void *held[MOST];

    kit_context();
    const size_t before = share_memory_left();
    for (int i = 0; i < MOST; i++) { /* held by a mapping of the program's own */
        handle = share_make(2 * MIB);
        const int fd = share_export(handle);
        held[i] = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(held[i] != MAP_FAILED);
        close(fd);
        OK(cuMemRelease(handle));
    }
    prop.requestedHandleTypes = SHARE_DESCRIPTOR;
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CHECK(share_memory_left() == before - 2 * MIB * MOST);
    munmap(held[MOST / 2], 4096);
    handle = share_make(2 * MIB);
    OK(cuMemRelease(handle));
    for (int i = 0; i < MOST; i++)
        munmap(held[i], 4096);
    CHECK(share_memory_left() == before && share_files() == 0);
}

static void no_descriptor_left(void)
{
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle handle = 0;
    struct rlimit limit;
    int last = -1;

    kit_context();
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const CUmemGenericAllocationHandle shared = share_make(SHARE_SIZE);
    int fd = share_export(shared);
    OK(cuMemRelease(shared));
    for (; fd >= 0; fd = dup(fd))
        last = fd;
    prop.requestedHandleTypes = SHARE_DESCRIPTOR;
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CHECK(share_memory_left() == 60 * MIB - SHARE_SIZE); /* and nobody is taken for dead */
    for (; last > 2; last--)
        close(last);
}

/* Makes, passes on, takes and drops, at random, until it is killed. */
static void deal_out(void)
{
    enum { MOST = 8 };
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle held[MOST] = {0};
    unsigned seed = (unsigned)getpid();

    kit_context();
    prop.requestedHandleTypes = SHARE_DESCRIPTOR;
    for (unsigned round = 0;; round++) {
        CUmemGenericAllocationHandle *one = &held[(unsigned)rand_r(&seed) % MOST];
        int fd = -1;
        if (*one) {
            if (rand_r(&seed) % 2 &&
                !cuMemExportToShareableHandle(&fd, *one, SHARE_DESCRIPTOR, 0))
                share_send(fd);
            OK(cuMemRelease(*one));
            *one = 0;
        } else if (rand_r(&seed) % 2) {
            (void)cuMemCreate(one, 2 * MIB, &prop, 0); /* the card may be full */
        } else if ((fd = share_receive(MSG_DONTWAIT)) >= 0) {
            *one = share_import(fd);
            close(fd);
        }
        if (round == 50)
            kit_turn_signal(&share_ready);
    }
}

static int dealer_new(void)
{
    const int pid = kit_spawn(deal_out);

    kit_turn_wait(&share_ready);
    return pid;
}

static void many_at_once(void)
{
    enum { DEALERS = 4, DEATHS = 16 };
    int dealer[DEALERS];
    size_t waiting = 0;

    share_start();
    CHECK(setsockopt(share_line[0], SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)) == 0);
    for (int i = 0; i < DEALERS; i++)
        dealer[i] = dealer_new();
    for (int i = 0; i < DEATHS; i++) { /* wherever it is */
        share_kill(dealer[i % DEALERS]);
        dealer[i % DEALERS] = dealer_new();
    }
    for (int i = 0; i < DEALERS; i++)
        share_kill(dealer[i]);
    kit_context();
    for (int fd; (fd = share_receive(MSG_DONTWAIT)) >= 0; waiting++) {
        OK(cuMemsetD8(share_map(share_import(fd), 2 * MIB), 1, 2 * MIB));
        close(fd);
    }
    CHECK(share_memory_left() == 76 * MIB - waiting * 2 * MIB && share_files() == waiting);
    CHECK(waiting <= 8);
}

TEST(two_hundred_do_not_slow_the_card, "SIMCUDA_MEMORY=1GiB", "SIMCUDA_POISON=0", NULL)
TEST(card_full_of_pieces, "SIMCUDA_MEMORY=16GiB", "SIMCUDA_POISON=0", NULL)
TEST(no_descriptor_left, NULL)
/* a context finds room beside three dealers (4 MiB and 8 pieces each) and 8 pieces under way */
TEST(many_at_once, "SIMCUDA_MEMORY=80MiB", "SIMCUDA_POISON=0", NULL)

int kit_run_shared_many(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_hundred_do_not_slow_the_card),
        cmocka_unit_test(test_card_full_of_pieces),
        cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_many_at_once),
    };

    return cmocka_run_group_tests_name("simcuda much shared memory", tests, NULL, NULL);
}
