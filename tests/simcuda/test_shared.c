/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shared.c: memory that processes share by descriptors: who has it, how long it is counted
 * on the card, what is refused.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/simcuda/sharekit.h"

static void import_and_hold(void)
{
    kit_context();
    kit_turn_signal(&share_ready);
    const int fd = share_receive(0);
    const CUdeviceptr address = share_map(share_import(fd), SHARE_SIZE);
    close(fd);
    CHECK(share_all_bytes(address, SHARE_SIZE, 0x5a));
    OK(cuMemsetD8(address, 0x33, SHARE_SIZE));
    OK(cuCtxSynchronize());
    kit_turn_signal(&share_ready);
    kit_turn_wait(&share_go);
}

static void counted_while_an_importer_has_it(void)
{
    share_start();
    const int other = kit_spawn(import_and_hold);
    kit_context();
    kit_turn_wait(&share_ready);
    const size_t before = share_memory_left();
    const CUmemGenericAllocationHandle handle = share_make(SHARE_SIZE);
    const CUdeviceptr address = share_map(handle, SHARE_SIZE);
    CHECK(share_all_bytes(address, SHARE_SIZE, 0xD5));
    OK(cuMemsetD8(address, 0x5a, SHARE_SIZE));
    OK(cuCtxSynchronize());
    CHECK(share_memory_left() == before - SHARE_SIZE);
    share_send(share_export(handle));
    kit_turn_wait(&share_ready);
    CHECK(share_all_bytes(address, SHARE_SIZE, 0x33)); /* it is the same memory */
    CHECK(share_memory_left() == before - SHARE_SIZE); /* and counted once */
    OK(cuCheckpointProcessLock(other, NULL));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(other, NULL));
    OK(cuCheckpointProcessUnlock(other, NULL));
    OK(cuMemUnmap(address, SHARE_SIZE));
    OK(cuMemRelease(handle));
    CHECK(share_memory_left() == before - SHARE_SIZE);
    share_kill(other);
    CHECK(share_memory_left() == before + 4 * MIB); /* its context has gone too */
    CHECK(share_files() == 0);
}

static void counted_in_a_socket(void)
{
    CUdeviceptr all = 0;

    share_start();
    kit_context();
    const size_t before = share_memory_left();
    const CUmemGenericAllocationHandle handle = share_make(SHARE_SIZE);
    share_send(share_export(handle));
    OK(cuMemRelease(handle));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&all, before));
    CHECK(share_memory_left() == before - SHARE_SIZE);
    close(share_line[0]);
    close(share_line[1]);
    OK(cuMemAlloc(&all, before)); /* seen by who runs short */
    CHECK(share_memory_left() == 0 && share_files() == 0);
}

static void make_and_send(void)
{
    kit_context();
    const CUmemGenericAllocationHandle handle = share_make(SHARE_SIZE);
    OK(cuMemsetD8(share_map(handle, SHARE_SIZE), 0x5a, SHARE_SIZE));
    OK(cuCtxSynchronize());
    share_send(share_export(handle));
    kit_turn_signal(&share_ready);
    kit_turn_wait(&share_go);
}

static void outlives_its_maker(void)
{
    CUdeviceptr address = 0;

    share_start();
    const int other = kit_spawn(make_and_send);
    kit_context();
    kit_turn_wait(&share_ready);
    CHECK(share_memory_left() == 56 * MIB - SHARE_SIZE);
    share_kill(other);
    CHECK(share_memory_left() == 60 * MIB - SHARE_SIZE);
    const int fd = share_receive(0);
    CHECK(share_memory_left() == 60 * MIB - SHARE_SIZE);
    const CUmemGenericAllocationHandle handle = share_import(fd);
    OK(cuMemAddressReserve(&address, 2 * SHARE_SIZE, 0, 0, 0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED,
          cuMemMap(address, 2 * SHARE_SIZE, 0, handle, 0)); /* its size */
    OK(cuMemMap(address, SHARE_SIZE, 0, handle, 0));
    OK(cuMemSetAccess(address, SHARE_SIZE, &kit_access, 1));
    CHECK(share_all_bytes(address, SHARE_SIZE, 0x5a));
    close(fd);
    OK(cuMemRelease(handle));
    CHECK(share_memory_left() == 60 * MIB - SHARE_SIZE); /* mapped */
    OK(cuMemUnmap(address, SHARE_SIZE));
    CHECK(share_files() == 0); /* without anybody asking */
    CHECK(share_memory_left() == 60 * MIB);
}

static void hold_unexported(void)
{
    kit_context();
    share_make(40 * MIB);
    kit_turn_signal(&share_ready);
    kit_turn_wait(&share_go);
}

static void killed_gives_back(void)
{
    CUdeviceptr device = 0;

    share_start();
    const int other = kit_spawn(hold_unexported);
    kit_context();
    kit_turn_wait(&share_ready);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&device, 40 * MIB));
    share_kill(other);
    OK(cuMemAlloc(&device, 40 * MIB));
    CHECK(share_files() == 0);
}

/* Somebody who has what a child of fork() inherits, and never calls the driver. */
static int fork_idle(void)
{
    const int pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    return pid;
}

static void child_has_descriptors_only(void)
{
    kit_context();
    const size_t before = share_memory_left();
    const CUmemGenericAllocationHandle mapped = share_make(SHARE_SIZE),
                                       third = share_make(SHARE_SIZE);
    const CUdeviceptr address = share_map(mapped, SHARE_SIZE);
    const CUmemGenericAllocationHandle made = share_make(SHARE_SIZE);
    const int passed = share_export(third), kept = share_export(made);
    const CUmemGenericAllocationHandle imported = share_import(passed);
    OK(cuMemRelease(mapped));
    OK(cuMemRelease(third));
    close(passed);
    const int child = fork_idle();
    CHECK(share_memory_left() == before - 3 * SHARE_SIZE);
    OK(cuMemUnmap(address, SHARE_SIZE));
    CHECK(share_memory_left() == before - 2 * SHARE_SIZE);
    OK(cuMemRelease(imported));
    CHECK(share_memory_left() == before - SHARE_SIZE);
    OK(cuMemRelease(made));
    close(kept);
    CHECK(share_memory_left() ==
          before - SHARE_SIZE); /* the child has inherited the descriptor */
    share_kill(child);
    CHECK(share_memory_left() == before);
}

static void imported_is_not_exported(void)
{
    CUmemGenericAllocationHandle again = 0;
    CUmemAllocationProp prop;
    int fd = -1;

    kit_context();
    const CUmemGenericAllocationHandle handle = share_make(SHARE_SIZE);
    const int first = share_export(handle);
    const CUmemGenericAllocationHandle imported = share_import(first);
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, imported));
    CHECK(prop.requestedHandleTypes == SHARE_DESCRIPTOR && prop.location.id == 0);
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&fd, imported, SHARE_DESCRIPTOR, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)share_map(imported, SHARE_SIZE)));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&fd, again, SHARE_DESCRIPTOR, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)share_map(handle, SHARE_SIZE)));
    close(share_export(again)); /* the maker's own */
    CHECK(fd == -1);
}

static void check_refused(int fd)
{
    CUmemGenericAllocationHandle handle = 0;

    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, SHARE_DESCRIPTOR));
    CHECK(handle == 0);
    close(fd);
}

static void strangers_are_refused(void)
{
    char path[512];
    int ends[2];

    kit_context();
    snprintf(path, sizeof path, "%s/memory-0-7", getenv("SIMCUDA_CARD"));
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int memory = memfd_create("stranger", MFD_CLOEXEC);
    const CUmemGenericAllocationHandle handle = share_make(2 * MIB);
    const int fd = share_export(handle);
    CHECK(ftruncate(file, 2 * MIB) == 0 && ftruncate(memory, 2 * MIB) == 0);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    check_refused(file);
    check_refused(memory);
    check_refused(ends[0]);
    check_refused(ends[1]);
    check_refused(-1);
    check_refused(1000000);
    OK(cuMemRelease(share_import(fd)));
    OK(cuMemRelease(handle));
    const size_t before = share_memory_left();
    close(fd);
    CHECK(share_memory_left() == before + 2 * MIB);
}

static void counted_on_its_own_card(void)
{
    CUcontext first = NULL, second = NULL;
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle handle = 0;

    first = kit_context();
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    prop.requestedHandleTypes = SHARE_DESCRIPTOR;
    prop.location.id = 1;
    OK(cuMemCreate(&handle, SHARE_SIZE, &prop, 0));
    const int fd = share_export(handle);
    const CUmemGenericAllocationHandle imported = share_import(fd);
    close(fd);
    OK(cuMemRelease(handle));
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, imported));
    CHECK(prop.location.id == 1);
    CHECK(share_memory_left() == 60 * MIB);
    OK(cuCtxSetCurrent(second));
    CHECK(share_memory_left() == 60 * MIB - SHARE_SIZE);
    OK(cuMemRelease(imported));
    CHECK(share_memory_left() == 60 * MIB);
    OK(cuCtxSetCurrent(first));
}

static void tool_tells(void)
{
    char text[512];
    bool line_seen = false, total_seen = false;

    kit_context();
    const CUmemGenericAllocationHandle handle = share_make(SHARE_SIZE);
    const int fd = share_export(handle);
    OK(cuMemRelease(handle));
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    FILE *tool = popen(SIMCUDA_CARD_TOOL, "r");
    while (tool && fgets(text, sizeof text, tool)) {
        line_seen = line_seen || (strstr(text, "shared") && strstr(text, "1 piece ") &&
                                  strstr(text, "8.0 MiB"));
        total_seen = total_seen || strstr(text, "12.0 MiB used of 64.0 MiB");
    }
    CHECK(tool && pclose(tool) == 0 && line_seen && total_seen);
    close(fd);
    CHECK(share_memory_left() == 60 * MIB);
    const CUmemGenericAllocationHandle held = share_make(SHARE_SIZE);
    CHECK(share_files() == 1);
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    CHECK(system(SIMCUDA_CARD_TOOL " --reset") == 0);
    CHECK(share_files() == 0);
    CHECK(share_memory_left() == 60 * MIB - SHARE_SIZE); /* on the card that we still use */
    OK(cuMemsetD8(share_map(held, SHARE_SIZE), 1, SHARE_SIZE));
}

TEST(counted_while_an_importer_has_it, NULL)
TEST(counted_in_a_socket, NULL)
TEST(outlives_its_maker, NULL)
TEST(killed_gives_back, NULL)
TEST(child_has_descriptors_only, NULL)
TEST(imported_is_not_exported, NULL)
TEST(strangers_are_refused, NULL)
TEST(counted_on_its_own_card, "SIMCUDA_DEVICES=2", NULL)
TEST(tool_tells, NULL)

int kit_run_shared(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted_while_an_importer_has_it),
        cmocka_unit_test(test_counted_in_a_socket),
        cmocka_unit_test(test_outlives_its_maker),
        cmocka_unit_test(test_killed_gives_back),
        cmocka_unit_test(test_child_has_descriptors_only),
        cmocka_unit_test(test_imported_is_not_exported),
        cmocka_unit_test(test_strangers_are_refused),
        cmocka_unit_test(test_counted_on_its_own_card),
        cmocka_unit_test(test_tool_tells),
    };

    return cmocka_run_group_tests_name("simcuda shared memory", tests, NULL, NULL);
}
