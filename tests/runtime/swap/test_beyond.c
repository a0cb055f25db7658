/* SPDX-License-Identifier: Apache-2.0
 *
 * test_beyond.c: memory that cannot come to the card goes beyond it when the daemon says so, and
 * comes back (beyond.c). The library's own files run on the simulated driver, without a daemon; one
 * thread plays the program and the client thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "lockd/protocol/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/base/mutex.h"
#include "runtime/gate/gate.h"
#include "runtime/range/host.h"
#include "runtime/memory/dispose.h"
#include "runtime/memory/exports.h"
#include "runtime/memory/free.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/range/range.h"
#include "runtime/swap/beyond.h"
#include "runtime/swap/swap.h"
#include "tests/runtime/swap/small_card.h"

#define HAD    (100 * MIB) /* what the program has when it grows */
#define GROWTH (140 * MIB)
#define S      1000000000ull

static struct {
    CUdeviceptr had, more;
    bool refuse_host, refuse_map, refuse_card;
    bool slow_host;    /* each piece takes longer than a round may */
    bool export_first; /* a handle is made while the first host memory is */
} self;

/* A handle for other processes, as cuIpcGetMemHandle makes it. */
static bool export_more(void)
{
    struct gs_ipc_handle handle;
    bool ours;

    return gs_exports_handle(self.more, &handle, &ours) == CUDA_SUCCESS && ours;
}

static CUresult create_or_refuse(CUmemGenericAllocationHandle *handle, size_t bytes,
                                 const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (self.export_first && prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        self.export_first = false;
        assert_true(export_more());
    }
    if (self.slow_host && prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        usleep(150000);
    if (self.refuse_host && prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (self.refuse_card && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return card.driver.cuMemCreate(handle, bytes, prop, flags);
}

static CUresult map_or_refuse(CUdeviceptr address, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return self.refuse_map ? CUDA_ERROR_UNKNOWN
                           : card.driver.cuMemMap(address, bytes, offset, handle, flags);
}

static CUdeviceptr allocate(uint64_t bytes)
{
    const struct gs_request request = {.device = card.device, .bytes = bytes};
    CUdeviceptr address;

    assert_int_equal(gs_memory_allocate(&request, &address), CUDA_SUCCESS);
    return address;
}

static void tell(uint32_t flags, uint64_t budget)
{
    atomic_store(&card.device->target.flags, flags);
    atomic_store(&card.device->target.budget, budget);
}

static struct gs_accounts accounts(void)
{
    return gs_memory_accounts(card.device);
}

static uint64_t due(void)
{
    const struct gs_accounts now = accounts();

    return gs_beyond_due(card.device, &now);
}

static void open_now(void)
{
    gs_gate_open(false);
}

static void stop(void)
{
    assert_true(gs_gate_close(S));
    assert_int_equal(card.driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

static void fill(CUdeviceptr address, uint64_t bytes, uint32_t value)
{
    for (uint64_t at = 0; at < bytes; at += 2 * MIB)
        assert_int_equal(
            card.driver.cuMemsetD32_v2(address + at, value + (uint32_t)(at / MIB), 16),
            CUDA_SUCCESS);
    assert_int_equal(card.driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

static void check_contents(CUdeviceptr address, uint64_t bytes, uint32_t value)
{
    uint32_t word;

    for (uint64_t at = 0; at < bytes; at += 2 * MIB) {
        assert_int_equal(card.driver.cuMemcpyDtoH_v2(&word, address + at, sizeof word),
                         CUDA_SUCCESS);
        assert_int_equal(word, value + (uint32_t)(at / MIB));
    }
}

/* The program has HAD, needs GROWTH more, and its gate is closed. */
static int grow(void **state)
{
    (void)state;
    self.refuse_host = self.refuse_map = self.refuse_card = false;
    gs_host_set_budget(UINT64_MAX);
    gs_runtime.config.overcommit = 0;
    atomic_store(&card.device->target.capacity, CARD_ROOM);
    tell(GS_TARGET_RUN, HAD);
    gs_gate_open(false);
    self.had = allocate(HAD);
    fill(self.had, HAD, 1000);
    self.more = allocate(GROWTH);
    assert_int_equal(accounts().missing, GROWTH);
    tell(GS_TARGET_BEYOND, HAD);
    stop();
    return 0;
}

static int end(void **state)
{
    bool ours;

    (void)state;
    stop();
    if (self.had != 0)
        assert_int_equal(gs_memory_free(self.had, NULL, &ours), CUDA_SUCCESS);
    if (self.more != 0)
        assert_int_equal(gs_memory_free(self.more, NULL, &ours), CUDA_SUCCESS);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(card.device, NULL, UINT64_MAX);
    gs_beyond_look(gs_now(), false, true); /* what an exchange keeps for the next one */
    assert_null(card.device->ranges);
    assert_int_equal(accounts().over, 0);
    assert_int_equal(accounts().demand, 0);
    assert_int_equal(accounts().missing, 0);
    assert_int_equal(accounts().resident, 0);
    assert_int_equal(gs_host_claimed(), 0);
    gs_beyond_after_fork(); /* its patience is another test's */
    return 0;
}

static void put_all(void)
{
    while (gs_beyond_put(true, true))
        continue;
    assert_int_equal(accounts().missing, 0);
    assert_int_equal(accounts().over, GROWTH);
    assert_int_equal(accounts().demand, HAD);
    assert_int_equal(accounts().resident, HAD);
    assert_int_equal(gs_host_claimed(), GROWTH);
    assert_true(gs_memory_if_complete(open_now));
    fill(self.more, GROWTH, 5000);
}

static void beyond_told_it_goes_there_and_comes_back(void **state)
{
    (void)state;
    put_all();
    assert_int_equal(due(), 0);
    gs_beyond_look(gs_now(), true, false);
    assert_false(gs_beyond_needs_stop());
    stop(); /* its turn ends: it is part of the demand again */
    tell(0, HAD);
    assert_int_equal(due(), GROWTH);
    gs_beyond_look(gs_now(), false, true);
    assert_false(gs_beyond_needs_stop());
    tell(GS_TARGET_RUN, HAD); /* its next one, whose memory comes a little later */
    gs_beyond_look(gs_now(), true, true);
    assert_true(gs_beyond_needs_stop());
    assert_false(gs_beyond_step(gs_now()));
    tell(GS_TARGET_RUN, HAD + GROWTH);
    self.refuse_card = true; /* ... even later than the daemon says */
    assert_false(gs_beyond_step(gs_now()));
    assert_true(gs_beyond_look(gs_now(), true, true) < S);
    assert_true(gs_beyond_needs_stop());
    self.refuse_card = false;
    while (gs_beyond_step(gs_now()))
        continue;
    gs_beyond_look(gs_now(), true, true);
    assert_false(gs_beyond_needs_stop());
    assert_int_equal(accounts().over, 0);
    assert_int_equal(accounts().resident, HAD + GROWTH);
    assert_int_equal(gs_host_claimed(), 0);
    assert_true(gs_memory_if_complete(open_now));
    check_contents(self.had, HAD, 1000);
    check_contents(self.more, GROWTH, 5000);
}

static void beyond_program_runs_it_stops_once_there_is_room_for_all(void **state)
{
    (void)state;
    put_all();
    tell(GS_TARGET_RUN, HAD + GROWTH / 2);
    gs_beyond_look(gs_now(), true, false);
    assert_false(gs_beyond_needs_stop());
    tell(GS_TARGET_RUN, HAD + GROWTH);
    gs_beyond_look(gs_now(), true, false);
    assert_true(gs_beyond_needs_stop());
    stop();
    while (gs_beyond_step(gs_now()))
        continue;
    assert_int_equal(accounts().over, 0);
    assert_true(gs_memory_if_complete(open_now));
    check_contents(self.more, GROWTH, 5000);
}

/* It does not wait for ever for memory that does not come. */
static void beyond_room_does_not_come_the_program_goes_on(void **state)
{
    const uint64_t now = gs_now();

    (void)state;
    put_all();
    stop();
    tell(GS_TARGET_RUN, HAD);
    gs_beyond_look(now, true, true);
    assert_true(gs_beyond_needs_stop());
    gs_beyond_look(now + 9 * S, true, true);
    assert_true(gs_beyond_needs_stop());
    gs_beyond_look(now + 11 * S, true, true);
    assert_false(gs_beyond_needs_stop());
    assert_true(gs_memory_if_complete(open_now));
    check_contents(self.more, GROWTH, 5000);
}

static void check_it_is_missing(void)
{
    gs_beyond_put(true, true);
    assert_int_equal(accounts().missing, GROWTH);
    assert_int_equal(accounts().over, 0);
    assert_int_equal(accounts().demand, HAD + GROWTH);
    assert_int_equal(gs_host_claimed(), 0);
    assert_false(gs_memory_if_complete(open_now));
}

static void beyond_driver_refuses_it_is_still_missing(void **state)
{
    (void)state;
    self.refuse_host = true;
    check_it_is_missing();
    self.refuse_host = false;
    self.refuse_map = true;
    check_it_is_missing();
    self.refuse_map = false;
    put_all(); /* another attempt */
    check_contents(self.had, HAD, 1000);
}

/* ... but asked for: the daemon raises the budget. */
static void beyond_no_host_memory_it_is_still_missing(void **state)
{
    (void)state;
    gs_host_set_budget(0);
    check_it_is_missing();
    assert_true(gs_host_wanted() != 0);
    gs_beyond_put(false, false); /* it goes on without */
    assert_int_equal(gs_host_wanted(), 0);
    gs_host_set_budget(UINT64_MAX);
    put_all();
}

static void beyond_not_told_nothing_goes_there(void **state)
{
    (void)state;
    tell(0, HAD);
    check_it_is_missing();
}

static void beyond_freed_there_nothing_is_left(void **state)
{
    bool ours;

    (void)state;
    put_all();
    assert_int_equal(gs_memory_free(self.more, NULL, &ours), CUDA_SUCCESS);
    self.more = 0;
    gs_memory_dispose_dead(false);
    assert_int_equal(accounts().over, 0);
    assert_int_equal(gs_host_claimed(), 0);
    tell(GS_TARGET_RUN, CARD_ROOM);
    assert_int_equal(due(), 0);
    gs_beyond_look(gs_now(), true, false);
    assert_false(gs_beyond_needs_stop());
}

static void fetch_all(void)
{
    stop();
    tell(GS_TARGET_RUN, HAD + GROWTH);
    gs_beyond_look(gs_now(), true, true);
    while (gs_beyond_step(gs_now()))
        continue;
    assert_int_equal(accounts().over, 0);
    assert_int_equal(accounts().resident, HAD + GROWTH);
    assert_true(gs_memory_if_complete(open_now));
    check_contents(self.more, GROWTH, 5000);
}

/* Messages are read and sent between the rounds. */
static void beyond_driver_takes_long_it_goes_there_in_rounds(void **state)
{
    (void)state;
    self.slow_host = true;
    assert_true(gs_beyond_put(true, true));
    assert_int_equal(accounts().over, 64 * MIB);
    assert_true(gs_beyond_put(true, true));
    assert_int_equal(accounts().over, 128 * MIB);
    self.slow_host = false;
    put_all();
    check_contents(self.had, HAD, 1000);
}

/* What can never come is no reason to count as one whose memory moves. */
static void beyond_pinned_there_nothing_is_due(void **state)
{
    (void)state;
    put_all();
    tell(0, HAD);
    assert_int_equal(due(), GROWTH);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_range_pin(gs_range_at(self.more));
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    assert_int_equal(due(), 0);
}

static void beyond_program_has_grown_what_fits_is_due(void **state)
{
    CUdeviceptr third;
    bool ours;

    (void)state;
    put_all();
    tell(GS_TARGET_RUN, HAD);
    third = allocate(150 * MIB); /* 6 MiB are left, and the smallest piece has 12 */
    assert_int_equal(due(), 0);
    assert_int_equal(gs_memory_free(third, NULL, &ours), CUDA_SUCCESS);
    third = allocate(CARD_ROOM - HAD - 70 * MIB);
    assert_int_equal(due(), 64 * MIB);
    assert_int_equal(gs_memory_free(third, NULL, &ours), CUDA_SUCCESS);
}

/* The program, which never chose overcommit, exports what it has there. */
static void beyond_exported_there_it_comes_back(void **state)
{
    (void)state;
    put_all();
    assert_true(export_more());
    stop();
    tell(0, HAD);
    assert_int_equal(due(), GROWTH);
    fetch_all();
}

/* With overcommit it may stay there for ever. */
static void beyond_overcommit_what_is_there_has_no_handle(void **state)
{
    (void)state;
    put_all();
    gs_runtime.config.overcommit = CARD_ROOM;
    assert_false(export_more());
    gs_runtime.config.overcommit = 0;
    assert_true(export_more());
}

/* What has a handle does not go there any more, but a part may have gone just before. */
static void beyond_exported_meanwhile_the_first_part_comes_back(void **state)
{
    (void)state;
    self.export_first = true;
    while (gs_beyond_put(true, true))
        continue;
    assert_false(self.export_first);
    assert_in_range(accounts().over, 1, GROWTH - 1);
    assert_int_equal(accounts().missing, GROWTH - accounts().over);
    tell(GS_TARGET_RUN, HAD + GROWTH);
    gs_beyond_look(gs_now(), true, true);
    while (gs_beyond_step(gs_now()))
        continue;
    gs_beyond_look(gs_now(), true, true);
    assert_int_equal(accounts().over, 0);
    assert_int_equal(gs_host_claimed(), 0);
    assert_int_equal(accounts().demand, HAD + GROWTH);
}

static CUresult refuse_copy(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return CUDA_ERROR_INVALID_VALUE;
}

/* The program has run before, and what it had is on the host: nobody knew that it has a job. */
static void beyond_on_the_host_its_contents_go_there(void **state)
{
    (void)state;
    tell(0, 0);
    while (gs_swap_out(card.device, accounts().resident) == GS_SWAP_MOVED)
        continue;
    assert_int_equal(accounts().resident, 0);
    tell(GS_TARGET_RUN | GS_TARGET_BEYOND, 0);
    while (gs_beyond_put(true, false)) /* work may still run: none that was on the card */
        continue;
    assert_int_equal(accounts().over, GROWTH);
    gs_driver.cuMemcpyHtoDAsync_v2 = refuse_copy;
    assert_false(gs_beyond_put(true, true));
    assert_int_equal(accounts().over, GROWTH);
    assert_int_equal(gs_host_claimed(), GROWTH);
    gs_driver.cuMemcpyHtoDAsync_v2 = card.driver.cuMemcpyHtoDAsync_v2;
    while (gs_beyond_put(true, true))
        continue;
    assert_int_equal(accounts().missing, 0);
    assert_int_equal(accounts().demand, 0);
    assert_int_equal(accounts().over, HAD + GROWTH);
    assert_int_equal(gs_host_claimed(), HAD + GROWTH);
    for (uint32_t i = 0; i < gs_range_at(self.had)->chunk_count; i++)
        assert_null(gs_range_at(self.had)->chunks[i].host);
    assert_true(gs_memory_if_complete(open_now));
    check_contents(self.had, HAD, 1000);
    fill(self.more, GROWTH, 5000);
    fetch_all();
    check_contents(self.had, HAD, 1000);
}

/* With overcommit: so much of the card is left for it, in its turn. */
static void leave(uint64_t bytes)
{
    gs_runtime.config.overcommit = CARD_ROOM;
    atomic_store(&card.device->target.capacity, bytes);
    tell(GS_TARGET_RUN, HAD + GROWTH); /* as for one that does not fit */
    stop();
}

static void check_it_is_split(uint64_t room)
{
    gs_beyond_look(gs_now(), true, true);
    assert_false(gs_beyond_needs_stop());
    assert_int_equal(accounts().missing, 0);
    assert_in_range(accounts().demand, room - 64 * MIB, room);
    assert_int_equal(accounts().resident, accounts().demand);
    assert_int_equal(accounts().over, HAD + GROWTH - accounts().demand);
    assert_int_equal(gs_host_claimed(), accounts().over);
    assert_true(gs_memory_if_complete(open_now));
}

static void bring_in(uint64_t room)
{
    uint64_t lacking;

    if (room > accounts().resident)
        while (gs_swap_in(card.device, room - accounts().resident, -1, &lacking) ==
               GS_SWAP_MOVED)
            continue;
}

/* What is missing has no contents. */
static void beyond_card_became_too_small_it_goes_there(void **state)
{
    (void)state;
    leave(180 * MIB);
    gs_beyond_look(gs_now(), false, true);
    assert_false(gs_beyond_needs_stop());
    gs_beyond_look(gs_now(), true, false);
    assert_true(gs_beyond_needs_stop());
    assert_false(gs_beyond_put(false, false)); /* others' threads are still inside */
    while (gs_beyond_put(true, true))
        continue;
    assert_int_equal(accounts().over, 64 * MIB);
    bring_in(180 * MIB);
    check_it_is_split(180 * MIB);
    fill(self.more, GROWTH, 5000);
    check_contents(self.had, HAD, 1000);
    check_contents(self.more, GROWTH, 5000);
}

/* All of it has contents, and lies on the host. */
static void beyond_card_became_too_small_contents_go_there(void **state)
{
    (void)state;
    tell(GS_TARGET_RUN, HAD + GROWTH);
    bring_in(HAD + GROWTH);
    assert_true(gs_memory_if_complete(open_now));
    fill(self.more, GROWTH, 5000);
    stop();
    tell(0, 0);
    while (gs_swap_out(card.device, accounts().resident) == GS_SWAP_MOVED)
        continue;
    assert_int_equal(accounts().resident, 0);
    leave(130 * MIB);
    for (unsigned i = 0; i < 10; i++) {
        bring_in(130 * MIB);
        gs_beyond_look(gs_now(), true, true);
        while (gs_beyond_put(true, true))
            continue;
    }
    check_it_is_split(130 * MIB);
    check_contents(self.had, HAD, 1000);
    check_contents(self.more, GROWTH, 5000);
}

/* The program's limit holds. */
static void beyond_card_became_too_small_no_more_than_it_may(void **state)
{
    (void)state;
    leave(130 * MIB);
    gs_runtime.config.overcommit = 70 * MIB;
    gs_beyond_look(gs_now(), true, true);
    while (gs_beyond_put(true, true) || gs_beyond_step(gs_now()))
        continue;
    assert_in_range(accounts().over, 1, 70 * MIB);
    gs_runtime.config.overcommit = 0;
    gs_beyond_look(gs_now(), true, true);
    assert_false(gs_beyond_needs_stop());
}

static int begin_card(void **state)
{
    if (card_setup(state) != 0)
        return -1;
    gs_driver.cuMemCreate = create_or_refuse;
    gs_driver.cuMemMap = map_or_refuse;
    gs_runtime.config.overcommit = 0;
    return 0;
}

#define scenario(name) cmocka_unit_test_setup_teardown(name, grow, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(beyond_told_it_goes_there_and_comes_back),
        scenario(beyond_program_runs_it_stops_once_there_is_room_for_all),
        scenario(beyond_room_does_not_come_the_program_goes_on),
        scenario(beyond_driver_refuses_it_is_still_missing),
        scenario(beyond_no_host_memory_it_is_still_missing),
        scenario(beyond_not_told_nothing_goes_there),
        scenario(beyond_freed_there_nothing_is_left),
        scenario(beyond_driver_takes_long_it_goes_there_in_rounds),
        scenario(beyond_pinned_there_nothing_is_due),
        scenario(beyond_program_has_grown_what_fits_is_due),
        scenario(beyond_exported_there_it_comes_back),
        scenario(beyond_overcommit_what_is_there_has_no_handle),
        scenario(beyond_on_the_host_its_contents_go_there),
        scenario(beyond_exported_meanwhile_the_first_part_comes_back),
        scenario(beyond_card_became_too_small_it_goes_there),
        scenario(beyond_card_became_too_small_contents_go_there),
        scenario(beyond_card_became_too_small_no_more_than_it_may),
    };

    return cmocka_run_group_tests(tests, begin_card, card_teardown);
}
