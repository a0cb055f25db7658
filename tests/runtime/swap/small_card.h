/* SPDX-License-Identifier: Apache-2.0
 *
 * small_card.h: a small simulated card under the runtime's lower rooms, and a program with some
 * blocks of memory on it, which lie beyond the card in part. One thread is both the program and the
 * client thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/memory/memory.h"

#define MIB         ((uint64_t)1 << 20)
#define CARD_BLOCKS 12u
#define CARD_ROOM   (256 * MIB)
#define CARD_BEYOND (256 * MIB) /* the most that may lie beyond the card */

struct card_block {
    CUdeviceptr address; /* 0: none */
    uint64_t bytes;
    uint32_t value; /* the first word of each 2 MiB holds it, plus the number of those 2 MiB */
};

struct card {
    struct gs_device *device;
    uint64_t room;           /* 0: CARD_ROOM; else also set SIMCUDA_MEMORY before the set-up */
    struct gs_driver driver; /* the simulated one, as it is */
    struct card_block blocks[CARD_BLOCKS];
    uint64_t random;
    double failing;            /* probability of each call that may fail */
    unsigned refuse_maps;      /* so many from now on, of the chunks' own addresses */
    unsigned refuse_unmaps;    /* so many from now on, of any addresses */
    unsigned made_on_host;     /* pieces of host memory */
    void (*during_copy)(void); /* run once, by the next copy of an exchange; may be NULL */
};

extern struct card card;

/* For cmocka's set-up and tear-down. */
int card_setup(void **state);
int card_teardown(void **state);

/* Starts a test: the seed of random numbers, and the probability that a call of the driver fails. */
void card_begin(uint64_t seed, double failing);
/* Ends it: frees all blocks and returns their memory to the driver. */
void card_return_memory(void);

/* A random number less than that. */
uint64_t card_draw(uint64_t below);

/* False: there was no room. The contents are unknown until card_fill(). */
bool card_allocate(struct card_block *block, uint64_t bytes);
void card_fill(struct card_block *block, uint32_t value);

/* The first six blocks, of 64 MiB each: two of them lie beyond the card. */
void card_overfill(void);
void card_free(struct card_block *block);
/* Uses all of the block, 60 times. */
void card_use(const struct card_block *block);
/* Forgets all uses; the window of the placement begins at that time. */
void card_forget_uses(uint64_t now);
/* The exchanges that the placement has chosen, if any, in a stop of their own. */
void card_exchange(void);

/* Closes the gate and waits for the device. */
void card_stop(void);
/* Opens the gate when all memory is in place. The driver fails meanwhile as before, but not for
 * ever. */
void card_go_on(void);

/* Counts the memory in all ranges and compares it with the runtime's accounts. spare: bytes of host
 * memory that an exchange may have kept for the next one. */
void card_check_books(uint64_t spare);
void card_check_accounts(void);
/* Every chunk is at its address, with the right contents. Requires an open gate. */
void card_check_contents(void);
