/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.h: the simulated card as all processes see it: who holds how much of its memory, whose
 * bytes are on the bus, whose kernel is running. One file per card, mapped by every process, in
 * the folder $SIMCUDA_CARD (else /tmp/simcuda-<uid>). A process that dies, however, gives
 * everything back: its entry names pid and start time, and whoever runs short removes the
 * entries of the dead.
 *
 * The card's properties come from the environment of the process that creates the file, or that
 * is alone on the card and sets any of them (README.md lists them).
 */
#ifndef SIMCUDA_LEDGER_H
#define SIMCUDA_LEDGER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/err.h"

#define SIM_CARDS_MAX   16
#define SIM_CLIENTS_MAX 256

enum sim_direction { SIM_TO_DEVICE = 0, SIM_TO_HOST = 1 };

struct sim_properties {
    uint64_t memory;         /* bytes on the card */
    uint64_t context_memory; /* bytes that a context takes */
    uint64_t pcie_rate;      /* bytes per second and direction; 0: as fast as memcpy */
    uint64_t kernel_ns;      /* least duration of a kernel */
    uint64_t launch_ns;      /* time that a launch call takes */
    uint32_t timeslice;      /* 1: one kernel at a time on the card */
    uint32_t driver_version;
    uint32_t cards;
    uint32_t zero;
};

struct sim_client {
    int32_t pid;      /* 0: entry is free */
    uint32_t state;   /* CUprocessState; atomic */
    uint32_t inside;  /* calls that have begun; atomic, of the process's first card only */
    uint32_t working; /* operations that have not finished; the same */
    uint64_t saved;   /* bytes that a checkpoint took off the card */
    uint64_t start;   /* start time of the process in clock ticks, /proc/<pid>/stat field 22 */
    uint64_t used;    /* bytes */
    uint64_t peak;
    char name[32];
};

struct sim_card {
    uint64_t magic;
    uint32_t version, index;
    struct sim_properties properties;
    uint8_t uuid[16];
    pthread_mutex_t lock;    /* process-shared, robust: guards the fields below */
    pthread_mutex_t compute; /* held while a kernel runs; priority-inheriting, so that it is
                                handed over in turn */
    uint64_t bus_free_ns[2]; /* when the bus is free again, CLOCK_MONOTONIC, by direction */
    struct sim_client client[SIM_CLIENTS_MAX];
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

/* Maps an existing card without entering. 0 or -errno. */
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

/* Bytes that are free; removes the entries of the dead first. */
uint64_t sim_card_free(struct sim_card *card);

/* Books the bus for bytes in one direction; returns when the transfer ends, CLOCK_MONOTONIC ns
 * (0: not throttled). */
uint64_t sim_card_book_bus(struct sim_card *card, enum sim_direction direction, uint64_t bytes);

/* The right to run a kernel, handed from process to process. No-ops if the card does not slice
 * time. */
void sim_card_compute_begin(struct sim_card *card);
void sim_card_compute_end(struct sim_card *card);

uint64_t sim_now_ns(void);
void sim_sleep_until(uint64_t ns);

#endif
