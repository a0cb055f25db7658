/* SPDX-License-Identifier: Apache-2.0
 *
 * balance.h: decides which program moves to another card, and when (balance = waiting). Programs
 * tell which cards they see, the scheduler tells what they do there (sched_client_load()). The
 * result are moves, one at a time; the caller tells how each of them ended. No I/O, no clock, one
 * thread.
 */
#pragma once

#include "lockd/move/move.h"

struct balance_move {
    void *owner; /* as given to balance_came() */
    uint8_t from[16], to[16];
};

/* Failures, and the time of the next attempt. */
struct balance_failures {
    uint32_t count; /* in a row */
    uint64_t retry_at;
};

/* A card that any program sees. */
struct balance_place {
    struct lockd_list link; /* of balance->places */
    struct lockd_seen card;
    uint32_t seen_by; /* programs */
    /* sums over the programs there, of one look: */
    double work, background; /* parts of the time in which they want the card, alone */
    double interactive;      /* part of work */
    uint64_t pinned, capacity;
};

/* A card that one program sees. */
struct balance_sight {
    struct lockd_list link; /* of program->sights */
    struct balance_place *place;
    struct lockd_seen card; /* as this program reports it */
    struct balance_failures failures;
};

/* The past of a program. */
struct balance_past {
    uint64_t seen_at;           /* 0: never */
    uint64_t run_ns, wait_ns;   /* as the scheduler reported then */
    uint64_t ran_ns, waited_ns; /* between the last two looks */
    double ran, rested;         /* ns, fading */
};

struct balance_program {
    struct lockd_list link; /* of balance->programs */
    const struct sched_client *client;
    void *owner;
    struct lockd_list sights;
    uint32_t sight_count;
    struct balance_sight *home; /* its only card, where it has its turns alone; else NULL */
    struct balance_place *to;   /* the card that it moves to; NULL: it does not move */
    struct sched_load load;     /* of the last look */
    struct balance_past past;
    double part; /* of the time in which it would want a card of its own */
    double lost; /* ns of waiting that it would not have had elsewhere; fading */
    struct balance_failures failures;
    uint32_t moves; /* of late */
    uint64_t moves_at;
    bool said; /* it cannot see the card on which it would wait less */
};

/* Receives the reason why a program stays. owner: of that program. */
typedef void balance_say(void *context, void *owner, const char *text);
/* sched_client_load(), or its replacement in a test. */
typedef bool balance_ask(const struct sched_client *client, uint32_t number,
                         struct sched_load *load, uint64_t now_ns);

struct balance {
    struct lockd_list programs, places;
    bool on;
    uint64_t look_at;
    struct balance_program *moving; /* has a place to go to */
    bool ordered;                   /* the caller has taken that move */
    struct balance_failures failures;
    uint64_t overhead_ns; /* of a move, without the copies; measured */
    bool measured;
    balance_ask *ask;
    balance_say *say;
    void *context;
};

void balance_init(struct balance *balance, balance_ask *ask, balance_say *say, void *context);
/* All programs must have been removed. */
void balance_deinit(struct balance *balance);
void balance_set(struct balance *balance, bool on);

/* NULL without memory; then the program is never moved. */
struct balance_program *balance_came(struct balance *balance, const struct sched_client *client,
                                     void *owner);
/* A program that moves may go as well; then there is no outcome. NULL is accepted. */
void balance_gone(struct balance *balance, struct balance_program *program);
/* The program sees that card. Cards beyond LOCKD_DEVICES_PER_CLIENT are ignored. */
void balance_sees(struct balance *balance, struct balance_program *program,
                  const struct lockd_seen *card);

/* Looks at all programs when it is time. Returns when to call it again; LOCKD_NEVER: balance is
 * off, or there is no program. */
uint64_t balance_tend(struct balance *balance, uint64_t now_ns);
/* Takes the move that is to begin. False: there is none. */
bool balance_next(struct balance *balance, struct balance_move *move);
/* Takes the outcome of a move, exactly once; also of a move that a user requested. ns: from the
 * request to stop the program until it may continue, 0: that says nothing about other moves; bytes:
 * copied in that time, in both directions. A move that takes too long to wait for has two outcomes:
 * NOT_IT, then the outcome that it has in the end, with ns 0. */
void balance_outcome(struct balance *balance, struct balance_program *program,
                     enum lockd_move_end outcome, uint64_t ns, uint64_t bytes, uint64_t now_ns);

/* The time that a move of the program would take, ns. */
uint64_t balance_cost(const struct balance *balance, const struct balance_program *program);
