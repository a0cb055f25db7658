/* SPDX-License-Identifier: Apache-2.0
 *
 * handover_stage.c: plays what handover.c stands on. One thread, but for fork_during_export.
 */
#include "tests/runtime/range/handover_stage.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/base/config.h"
#include "runtime/base/driver.h"
#include "runtime/base/log.h"

struct gs_driver gs_driver;
struct gs_runtime gs_runtime;
struct gs_counts gs_counts;
pthread_mutex_t gs_memory_lock = PTHREAD_MUTEX_INITIALIZER;

struct stage stage;

/* --- what handover.c stands on --- */

CUresult gs_vmm_map(struct gs_range *of, uint32_t chunk)
{
    (void)of;
    (void)chunk;
    stage.mapped += !stage.map_fails;
    return stage.map_fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult gs_vmm_unmap(struct gs_range *of, uint32_t chunk)
{
    (void)of;
    (void)chunk;
    stage.mapped -= !stage.unmap_fails;
    return stage.unmap_fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult gs_vmm_release(CUmemGenericAllocationHandle handle)
{
    return close((int)handle) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void gs_log(const char *format, ...)
{
    (void)format;
}

static void *fork_often(void *unused)
{
    (void)unused;
    gs_handover_before_fork();
    gs_handover_after_fork();
    return NULL;
}

static CUresult export_memory(void *descriptor, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)type;
    (void)flags;
    if (stage.fork_during_export) { /* it comes no further before this is done */
        const struct timespec pause = {0, 20000000};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, fork_often, NULL), 0);
        nanosleep(&pause, NULL);
        assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
        assert_int_equal(pthread_detach(thread), 0);
    }
    *(int *)descriptor = dup((int)handle);
    return *(int *)descriptor < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult import_memory(CUmemGenericAllocationHandle *handle, void *descriptor,
                              CUmemAllocationHandleType type)
{
    (void)type;
    stage.imports++;
    if (stage.import_fails)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUmemGenericAllocationHandle)dup((int)(uintptr_t)descriptor);
    return CUDA_SUCCESS;
}

/* --- what the tests do --- */

unsigned stage_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < NUMBER; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int stage_memory(void)
{
    const int fd = memfd_create("device memory", MFD_CLOEXEC);

    assert_true(fd >= 0 && fd < NUMBER);
    return fd;
}

void stage_limit(rlim_t most)
{
    const struct rlimit limits = {most, stage.limit_before.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limits), 0);
}

int stage_begin(void **state)
{
    (void)state;
    getrlimit(RLIMIT_NOFILE, &stage.limit_before);
    stage_limit(NUMBER); /* an eighth: 32 */
    stage.card = stage.other_card =
        (struct gs_device){.movable = true, .physical = 8ull << 30, .total = 8ull << 30};
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    atomic_store(&stage.other_card.target.flags, GS_TARGET_GIVE);
    stage.range = calloc(1, sizeof *stage.range + CHUNKS * sizeof stage.range->chunks[0]);
    stage.range->device = &stage.card;
    stage.range->chunk_bytes = CHUNK;
    stage.range->reserved = UINT64_MAX; /* no chunk is the last */
    stage.range->node.base = 0x1000000000;
    stage.range->chunk_count = CHUNKS;
    gs_driver.cuMemExportToShareableHandle = export_memory;
    gs_driver.cuMemImportFromShareableHandle = import_memory;
    stage.map_fails = stage.unmap_fails = stage.import_fails = stage.fork_during_export = false;
    stage.mapped = stage.imports = 0;
    stage.open_before = stage_descriptors();
    for (int fd = 0; fd < NUMBER; fd++)
        stage.was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    return 0;
}

int stage_end(void **state)
{
    (void)state;
    gs_handover_lost();
    for (uint32_t i = 0; i < CHUNKS; i++)
        gs_handover_forget(&stage.range->chunks[i]);
    free(stage.range);
    setrlimit(RLIMIT_NOFILE, &stage.limit_before);
    return stage_descriptors() == stage.open_before && stage.card.accounts.resident == 0 ? 0
                                                                                         : -1;
}

void stage_make(uint32_t chunk)
{
    stage.range->chunks[chunk] =
        (struct gs_chunk){.state = GS_CHUNK_RESIDENT,
                          .handle = (CUmemGenericAllocationHandle)stage_memory(),
                          .sendable = true};
    stage.mapped++;
}

void stage_make_and_give(uint32_t chunk)
{
    stage_make(chunk);
    assert_true(gs_handover_give(stage.range, chunk));
}

struct gs_wire_target stage_target(uint32_t flags, uint64_t budget)
{
    atomic_store(&stage.card.target.flags, flags);
    struct gs_wire_target target = {.flags = flags, .budget = budget};

    for (unsigned i = 0; i < GS_GIVEN_MOST; i++)
        target.handed_bytes[i] = CHUNK;
    return target;
}

unsigned stage_come(unsigned count, uint64_t budget)
{
    const struct gs_wire_target run = stage_target(GS_TARGET_RUN | GS_TARGET_GIVE, budget);
    const uint64_t before = gs_handover_in_hand(&stage.card);
    struct gs_descriptors with = {.count = count};

    for (unsigned i = 0; i < count; i++)
        with.fd[i] = stage_memory();
    gs_handover_heard(&stage.card, &run, &with);
    gs_descriptors_close(&with);
    return (unsigned)((gs_handover_in_hand(&stage.card) - before) / CHUNK);
}

unsigned stage_reported(struct gs_descriptors *with)
{
    struct gs_wire_state state = {.given = 0};

    gs_handover_report(&stage.card, &state, with);
    assert_int_equal(state.given, with->count);
    for (unsigned i = 0; i < GS_GIVEN_MOST; i++)
        stage.sizes[i] = state.given_bytes[i];
    return state.given;
}
