/* SPDX-License-Identifier: Apache-2.0
 *
 * model_state.h: the model's structures, shared by model.c (programs, sockets, clock),
 * model_check.c (what must hold) and model_life.c (what programs take into their heads).
 */
#pragma once

#include "tests/lockd/model.h"

#define MODEL_CHUNK (256 * MIB)
#define MODEL_TIMES 10000 /* hundreds of ns */

enum model_kind { MODEL_STATE, MODEL_TARGET, MODEL_STEP, MODEL_MIND, MODEL_TICK, MODEL_BACK };

struct model_event {
    uint64_t at, order;
    enum model_kind kind;
    uint32_t client, device;
    uint64_t life; /* of the client's connection */
    union {
        struct gs_wire_state state;
        struct gs_wire_target target;
    };
};

/* A program that wants to run on a device and does not: model_check.c. */
struct model_wait {
    uint64_t since;       /* 0: it does not wait */
    uint64_t open_since;  /* it waits although all fit; 0: no such thing */
    uint64_t rounds_most; /* that it had to sit out */
    uint64_t turns_most;  /* the longest turns meanwhile, on all devices together */
    double keeps_least;   /* of what the floor left to it meanwhile */
};

/* A program on one device, as it really is. */
struct model_side {
    uint64_t demand, resident, budget, idle_ns, short_bytes, switch_ns;
    uint64_t kept; /* of resident: cannot leave */
    uint64_t step_at, idle_since, stuck_until, move_began;
    struct model_wait wait;
    bool ends;           /* its turn ended another one's */
    const void *ends_of; /* ... that of this party */
    const void *turn_of; /* its party, not an interactive one, had its turn; else NULL */
    uint32_t seq, flags;
    bool work, want, running, moving;
    const void *party; /* ... that had so many turns at the last check */
    uint64_t turns;
};

struct model_program {
    uint32_t index;
    uint64_t life, in_last, out_last; /* the sockets keep their order */
    struct sched_client *client;      /* NULL: not connected */
    bool paused;
    uint32_t devices; /* one bit for each that it uses */
    bool bursts;      /* has short ones, on all its devices at once */
    uint64_t pause;   /* ... with so many ns between them */
    int32_t priority;
    char group[2]; /* "": none */
    struct model_side side[MODEL_DEVICES];
};

/* What interactive programs may still keep from the others: model_floor.c. */
struct model_floor {
    uint64_t at;
    double balance; /* ns; less than 0: are owed */
    bool off;       /* the others are held off, since then */
};

struct model {
    struct model_options options;
    struct model_figures figures;
    struct sched *sched;
    struct model_program *programs;
    struct model_event *heap;
    size_t count, room;
    uint64_t order, random, now, tick_at;
    uint64_t held[MODEL_DEVICES]; /* at the last check */
    uint64_t turn[MODEL_DEVICES]; /* the longest under way */
    struct model_floor floor[MODEL_DEVICES];
    uint64_t idle_since[MODEL_DEVICES];   /* nobody runs there, and somebody could; 0 */
    uint64_t second_began, causes, begun; /* since then: reasons to begin a turn; turns begun */
    uint64_t causes_before;               /* ... in the second before */
    uint64_t ticks;                       /* that were due, since second_began */
    uint64_t unsettled_until;             /* the daemon was restarted: not all are back */
    uint64_t disturbed;                   /* waits are measured from here */
    bool frozen;                          /* no program changes what it wants */
    char failure[512];
    uint32_t took[MODEL_TIMES + 1]; /* how many decisions took so many hundreds of ns */
};

uint64_t model_random(struct model *model, uint64_t below);
void model_push(struct model *model, struct model_event event);
/* The earliest event; there is one. */
struct model_event model_pop(struct model *model);
bool model_once(struct model *model, uint64_t until);
void model_flush(struct model *model);
void model_connect(struct model *model, struct model_program *program);
void model_want(struct model *model, struct model_program *program, uint32_t device, bool work);
void model_resize(struct model *model, struct model_program *program, uint32_t device,
                  uint64_t demand);
/* What could not leave does. */
void model_finds_a_place(struct model *model, struct model_program *program, uint32_t device);
void model_change_mind(struct model *model, struct model_program *program);

static inline bool model_uses(const struct model_program *program, uint32_t device)
{
    return (program->devices >> device & 1) != 0;
}

/* What it may have there, what cannot leave included. */
static inline uint64_t model_room(const struct model_side *side)
{
    return side->budget + side->kept;
}

/* Bytes really on the device. */
uint64_t model_resident(const struct model *model, uint32_t device);
void model_check(struct model *model);
void model_fail(struct model *model, const char *what, uint64_t device, uint64_t a, uint64_t b);
/* An event is about to change things, at `now`. */
void model_count_floor(struct model *model);
void model_check_floor(struct model *model, const struct sched_device *device, uint32_t index);
/* The part of the time that is kept for programs that are not interactive. */
double model_keeps(const struct sched_device *device);
/* After a tick. */
void model_check_deadline(struct model *model, uint64_t deadline);
void model_check_target(struct model *model, const struct model_side *side,
                        const struct gs_wire_target *target);
void model_check_sent(struct model *model, const struct sched_client *client,
                      const struct gs_wire_target *target);
