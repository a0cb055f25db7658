/* SPDX-License-Identifier: Apache-2.0
 *
 * test_host.c: where host memory comes from, in which order (host.c), and that pieces of the
 * spill file never share bytes and give the disk back (host_file.c). The machine's memory and
 * the driver are played here. One process, since the arena and the file are the process's; one
 * thread, but for the arena's own in the last test.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/range/host.h"
#include "runtime/range/host_file.h"
#include "runtime/range/host_memory.h"
#include "runtime/base/log.h"
#include "tests/runtime/random.h"

#define MIB    (1ull << 20)
#define PIECES 40

struct gs_driver gs_driver;

static uint64_t machine = UINT64_MAX; /* bytes that it has left */
static uint64_t left = UINT64_MAX;    /* bytes that the machine and the cgroups leave */
static unsigned registered;           /* segments */
static _Atomic(unsigned) mapped;      /* segments since the last test began to count */
static _Atomic(int) fails; /* so many times it has none; the budget rises meanwhile */
static char folder[] = "/tmp/gs-test-host-XXXXXX";

/* --- what host.c stands on --- */

uint64_t gs_host_available(void)
{
    return UINT64_MAX;
}

uint64_t gs_host_limits(void)
{
    return UINT64_MAX;
}

uint64_t gs_host_left(void)
{
    return left;
}

char *gs_host_map(uint64_t bytes, int node)
{
    void *memory = NULL;

    (void)node;
    if (atomic_load(&fails) != 0) {
        atomic_fetch_sub(&fails, 1);
        gs_host_set_budget(gs_host_budget() + MIB);
        return NULL;
    }
    if (bytes > machine || posix_memalign(&memory, 2 * MIB, bytes) != 0)
        return NULL;
    machine -= bytes;
    atomic_fetch_add(&mapped, 1);
    memset(memory, 0, bytes);
    return memory;
}

void gs_host_unmap(char *memory, uint64_t bytes)
{
    machine += bytes;
    free(memory);
}

int gs_worker_thread(const char *name, void *(*work)(void *))
{
    pthread_t thread;
    const int error = pthread_create(&thread, NULL, work, NULL);

    (void)name;
    return error != 0 ? error : pthread_detach(thread);
}

struct gs_device *gs_device_at(unsigned i)
{
    (void)i;
    return NULL;
}

void gs_log(const char *format, ...)
{
    (void)format;
}

void gs_say_once(bool *said, const char *format, ...)
{
    *said = true;
    (void)format;
}

static CUresult CUDAAPI current_context(CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)0x1000;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI register_memory(void *memory, size_t bytes, unsigned flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    registered++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI unregister_memory(void *memory)
{
    (void)memory;
    registered--;
    return CUDA_SUCCESS;
}

/* --- the file, as the kernel sees it --- */

static int file_number(void)
{
    char path[64], target[256];

    for (int fd = 0; fd < 2048; fd++) {
        ssize_t length;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        length = readlink(path, target, sizeof target - 1);
        if (length > 0 && strncmp(target, folder, strlen(folder)) == 0)
            return fd;
    }
    return -1;
}

static uint64_t file_bytes(void)
{
    struct stat status;

    return fstat(file_number(), &status) == 0 ? (uint64_t)status.st_size : UINT64_MAX;
}

static void set_file_limit(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* --- tests --- */

static void host_get_goes_from_registered_to_plain_to_file_to_none(void **state)
{
    struct gs_host_block *blocks[5];

    (void)state;
    gs_host_set_budget(8 * MIB);
    machine = GS_HOST_FILE_PIECE + 12 * MIB;
    blocks[0] = gs_host_get(4 * MIB);
    blocks[1] = gs_host_get(4 * MIB);
    assert_non_null(blocks[0]);
    assert_non_null(blocks[1]);
    assert_int_equal(registered, 2);
    blocks[2] = gs_host_get(4 * MIB); /* beyond the budget */
    assert_non_null(blocks[2]);
    assert_non_null(blocks[2]->memory);
    assert_int_equal(registered, 2);
    blocks[3] = gs_host_get(4 * MIB); /* the machine has no more */
    assert_non_null(blocks[3]);
    assert_null(blocks[3]->memory);
    assert_true(gs_host_used() == 12 * MIB); /* the file is no host memory */
    set_file_limit(6 * MIB);
    assert_null(gs_host_get(4 * MIB));
    assert_true(gs_host_wanted() == 16 * MIB); /* what it would have if it had got all */
    set_file_limit(RLIM_INFINITY);
    blocks[4] = gs_host_get(4 * MIB);
    assert_non_null(blocks[4]);
    assert_true(file_bytes() == 8 * MIB);
    gs_host_put(blocks[2]);
    blocks[2] = gs_host_get(2 * MIB); /* memory before the file, when there is some again */
    assert_non_null(blocks[2]->memory);
    for (unsigned i = 0; i < 5; i++)
        gs_host_put(blocks[i]);
    assert_true(file_bytes() == 0);
    gs_host_trim(0);
    assert_true(gs_host_used() == 0 && registered == 0);
    gs_host_set_budget(UINT64_MAX);
    machine = UINT64_MAX;
}

struct piece {
    uint64_t offset, bytes; /* 0 bytes: none */
    unsigned char value;
};

static void fill_piece(const struct piece *piece, unsigned char *buffer)
{
    memset(buffer, piece->value, piece->bytes);
    assert_int_equal(gs_host_file_move(piece->offset, buffer, piece->bytes, true), 0);
}

static void check_piece(const struct piece *piece, unsigned char *buffer)
{
    assert_int_equal(gs_host_file_move(piece->offset, buffer, piece->bytes, false), 0);
    for (uint64_t i = 0; i < piece->bytes; i += 512)
        assert_int_equal(buffer[i], piece->value);
}

static void pieces_of_the_file_keep_their_bytes_and_the_file_ends_with_them(void **state)
{
    static struct piece pieces[PIECES];
    uint64_t seed = 5, held = 0, most = 0, longest = 0;
    void *buffer = NULL;

    (void)state;
    assert_int_equal(posix_memalign(&buffer, 4096, 8 * MIB), 0);
    gs_host_file_begin();
    for (unsigned round = 0; round < 600; round++) {
        struct piece *piece = &pieces[random_below(&seed, PIECES)];

        if (piece->bytes != 0) {
            check_piece(piece, buffer);
            gs_host_file_put(piece->offset, piece->bytes);
            held -= piece->bytes;
            piece->bytes = 0;
            continue;
        }
        piece->bytes = 2 * MIB * (1 + random_below(&seed, 4));
        piece->value = (unsigned char)(1 + round % 255);
        assert_true(gs_host_file_get(piece->bytes, &piece->offset));
        fill_piece(piece, buffer);
        held += piece->bytes;
        most = held > most ? held : most;
        longest = file_bytes() > longest ? file_bytes() : longest;
    }
    assert_true(longest <= 2 * most); /* what is freed is used again, in any size */
    for (unsigned i = 0; i < PIECES; i++)
        if (pieces[i].bytes != 0) {
            check_piece(&pieces[i], buffer);
            gs_host_file_put(pieces[i].offset, pieces[i].bytes);
        }
    assert_true(file_bytes() == 0);
    free(buffer);
}

/* The program closes the file's number and has a file of its own there: that one stays as it
 * is, and what was in ours is not there rather than another's. */
static void the_programs_file_under_the_number_of_ours_is_left_alone(void **state)
{
    static _Alignas(4096) char buffer[2 * MIB];
    const int file = memfd_create("the program's own", 0), number = file_number();
    uint64_t offset, other;

    (void)state;
    assert_true(gs_host_file_get(2 * MIB, &offset));
    memset(buffer, 7, 2 * MIB);
    assert_int_equal(gs_host_file_move(offset, buffer, 2 * MIB, true), 0);
    assert_int_equal(ftruncate(file, 4 * MIB), 0);
    assert_int_equal(dup2(file, number), number);
    assert_true(gs_host_file_move(offset, buffer, 2 * MIB, false) < 0);
    assert_true(gs_host_file_move(offset, buffer, 2 * MIB, true) < 0);
    assert_false(gs_host_file_get(2 * MIB, &other));
    gs_host_file_put(offset, 2 * MIB);
    assert_int_equal(lseek(number, 0, SEEK_END), 4 * MIB);
    assert_int_equal(pread(number, buffer, 2 * MIB, (off_t)offset), 2 * MIB);
    assert_int_equal(buffer[0], 0);
    assert_int_equal(close(number), 0);
    close(file);
}

/* The budget rises just when there is no memory under the old one: nobody says so again. */
static void host_prepare_goes_on_when_the_budget_rises_meanwhile(void **state)
{
    const struct timespec pause = {0, 1000000};

    (void)state;
    gs_host_trim(0);
    assert_int_equal(gs_host_used(), 0);
    machine = UINT64_MAX;
    gs_host_set_budget(1024 * MIB);
    atomic_store(&mapped, 0);
    atomic_store(&fails, 2); /* the segment, and a small one instead */
    gs_host_prepare(64 * MIB);
    for (int ms = 0; ms < 120000 && atomic_load(&mapped) == 0; ms++)
        nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&mapped), 1);
    assert_int_equal(gs_host_used(), 64 * MIB);
}

/* The file is begun anew, in that folder. */
static void begin_file_in(const char *place)
{
    if (gs_host_file_buffer() != NULL)
        gs_host_unmap(gs_host_file_buffer(), GS_HOST_FILE_PIECE);
    gs_host_file_after_fork();
    gs_child_clear();
    setenv("GPUSHARE_SPILL", place, 1);
    gs_host_file_begin();
}

/* A folder in memory: it takes what memory would, less the floor. */
static void a_file_in_memory_leaves_the_floor_alone(void **state)
{
    char shm[] = "/dev/shm/gs-test-host-XXXXXX";
    uint64_t offset[2];

    (void)state;
    if (mkdtemp(shm) == NULL)
        skip();
    begin_file_in(shm);
    left = GS_HOST_FLOOR + 2 * MIB;
    assert_true(gs_host_file_get(2 * MIB, &offset[0]));
    left--;
    assert_false(gs_host_file_get(2 * MIB, &offset[1]));
    gs_host_file_put(offset[0], 2 * MIB);
    left = UINT64_MAX;
    assert_true(gs_host_file_get(2 * MIB, &offset[1]));
    gs_host_file_put(offset[1], 2 * MIB);
    begin_file_in(folder);
    rmdir(shm);
}

/* What is claimed takes from what the arena may have, and what could not be is asked for. */
static void host_claim_keeps_within_the_budget(void **state)
{
    (void)state;
    gs_host_trim(0);
    assert_int_equal(gs_host_used(), 0);
    gs_host_set_budget(64 * MIB);
    assert_int_equal(gs_host_claim(40 * MIB), GS_HOST_CLAIMED);
    assert_int_equal(gs_host_claimed(), 40 * MIB);
    assert_int_equal(gs_host_budget(), 24 * MIB);
    assert_int_equal(gs_host_claim(40 * MIB), GS_HOST_LATER);
    assert_int_equal(gs_host_wanted(), gs_host_used() + 80 * MIB);
    gs_host_give_up_claim();
    assert_int_equal(gs_host_wanted(), gs_host_used() + 40 * MIB);
    assert_int_equal(gs_host_claim(40 * MIB), GS_HOST_LATER);
    assert_int_equal(gs_host_wanted(), 80 * MIB);
    gs_host_set_budget(80 * MIB);
    assert_int_equal(gs_host_claim(40 * MIB), GS_HOST_CLAIMED);
    assert_int_equal(gs_host_wanted(), 80 * MIB);
    gs_host_unclaim(80 * MIB);
    assert_int_equal(gs_host_claimed(), 0);
    assert_int_equal(gs_host_wanted(), 0);
    assert_int_equal(gs_host_budget(), 80 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_get_goes_from_registered_to_plain_to_file_to_none),
        cmocka_unit_test(pieces_of_the_file_keep_their_bytes_and_the_file_ends_with_them),
        cmocka_unit_test(host_claim_keeps_within_the_budget),
        cmocka_unit_test(host_prepare_goes_on_when_the_budget_rises_meanwhile),
        cmocka_unit_test(a_file_in_memory_leaves_the_floor_alone),
        cmocka_unit_test(the_programs_file_under_the_number_of_ours_is_left_alone), /* last */
    };
    sigset_t all;
    int failed;

    sigfillset(&all); /* as the client thread does: a file's limit is an error, no signal */
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    gs_driver.cuCtxGetCurrent = current_context;
    gs_driver.cuMemHostRegister_v2 = register_memory;
    gs_driver.cuMemHostUnregister = unregister_memory;
    if (mkdtemp(folder) == NULL || setenv("GPUSHARE_SPILL", folder, 1) != 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
