/* SPDX-License-Identifier: Apache-2.0
 *
 * kin.h: finds the programs that are one job, and so one gang. Programs send keys (GS_WIRE_KIN).
 * Programs of one identity that share the key of a piece of evidence are one *set*. Hints count
 * only once a program makes no progress. The scheduler decides what a set means for turns
 * (sched_kin()). No I/O, no clock, one thread.
 */
#pragma once

#include "lockd/base/list.h"
#include "lockd/programs/identity.h"
#include "lockd/sched/scheduler.h"

struct kin_key {
    uint64_t key;
    uint32_t kind; /* enum gs_kin_kind */
};

/* Observations of a program, for the search for hangs. */
struct kin_watch {
    uint64_t calls, turns; /* turns: when the calls last changed */
    uint64_t stuck_since;  /* 0: it is not */
    uint64_t try_at;       /* no trial begins for it before */
    uint64_t pause;        /* ns from one trial to the next, once all have been made */
    uint32_t tries;        /* combinations that did not help */
};

struct kin_program {
    struct lockd_list link; /* of kin->programs, in the order of arrival */
    struct sched_client *client;
    void *owner;
    const struct lockd_identity *identity; /* the owner's */
    bool named;                            /* by GPUSHARE_GROUP: the keys do not count */
    uint64_t set;                          /* 0: none */
    uint64_t trial;                        /* the set that it is in for a trial; 0: none */
    uint32_t why; /* enum gs_kin_kind: the reason why it is in its set */
    uint32_t count;
    struct kin_key keys[GS_KIN_MOST];
    struct kin_watch watch;
};

/* Receives a remark about a trial. owner: of the program that made no progress. */
typedef void kin_say(void *context, void *owner, const char *text);

struct kin {
    struct lockd_list programs, trials;
    uint64_t next_set;
    uint64_t look_at; /* for hangs */
    kin_say *say;
    void *context;
};

/* A combination of programs that is tried as one gang. */
struct kin_trial {
    struct lockd_list link;
    uint64_t set;
    struct kin_program *of; /* the program that hung; NULL: it is gone */
    uint64_t calls, turns;  /* the counts of the program that hung, at the beginning */
    uint64_t until;
};

void kin_init(struct kin *kin, kin_say *say, void *context);
void kin_deinit(struct kin *kin);

/* Adds a program, before its first state. named: it names its group, or wants none. identity
 * must stay valid until kin_gone(). NULL without memory. */
struct kin_program *kin_came(struct kin *kin, struct sched_client *client, void *owner,
                             const struct lockd_identity *identity, bool named);
/* Removes a program; NULL is accepted. To be called before its client leaves the scheduler. */
void kin_gone(struct kin *kin, struct kin_program *program);
/* The program sent a key. ranks: of that job on this machine; 0: not known. */
void kin_learn(struct kin *kin, struct kin_program *program, uint64_t key, uint32_t kind,
               uint32_t ranks, uint64_t now_ns);
/* The program takes a key back. Its set falls apart into the sets that the remaining keys make,
 * unless a trial has shown that it is one job, or it has more than 32 programs. */
void kin_unlearn(struct kin *kin, struct kin_program *program, uint64_t key, uint32_t kind,
                 uint64_t now_ns);
/* Both programs are one job, for that reason (enum gs_kin_kind). Nothing happens if their
 * identities differ, or if one of them names its group. */
void kin_join(struct kin *kin, struct kin_program *a, struct kin_program *b, uint32_t why,
              uint64_t now_ns);
/* The number of the program's present set, for the scheduler. */
static inline uint64_t kin_set_of(const struct kin_program *program)
{
    return program->trial != 0 ? program->trial : program->set;
}

#define kin_program_of(at) lockd_entry(at, struct kin_program, link)

/* Helps a program that makes no progress while programs that share a hint with it wait for
 * other devices. The program may wait for their work: combinations of them are tried as one gang,
 * one after the other, each for a limited time. The combination that helps stays a gang. */

/* Looks for hangs, begins and ends trials. Returns when to look again; LOCKD_NEVER: there is
 * nothing to look at. */
uint64_t kin_tend(struct kin *kin, uint64_t now_ns);
