/* SPDX-License-Identifier: Apache-2.0
 *
 * played.h: what moving.c stands on, played: one device, its memory, and time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/device.h"
#include "runtime/memory/memory.h"
#include "runtime/swap/swap.h"

#define MIB ((uint64_t)1 << 20)
#define S   1000000000ull

struct played {
    struct gs_device card;
    struct gs_accounts accounts;
    enum gs_swap_result out_gives, in_gives;
    uint64_t asked_out, asked_in, in_hand, clock_ns, out_of_reach, loosened;
    uint64_t host_used;
    unsigned ended,
        trims; /* pieces of common memory that nobody has; calls that release host memory */
    unsigned loose_begun, loose_left, rdma_looks;
    bool refusing, without_context, rdma, out_under_way;
};

extern struct played played;

/* For cmocka's set-up. */
int played_begin(void **state);

/* The newest target. */
void played_target(uint32_t flags, uint64_t budget);

/* Time goes on, in steps of 100 ms. */
void played_wait(uint64_t ns);
