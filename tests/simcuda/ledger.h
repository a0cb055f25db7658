/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.h: the simulated card as all processes see it: who holds how much of its memory, whose
 * bytes are on the bus, whose kernel is running. One file per card, mapped by every process, in
 * the folder $SIMCUDA_CARD (else /tmp/simcuda-<uid>). A process that dies, however, gives
 * everything back: its entry names pid and start time, and whoever runs short removes the
 * entries of the dead. Memory that can be shared (shared.c) has entries of its own, and is
 * counted as long as anybody refers to it.
 *
 * The card's properties come from the environment of the process that creates the file, or that
 * is alone on the card and sets any of them (README.md lists them).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/err.h"

#define SIM_CARDS_MAX   16
#define SIM_CLIENTS_MAX 256
#define SIM_SHARED_MAX  4096

enum sim_direction { SIM_TO_DEVICE = 0, SIM_TO_HOST = 1 };

struct sim_properties {
    uint64_t memory;         /* bytes on the card */
    uint64_t context_memory; /* bytes that a context takes */
    uint64_t pcie_rate;      /* bytes per second and direction; 0: as fast as memcpy */
    uint64_t kernel_ns;      /* least duration of a kernel */
    uint64_t launch_ns;      /* time that a launch call takes */
    uint64_t fault_rate; /* bytes per second that faults of managed memory bring in; 0: at no
                                cost, and nothing is pushed out */
    uint64_t host_rate; /* bytes per second at which the card reaches host memory that is mapped
                                for it; 0: as its own */
    uint64_t card_rate; /* bytes per second of its own memory, beside host_rate; 0: no time */
    uint32_t timeslice; /* 1: one kernel at a time on the card */
    uint32_t driver_version;
    uint32_t cards;
    uint32_t zero;
};

struct sim_client {
    int32_t pid;      /* 0: entry is free */
    uint32_t state;   /* CUprocessState; atomic */
    uint32_t inside;  /* calls that have begun; atomic, of the process's lowest card only */
    uint32_t working; /* operations that have not finished; the same */
    uint64_t saved;   /* bytes that a checkpoint took off the card */
    uint32_t moves;   /* restores; atomic, of the process's lowest card only */
    uint32_t onto;    /* 1 + index of the card that takes this one's place when the process
                         follows the restores; 0: none does */
    uint64_t start;   /* start time of the process in clock ticks, /proc/<pid>/stat field 22 */
    uint64_t used;    /* bytes */
    uint64_t peak;
    uint32_t shared;  /* pieces of memory that can be shared, made or imported; atomic */
    uint32_t managed; /* pages of managed memory on the card; atomic */
    uint32_t evict;   /* of these, pages that others want it to push out; atomic */
    uint32_t before;  /* onto, as it was at the checkpoint, if it was not followed until then */
    uint32_t followed; /* of moves, by the process; atomic, of its lowest card only */
    uint32_t zero;
    char name[32];
};

/* Memory with a file of its own in the folder of the cards, memory-<card>-<number>. */
struct sim_shared {
    uint64_t bytes;         /* 0: entry is free */
    uint64_t number;        /* of the file; never used twice on a card */
    uint64_t device, inode; /* of the file; 0 until it is made */
    uint32_t maker;         /* who made it and still has it: 1 + index of its client entry; 0:
                               the file's lock tells whether anybody has it */
    uint32_t zero;
};

struct sim_card {
    uint64_t magic;
    uint32_t version, index;
    struct sim_properties properties;
    uint8_t uuid[16];
    pthread_mutex_t lock;    /* process-shared, robust: guards the fields below */
    pthread_mutex_t compute; /* held while a kernel runs; priority-inheriting, so that it is
                                handed over in turn */
    _Atomic(int32_t) stops;  /* the thread that stops its process when it has released lock */
    uint64_t bus_free_ns[2]; /* when the bus is free again, CLOCK_MONOTONIC, by direction */
    struct sim_client client[SIM_CLIENTS_MAX];
    uint64_t shared_made;  /* the last number given to shared memory */
    uint32_t shared_limit; /* the entries from here on are free */
    struct sim_shared shared[SIM_SHARED_MAX];
};

/* Writes the folder of the cards into buffer. 0 or -ENAMETOOLONG. */
int sim_card_folder(char *buffer, unsigned size);

/* Lays what the environment says over *properties; *set becomes true if it says anything. 0 or
 * -EINVAL with err filled. */
int sim_properties_read(struct sim_properties *properties, bool *set, struct gs_err *err);

/* The UUID of card number index. */
void sim_card_uuid(unsigned index, uint8_t uuid[16]);

/* Maps card number index, making its file if need be, and enters the calling process. *client
 * is its entry. For index > 0 the card exists only if card 0's properties say so: -ENODEV. 0 or
 * -errno with err filled. */
int sim_card_join(unsigned index, struct sim_card **card, unsigned *client, struct gs_err *err);

/* Nobody makes or enters a card until the descriptor is closed. -ENOENT: nobody ever did; or
 * another -errno. */
int sim_card_hold(struct gs_err *err);

/* Maps an existing card without entering. 0 or -errno. A process that has not entered takes the
 * card's lock only while it holds the cards: the next one to enter an empty card makes the lock
 * anew. */
int sim_card_look(unsigned index, struct sim_card **card, struct gs_err *err);
void sim_card_unmap(struct sim_card *card);

/* Takes the entry of the calling process away, and all it holds. */
void sim_card_leave(struct sim_card *card, unsigned client);

/* Takes bytes for the client; -ENOMEM if the card has no room, entries of dead processes apart.
 */
int sim_card_charge(struct sim_card *card, unsigned client, uint64_t bytes);
void sim_card_refund(struct sim_card *card, unsigned client, uint64_t bytes);

/* What is read and written of entries by others than their owner. */
void sim_card_lock(struct sim_card *card);
void sim_card_unlock(struct sim_card *card);

/* Bytes that are free; removes the entries of the dead, and of shared memory that nobody has,
 * first. */
uint64_t sim_card_free(struct sim_card *card);

/* Under the lock. Is there room for bytes, if need be when what the dead held is removed? */
bool sim_card_has_room(struct sim_card *card, uint64_t bytes);
void sim_card_remove_dead(struct sim_card *card);

/* -- memory that can be shared (shared.c) -- */

/* The folder in which the files lie: that of the card this process joins or looks at. 0 or
 * -errno. */
int sim_shared_open(const char *folder);

/* Makes shared memory of so many bytes: *number names it, *fd is its file, and no reference:
 * the client has the memory until it puts it. -ENOMEM if the card
 * has no room, -ENOSPC if it has too many pieces already, or what the file system says. */
int sim_shared_new(struct sim_card *card, unsigned client, uint64_t bytes, uint64_t *number,
                   int *fd);

/* Another descriptor of the file, which does not count as a reference; or -errno. */
int sim_shared_reopen(int fd);
/* ... which does, wherever it goes, and so does what is mapped by it. */
int sim_shared_export(int fd);

/* Is fd a descriptor of shared memory of this card? Which, and how large? It is a reference
 * from now on, if it was none. 0 or -ENOENT. */
int sim_shared_find(struct sim_card *card, int fd, uint64_t *number, uint64_t *bytes);

/* The calling process has it no more, as the one who made it (maker) or as one who imported it;
 * what it had of it is closed and unmapped. */
void sim_shared_put(struct sim_card *card, uint64_t number, bool maker);

/* Under the lock: the client is going; removes what nobody has any more. */
void sim_shared_leave(struct sim_card *card, unsigned client);
void sim_shared_sweep(struct sim_card *card);

/* Bytes taken, by so many pieces (may be NULL). */
uint64_t sim_shared_used(const struct sim_card *card, unsigned *pieces);

/* Removes the files of card number index, which is being made or removed. 0 or -errno. */
int sim_shared_remove_all(unsigned index);

/* Books the bus for bytes in one direction; returns when the transfer ends, CLOCK_MONOTONIC ns
 * (0: not throttled). */
uint64_t sim_card_book_bus(struct sim_card *card, enum sim_direction direction, uint64_t bytes);

/* The right to run a kernel, handed from process to process. No-ops if the card does not slice
 * time. */
void sim_card_compute_begin(struct sim_card *card);
void sim_card_compute_end(struct sim_card *card);

uint64_t sim_now_ns(void);
void sim_sleep_until(uint64_t ns);
