/* SPDX-License-Identifier: Apache-2.0
 *
 * test_process.c: several processes on one card: memory, the bus, time slices, and the death of
 * one of them.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/simcuda/ledger.h"
#include "tests/simcuda/testkit.h"

static struct kit_turn ready, go, done;

static void hold_forty(void)
{
    CUdeviceptr device = 0;

    kit_context();
    OK(cuMemAlloc(&device, 40 * MIB));
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
}

/* A process that holds 40 MiB until `go`. */
static int start_holder(void)
{
    kit_turn_init(&ready);
    kit_turn_init(&go);
    const int holder = kit_spawn(hold_forty);
    kit_turn_wait(&ready);
    return holder;
}

static void memory_is_shared(void)
{
    CUdeviceptr device = 0;

    const int other = start_holder();
    kit_context();
    CHECK(kit_memory_left() == 16 * MIB); /* 64 - 40 - two contexts of 4 */
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&device, 18 * MIB));
    OK(cuMemAlloc(&device, 16 * MIB));
    OK(cuMemFree(device));
    kit_turn_signal(&go);
    kit_join(other);
    CHECK(kit_memory_left() == 60 * MIB);
    OK(cuMemAlloc(&device, 60 * MIB));
}

static void stop_with_the_lock(void)
{
    struct gs_err err = {0};
    struct sim_card *card;

    kit_turn_wait(&go);
    CHECK(sim_card_look(0, &card, &err) == 0);
    sim_card_lock(card);
    raise(SIGSTOP);
    sim_card_unlock(card);
    sim_card_unmap(card);
}

/* A process that is stopped while it has the card's lock keeps nobody from the card, and is stopped
 * all the same. */
static void stopped_with_the_lock_keeps_nobody_out(void)
{
    int status = 0;

    kit_turn_init(&go);
    const int other = kit_spawn(stop_with_the_lock);
    kit_context();
    kit_turn_signal(&go);
    CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
    CHECK(kit_memory_left() == 60 * MIB);
    CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
    CHECK(kit_memory_left() == 60 * MIB);
    kill(other, SIGCONT);
    kit_join(other);
}

static void killed_gives_back(void)
{
    CUdeviceptr device = 0;

    const int other = start_holder();
    kit_context();
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&device, 40 * MIB));
    CHECK(kill(other, SIGKILL) == 0);
    siginfo_t gone;
    CHECK(waitid(P_PID, (id_t)other, &gone, WEXITED | WNOWAIT) ==
          0); /* a zombie holds nothing */
    OK(cuMemAlloc(&device, 40 * MIB));
    CHECK(waitpid(other, NULL, 0) == other);
}

static void run_kernels(void)
{
    kit_context();
    CUfunction nothing = kit_kernel("nothing");
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
    for (int i = 0; i < 10; i++)
        kit_launch(nothing, NULL, NULL);
    OK(cuCtxSynchronize());
    kit_turn_signal(&done);
}

/* Seconds that two processes take which do body's work, starting together. */
static double two_at_once(void (*body)(void))
{
    kit_turn_init(&ready);
    kit_turn_init(&go);
    kit_turn_init(&done);
    const int first = kit_spawn(body), second = kit_spawn(body);
    kit_turn_wait(&ready);
    kit_turn_wait(&ready);
    const double before = kit_seconds();
    kit_turn_signal(&go);
    kit_turn_signal(&go);
    kit_turn_wait(&done);
    kit_turn_wait(&done);
    const double taken = kit_seconds() - before;
    kit_join(first);
    kit_join(second);
    return taken;
}

static void time_slices(void)
{
    CHECK(two_at_once(run_kernels) > 0.39); /* 20 kernels of 20 ms, one at a time */
}

static void kernel_for_ever(void)
{
    kit_turn_wait(&go);
    kit_context();
    kit_hold(NULL);
    kit_await_held();
    kit_turn_signal(&ready);
    OK(cuCtxSynchronize());
}

static void no_time_slices(void)
{
    kit_turn_init(&ready);
    kit_turn_init(&go);
    const int other = kit_spawn(kernel_for_ever);
    kit_turn_signal(&go);
    kit_turn_wait(&ready);
    kit_context();
    kit_launch(kit_kernel("nothing"), NULL, NULL);
    OK(cuCtxSynchronize()); /* beside the other's kernel, which has no end */
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
}

static void killed_frees_the_card(void)
{
    kit_turn_init(&ready);
    kit_turn_init(&go);
    const int other = kit_spawn(kernel_for_ever);
    kit_context(); /* we are on the card: it is not made anew */
    kit_turn_signal(&go);
    kit_turn_wait(&ready);
    CHECK(kill(other, SIGKILL) == 0); /* in the middle of a kernel */
    CHECK(waitpid(other, NULL, 0) == other);
    CUstream streams[2] = {NULL};
    uint64_t pause = 100000000;
    CUfunction sleeping = kit_kernel("sleep");
    kit_launch(kit_kernel("nothing"), NULL, NULL);
    OK(cuCtxSynchronize()); /* nobody waits for the dead one's kernel, which has no end */
    const double before = kit_seconds();
    for (int i = 0; i < 2; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        kit_launch(sleeping, streams[i], (void *[]){&pause});
    }
    OK(cuCtxSynchronize());
    CHECK(kit_seconds() - before > 0.19); /* one at a time, still */
}

static void copy_ten(void)
{
    CUdeviceptr device = 0;
    void *pinned = NULL;

    kit_context();
    OK(cuMemAlloc(&device, 10 * MIB));
    OK(cuMemAllocHost(&pinned, 10 * MIB));
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
    OK(cuMemcpyHtoD(device, pinned, 10 * MIB));
    kit_turn_signal(&done);
}

static void bus_is_shared(void)
{
    CHECK(two_at_once(copy_ten) > 0.20); /* 20 MiB through 0.1 GB/s */
}

/* A copy takes its time on the bus behind the copies of its direction, and behind no others. */
static void bus_by_direction(void)
{
    struct gs_err err = {0};
    struct sim_card *card;

    kit_context();
    CHECK(sim_card_look(0, &card, &err) == 0);
    const uint64_t first = sim_card_book_bus(card, SIM_TO_DEVICE, 100000000);
    const uint64_t second = sim_card_book_bus(card, SIM_TO_DEVICE, 100000000);
    CHECK(second == first + 1000000000);
    const uint64_t other = sim_card_book_bus(card, SIM_TO_HOST, 100000000);
    CHECK(other <= sim_now_ns() + 1000000000);
    sim_card_unmap(card);
}

/* The tool's answer while a process is on the card. */
static void card_tool(void)
{
    char line[512], wanted[64], command[1024];
    bool seen = false, total = false;

    const int other = start_holder();
    snprintf(wanted, sizeof wanted, "pid %d", other);
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    FILE *tool = popen(SIMCUDA_CARD_TOOL, "r");
    while (tool && fgets(line, sizeof line, tool)) {
        seen = seen || (strstr(line, wanted) && strstr(line, "44.0 MiB"));
        total = total || strstr(line, "44.0 MiB used of 64.0 MiB");
    }
    CHECK(tool && pclose(tool) == 0 && seen && total);
    kit_turn_signal(&go);
    kit_join(other);
    snprintf(command, sizeof command, "%s --reset && ! test -e \"$SIMCUDA_CARD/card0\"",
             SIMCUDA_CARD_TOOL);
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    CHECK(system(command) == 0);
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    CHECK(WEXITSTATUS(system(SIMCUDA_CARD_TOOL " --nonsense 2>/dev/null")) == 2);
}

/* It takes locks that the process which makes a card, or is the first to use it, makes anew. */
static void card_tool_waits_for_a_card_in_the_making(void)
{
    const struct timespec second = {.tv_sec = 1};
    char path[512];

    kit_context();
    snprintf(path, sizeof path, "%s/lock", getenv("SIMCUDA_CARD"));
    const int lock = open(path, O_RDWR | O_CLOEXEC);
    CHECK(lock >= 0 && flock(lock, LOCK_EX) == 0);
    const pid_t tool = fork();
    if (tool == 0) {
        execl(SIMCUDA_CARD_TOOL, "simcuda-card", (char *)NULL);
        _exit(127);
    }
    nanosleep(&second, NULL);
    CHECK(tool > 0 && waitpid(tool, NULL, WNOHANG) == 0);
    close(lock);
    int status = 0;
    CHECK(waitpid(tool, &status, 0) == tool && status == 0);
}

static void broken_card_file(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/card0", getenv("SIMCUDA_CARD"));
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("nonsense", file) > 0 && fclose(file) == 0);
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    CHECK(WEXITSTATUS(system(SIMCUDA_CARD_TOOL " 2>/dev/null")) == 1);
    kit_context(); /* the driver makes it anew */
    CHECK(kit_memory_left() == 60 * MIB);
}

static void other_settings_when_alone(void)
{
    setenv("SIMCUDA_MEMORY", "128MiB", 1);
    kit_context();
    CHECK(kit_memory_left() == 124 * MIB);
}

static void settings_of_the_first(void)
{
    const int other = start_holder();
    setenv("SIMCUDA_MEMORY", "128MiB", 1);
    kit_context();
    CHECK(kit_memory_left() == 16 * MIB); /* somebody is on the card: its size stays */
    kit_turn_signal(&go);
    kit_join(other);
}

/* Holds 40 MiB, and looks at them when it is told to. */
static void hold_and_read(void)
{
    unsigned char *seen = malloc(40 * MIB);
    CUdeviceptr device = 0;

    kit_context();
    OK(cuMemAlloc(&device, 40 * MIB));
    OK(cuMemsetD8(device, 0x5a, 40 * MIB));
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
    OK(cuMemcpyDtoH(seen, device, 40 * MIB));
    CHECK(seen[0] == 0x5a && memcmp(seen, seen + 1, 40 * MIB - 1) == 0);
    free(seen);
    kit_turn_signal(&done);
}

static bool is_done(void)
{
    struct pollfd end = {.fd = done.pipe[0], .events = POLLIN};

    return poll(&end, 1, 100) == 1;
}

static void checkpointed_leaves_the_card_and_comes_back(void)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    CUdeviceptr device = 0;

    kit_turn_init(&ready);
    kit_turn_init(&go);
    kit_turn_init(&done);
    const int other = kit_spawn(hold_and_read);
    kit_turn_wait(&ready);
    kit_context();
    GIVES(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(getpid(), &state));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(other, NULL));
    OK(cuCheckpointProcessLock(other, NULL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(other, NULL));
    CHECK(kit_memory_left() == 16 * MIB);
    OK(cuCheckpointProcessCheckpoint(other, NULL));
    OK(cuCheckpointProcessGetState(other, &state));
    CHECK(state == CU_PROCESS_STATE_CHECKPOINTED);
    CHECK(kit_memory_left() == 60 * MIB); /* its context has gone too */
    OK(cuMemAlloc(&device, 40 * MIB));
    kit_turn_signal(&go);
    CHECK(!is_done()); /* its calls wait */
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCheckpointProcessRestore(other, NULL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(other, NULL));
    OK(cuMemFree(device));
    OK(cuCheckpointProcessRestore(other, NULL));
    CHECK(kit_memory_left() == 16 * MIB);
    CHECK(!is_done());
    OK(cuCheckpointProcessUnlock(other, NULL));
    kit_join(other);
    CHECK(is_done());
}

static void fill_uuid(CUuuid *uuid, CUdevice device)
{
    OK(cuDeviceGetUuid(uuid, device));
}

/* The first device of the process is now the second card, and its memory is there. */
static void hold_and_change(void)
{
    CUuuid before, after;

    kit_context();
    fill_uuid(&before, 0);
    hold_and_read();
    fill_uuid(&after, 0);
    CHECK(before.bytes[15] == 0 && after.bytes[15] == 1);
    fill_uuid(&after, 1);
    CHECK(after.bytes[15] == 0);
    CHECK(kit_memory_left() == 8 * MIB); /* both processes have a context on that card */
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
    CHECK(kit_memory_left() == 16 * MIB);
}

static size_t left_on(CUdevice device)
{
    CUcontext context;
    size_t left;

    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxPushCurrent(context));
    left = kit_memory_left();
    OK(cuCtxPopCurrent(&context));
    return left;
}

static void restored_on_another_card(void)
{
    CUcheckpointGpuPair pairs[2];
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = 1};
    CUdeviceptr device = 0;
    CUcontext context;

    kit_turn_init(&ready);
    kit_turn_init(&go);
    kit_turn_init(&done);
    const int other = kit_spawn(hold_and_change);
    kit_turn_wait(&ready);
    context = kit_context();
    fill_uuid(&pairs[0].oldUuid, 0);
    fill_uuid(&pairs[0].newUuid, 1);
    fill_uuid(&pairs[1].oldUuid, 1);
    fill_uuid(&pairs[1].newUuid, 0);
    OK(cuCheckpointProcessLock(other, NULL));
    OK(cuCheckpointProcessCheckpoint(other, NULL));
    kit_turn_signal(&go);
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuCheckpointProcessRestore(other, &args)); /* one is missing */
    args.gpuPairsCount = 2;
    pairs[1].newUuid = pairs[0].newUuid;
    GIVES(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(other, &args)); /* one twice */
    fill_uuid(&pairs[1].newUuid, 0);
    CHECK(left_on(1) == 60 * MIB);
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxPushCurrent(context));
    OK(cuMemAlloc(&device, 20 * MIB));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCheckpointProcessRestore(other, &args));
    CHECK(left_on(0) == 60 * MIB && left_on(1) == 40 * MIB);
    OK(cuMemFree(device));
    OK(cuMemAlloc(&device, 8 * MIB));
    OK(cuCheckpointProcessRestore(other, &args));
    CHECK(left_on(0) == 60 * MIB && left_on(1) == 8 * MIB);
    OK(cuCheckpointProcessUnlock(other, NULL));
    kit_turn_wait(&ready);
    OK(cuMemFree(device));
    OK(cuCheckpointProcessLock(other, NULL)); /* not moved: it stays where it is */
    OK(cuCheckpointProcessCheckpoint(other, NULL));
    OK(cuCheckpointProcessRestore(other, NULL));
    CHECK(left_on(0) == 60 * MIB && left_on(1) == 16 * MIB);
    OK(cuCheckpointProcessUnlock(other, NULL));
    kit_turn_signal(&go);
    kit_join(other);
    CHECK(left_on(0) == 60 * MIB && left_on(1) == 60 * MIB);
}

static void run_one_kernel(void)
{
    kit_context();
    kit_hold(NULL);
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
    kit_release();
    OK(cuCtxSynchronize());
}

/* Makes no call while it is moved to the second card and back. */
static void be_moved_asleep(void)
{
    CUuuid uuid;

    kit_context();
    kit_turn_signal(&ready);
    kit_turn_wait(&go);
    fill_uuid(&uuid, 0);
    CHECK(uuid.bytes[15] == 0);
    CHECK(kit_memory_left() == 56 * MIB); /* both processes have a context on that card */
}

static void move_over(int other, CUcheckpointRestoreArgs *args)
{
    OK(cuCheckpointProcessLock(other, NULL));
    OK(cuCheckpointProcessCheckpoint(other, NULL));
    OK(cuCheckpointProcessRestore(other, args));
    OK(cuCheckpointProcessUnlock(other, NULL));
}

static void moved_twice_without_a_call_between(void)
{
    CUcheckpointGpuPair pairs[2];
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = 2};

    kit_turn_init(&ready);
    kit_turn_init(&go);
    const int other = kit_spawn(be_moved_asleep);
    kit_turn_wait(&ready);
    kit_context();
    fill_uuid(&pairs[0].oldUuid, 0);
    fill_uuid(&pairs[0].newUuid, 1);
    fill_uuid(&pairs[1].oldUuid, 1);
    fill_uuid(&pairs[1].newUuid, 0);
    move_over(other, &args);
    CHECK(left_on(0) == 60 * MIB && left_on(1) == 56 * MIB);
    move_over(other, &args);
    CHECK(left_on(0) == 56 * MIB && left_on(1) == 60 * MIB);
    kit_turn_signal(&go);
    kit_join(other);
}

static void lock_waits_for_what_was_submitted(void)
{
    CUcheckpointLockArgs patience = {.timeoutMs = 50};
    CUprocessState state = CU_PROCESS_STATE_FAILED;

    kit_turn_init(&ready);
    kit_turn_init(&go);
    const int other = kit_spawn(run_one_kernel);
    kit_turn_wait(&ready);
    kit_context();
    GIVES(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(other, &patience));
    OK(cuCheckpointProcessGetState(other, &state));
    CHECK(state == CU_PROCESS_STATE_RUNNING);
    kit_turn_signal(&go);
    kit_join(other);
}

TEST(memory_is_shared, NULL)
TEST(checkpointed_leaves_the_card_and_comes_back, NULL)
TEST(restored_on_another_card, "SIMCUDA_DEVICES=2", NULL)
TEST(moved_twice_without_a_call_between, "SIMCUDA_DEVICES=2", NULL)
TEST(lock_waits_for_what_was_submitted, NULL)
TEST(stopped_with_the_lock_keeps_nobody_out, NULL)
TEST(killed_gives_back, NULL)
TEST(time_slices, "SIMCUDA_KERNEL_NS=20000000", NULL)
TEST(no_time_slices, "SIMCUDA_TIMESLICE=0", NULL)
TEST(killed_frees_the_card, NULL)
TEST(bus_is_shared, "SIMCUDA_PCIE_GBPS=0.1", NULL)
TEST(bus_by_direction, "SIMCUDA_PCIE_GBPS=0.1", NULL)
TEST(card_tool, NULL)
TEST(card_tool_waits_for_a_card_in_the_making, NULL)
TEST(broken_card_file, NULL)
TEST(other_settings_when_alone, NULL)
TEST(settings_of_the_first, NULL)

int kit_run_process(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_shared),
        cmocka_unit_test(test_checkpointed_leaves_the_card_and_comes_back),
        cmocka_unit_test(test_restored_on_another_card),
        cmocka_unit_test(test_moved_twice_without_a_call_between),
        cmocka_unit_test(test_lock_waits_for_what_was_submitted),
        cmocka_unit_test(test_stopped_with_the_lock_keeps_nobody_out),
        cmocka_unit_test(test_killed_gives_back),
        cmocka_unit_test(test_time_slices),
        cmocka_unit_test(test_no_time_slices),
        cmocka_unit_test(test_killed_frees_the_card),
        cmocka_unit_test(test_bus_is_shared),
        cmocka_unit_test(test_bus_by_direction),
        cmocka_unit_test(test_card_tool),
        cmocka_unit_test(test_card_tool_waits_for_a_card_in_the_making),
        cmocka_unit_test(test_broken_card_file),
        cmocka_unit_test(test_other_settings_when_alone),
        cmocka_unit_test(test_settings_of_the_first),
    };

    return cmocka_run_group_tests_name("simcuda processes", tests, NULL, NULL);
}
