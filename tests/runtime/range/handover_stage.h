/* SPDX-License-Identifier: Apache-2.0
 *
 * handover_stage.h: what the tests of handover.c share: a device, a range of chunks, and a played
 * driver to which memory is an empty file and a handle a descriptor of it.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/range/range.h"
#include "runtime/range/handover.h"
#include "runtime/range/vmm.h"

#define MIB    ((uint64_t)1 << 20)
#define CHUNK  (64 * MIB)
#define CHUNKS 20u
#define NUMBER 256                   /* no descriptor has a higher one */
#define FROM   (NUMBER - NUMBER / 8) /* ... the last eighth of them are for memory */

struct stage {
    struct gs_device card, other_card;
    struct gs_range *range;
    bool was_open[NUMBER];
    unsigned open_before, mapped, imports;
    bool map_fails, unmap_fails, import_fails, fork_during_export;
    struct rlimit limit_before;
    uint64_t sizes[GS_GIVEN_MOST]; /* of the pieces of the last report */
};

extern struct stage stage;

/* How many descriptors are open. */
unsigned stage_descriptors(void);

/* A descriptor of device memory. */
int stage_memory(void);

/* So many descriptors may be open. */
void stage_limit(rlim_t most);

/* For cmocka's set-up and tear-down; what a test has left in hand, or given, is then of a
 * connection that has ended. */
int stage_begin(void **state);
int stage_end(void **state);

/* A chunk that was made here and is on the device; and one that is then given. */
void stage_make(uint32_t chunk);
void stage_make_and_give(uint32_t chunk);

/* A target of the daemon, which holds from now on. */
struct gs_wire_target stage_target(uint32_t flags, uint64_t budget);

/* So many come with RUN; how many were taken. */
unsigned stage_come(unsigned count, uint64_t budget);

/* What the next report has with it; how many. */
unsigned stage_reported(struct gs_descriptors *with);

#define STAGED(name) cmocka_unit_test_setup_teardown(name, stage_begin, stage_end)
