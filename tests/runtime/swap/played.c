/* SPDX-License-Identifier: Apache-2.0
 *
 * played.c: the device, its memory and the clock that the tests of moving.c play with. One thread.
 */
#include "tests/runtime/swap/played.h"

#include "runtime/base/rdma.h"
#include "runtime/client/client.h"
#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/swap/moving.h"
#include "runtime/base/clock.h"
#include "runtime/base/daemon.h"
#include "runtime/base/config.h"
#include "runtime/client/session.h"
#include "runtime/swap/exchange.h"
#include "runtime/swap/loose.h"

struct gs_driver gs_driver;
struct gs_runtime gs_runtime;
struct gs_counts gs_counts;
pthread_mutex_t gs_memory_lock = PTHREAD_MUTEX_INITIALIZER;

struct played played;

/* --- what moving.c stands on --- */

struct gs_device *gs_device_at(unsigned i)
{
    return i == 0 ? &played.card : NULL;
}

uint64_t gs_device_room(const struct gs_device *device)
{
    return atomic_load(&device->target.capacity) + atomic_load(&device->moving.kept);
}

CUresult gs_context_push(CUcontext handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

static CUresult pop_context(CUcontext *popped)
{
    *popped = NULL;
    return CUDA_SUCCESS;
}

struct gs_context *gs_context_for(const struct gs_device *device)
{
    static struct gs_context context;

    (void)device;
    return played.without_context ? NULL : &context;
}

struct gs_accounts gs_memory_accounts(const struct gs_device *device)
{
    (void)device;
    played.card.accounts = played.accounts;
    return played.accounts;
}

uint64_t gs_memory_out_of_reach(const struct gs_device *device)
{
    (void)device;
    return played.out_of_reach;
}

bool gs_loose_send_one(struct gs_device *device)
{
    (void)device;
    if (played.loose_left == 0)
        return false;
    played.loose_left--;
    return true;
}

void gs_loose_begin(struct gs_device *device, bool closed)
{
    (void)device;
    played.loose_begun += closed;
}

void gs_loose_more(struct gs_device *device, uint64_t bytes)
{
    (void)device;
    played.loosened = bytes;
    played.accounts.demand -= bytes;
}

enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess)
{
    (void)device;
    played.asked_out = excess;
    return played.out_gives;
}

enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, int news,
                               uint64_t *lacking)
{
    (void)device;
    (void)news;
    played.asked_in = room;
    *lacking = played.in_gives == GS_SWAP_SHORT ? 2 * MIB : 0;
    return played.in_gives;
}

bool gs_swap_is_under_way(const struct gs_device *device, bool out)
{
    (void)device;
    return out && played.out_under_way;
}

void gs_swap_settle(void)
{
}

void gs_swap_drop_copies(struct gs_device *device)
{
    (void)device;
}

uint64_t gs_handover_in_hand(const struct gs_device *device)
{
    (void)device;
    return played.in_hand;
}

void gs_handover_shrink(struct gs_device *device, uint64_t most)
{
    const uint64_t less = played.in_hand > most ? played.in_hand - most : 0;

    (void)device;
    played.in_hand -= less;
    played.accounts.resident -= less;
}

bool gs_rdma_is_open(void)
{
    played.rdma_looks++;
    return played.rdma;
}

bool gs_exchange_refuses(void)
{
    return false;
}

void gs_gate_refuse(bool refuse)
{
    played.refusing = refuse;
}

bool gs_daemon_has_news(void)
{
    return false;
}

uint64_t gs_now(void)
{
    return played.clock_ns;
}

void gs_host_prepare(uint64_t bytes)
{
    (void)bytes;
}

bool gs_host_has_unregistered(void)
{
    return false;
}

bool gs_host_register_one(void)
{
    return false;
}

bool gs_host_has_ended(void)
{
    return played.ended != 0;
}

bool gs_host_release_one(void)
{
    return --played.ended != 0;
}

uint64_t gs_host_foreign(void)
{
    return 0;
}

uint64_t gs_host_used(void)
{
    return played.host_used;
}

uint64_t gs_host_budget(void)
{
    return UINT64_MAX;
}

void gs_host_trim(uint64_t keep)
{
    (void)keep;
    played.trims++;
}

int played_begin(void **state)
{
    (void)state;
    gs_driver.cuCtxPopCurrent_v2 = pop_context;
    played.card = (struct gs_device){.movable = true};
    atomic_store(&played.card.target.capacity, 100 * MIB);
    played.accounts = (struct gs_accounts){0};
    played.out_gives = played.in_gives = GS_SWAP_NOTHING;
    played.asked_out = played.asked_in = played.in_hand = 0;
    played.out_of_reach = played.host_used = 0;
    played.ended = played.trims = 0;
    played.refusing = played.without_context = played.rdma = played.out_under_way = false;
    played.rdma_looks = 0;
    played.clock_ns = S;
    return 0;
}

void played_target(uint32_t flags, uint64_t budget)
{
    atomic_store(&played.card.target.flags, flags);
    atomic_store(&played.card.target.budget, budget);
}

void played_wait(uint64_t ns)
{
    for (const uint64_t until = played.clock_ns + ns; played.clock_ns < until;
         played.clock_ns += S / 10)
        gs_moving_step(played.clock_ns, true, true, -1);
}
