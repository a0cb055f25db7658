/* SPDX-License-Identifier: Apache-2.0
 *
 * card.h: what the benchmarks' programs that use a card share: checked calls, the clock, the
 * rate of the bus.
 */
#pragma once

#include <stdint.h>

#include <cuda.h>

#define NS_PER_S 1000000000ull

struct bus {         /* bytes a second */
    double h2d, d2h; /* one direction alone */
    double duplex;   /* both together */
};

/* Ends the process with a message if a driver call has failed. */
void check(CUresult result, const char *what);
uint64_t now_ns(void); /* CLOCK_MONOTONIC, the same in all processes */
void rest_ns(uint64_t ns);

/* The first device, its primary context current in this thread; how: CU_CTX_SCHED_*, how the
 * thread waits for the card. */
CUdevice open_device(unsigned how);

/* The rate of plain copies between registered host memory and the card, bytes in each direction.
 * Best of three. */
struct bus measure_bus(uint64_t bytes);

/* Seconds of each of so many passes of such copies in both directions at once, with a rest before each. */
void time_duplex(uint64_t bytes, unsigned passes, uint64_t rest, double *seconds);
