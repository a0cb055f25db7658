/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.h: managed memory; and its pages, as managed.c and managed_advice.c see them.
 */
#pragma once

#include "tests/simcuda/sim.h"

/* Managed memory (managed.c): address space whose pages come and go on the card. */
CUresult sim_managed_new(unsigned device, size_t size, struct sim_managed **managed);
CUdeviceptr sim_managed_start(const struct sim_managed *managed);
void sim_managed_free(struct sim_managed *managed);
/* An access faulted. False: it is no managed memory. */
bool sim_managed_touch(CUdeviceptr address, bool by_card);
/* A kernel begins: pages that the program has opened are closed, so that its touch is seen. */
void sim_managed_close(void);
struct sim_op *sim_managed_prefetch_op(CUdeviceptr address, size_t size, int location);
/* The card has no room for something of this process that is not managed memory: pushes out
 * managed pages, of any process, until that many bytes are free, or nothing is left to push. */
void sim_managed_make_room(unsigned device, size_t bytes);
/* Advice, and what a range of addresses was told; locations are ordinals, -1 the host, -2 none. */
void sim_managed_advise(CUdeviceptr address, size_t size, CUmem_advise advice, int location);
enum sim_managed_fact {
    SIM_READ_MOSTLY, /* 0 or 1 */
    SIM_PREFERRED,
    SIM_PREFETCHED
};
int sim_managed_fact(CUdeviceptr address, size_t size, enum sim_managed_fact fact);
/* A bit for each device that all of it is accessed by, and bit 31 for the host. */
uint32_t sim_managed_accessed(CUdeviceptr address, size_t size);

/* --- for managed.c and managed_advice.c --- */

#define NO_LOCATION (-2)
#define ATTEMPTS    400 /* to make room, 50 us to 1 ms each */

enum where { NOWHERE, HOST, HOST_OPEN, CARD };

struct page {
    uint8_t where;
    bool read_mostly;
    int8_t preferred, prefetched; /* ordinals, -1 the host, NO_LOCATION */
    uint32_t accessed;            /* by: a bit for each device, bit 31 for the host */
    uint64_t arrived;             /* on the card */
};

struct sim_managed {
    struct sim_managed *next;
    struct sim_range *place;
    unsigned device;
    size_t pages;
    struct page page[];
};

/* Protects what is declared here. */
extern pthread_mutex_t sim_managed_lock;

/* Under the lock: the memory that the address is in, and its page; NULL: none. */
struct sim_managed *sim_managed_find(CUdeviceptr address);

/* Under the lock. False: there is no room for it. */
bool sim_managed_page_move(struct sim_managed *managed, size_t page, enum where to);

/* Makes room for a page of managed memory on a card with a fault rate. False: nothing to push out. */
bool sim_managed_push_out(unsigned device);
