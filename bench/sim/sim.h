/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.h: the simulated world: cards, programs on them, and lockd's scheduler between the two. All
 * times are nanoseconds of the virtual clock, all sizes bytes. One thread.
 */
#pragma once

#include "bench/sim/clock.h"
#include "bench/sim/scenario.h"
#include "bench/sim/share.h"
#include "lockd/move/balance.h"
#include "lockd/sched/scheduler.h"

struct sim_world;
struct sim_program;

/* How a program comes by the card. */
struct sim_way {
    void (*arrive)(struct sim_program *program);
    void (*wants)(struct sim_program *program); /* it has GPU work: program->gpu_left */
    void (*rests)(struct sim_program *program); /* that work is done; more may follow at once */
    void (*leave)(struct sim_program *program);
};

extern const struct sim_way sim_way_gpushare; /* client.c: lockd's scheduler, our swapping */
extern const struct sim_way sim_way_unified;  /* unified.c: unified memory, FCFS lock */
extern const struct sim_way sim_way_unlocked; /* unified.c: unified memory, no lock */

struct sim_card {
    struct sim_world *world;
    uint32_t index;
    struct sim_share gpu, in, out; /* jobs in ns of solo time, bytes, bytes */
    uint64_t resident, resident_most;
    uint32_t running, waiting;
    /* between one program stopping and the next coming to run, with somebody waiting */
    uint64_t gap_began;
    struct sim_sum gap;
    uint64_t quantum_most;        /* as the scheduler has it */
    uint64_t busy_since, busy_ns; /* somebody computes */
    /* unified.c */
    struct sim_program *holder, *queue_first, *queue_last;
    struct sim_timer quantum_timer, idle_timer;
    uint32_t computing; /* programs with GPU work, without a lock */
    double touched;     /* bytes that these touch */
    double pass_ns;     /* sum over them */
};

enum sim_phase { SIM_CPU, SIM_GPU, SIM_REST, SIM_GONE };

/* The figures of one program. */
struct sim_figures {
    double gpu_ns; /* work done, in solo time */
    double cpu_ns;
    uint64_t held_ns, wait_ns, wait_most_ns;
    uint64_t turns, moved_out, moved_in, requests;
    uint64_t yielded_ns;               /* as the scheduler says */
    uint64_t looks, looks_interactive; /* at its class; how often that was interactive */
    uint64_t moves, move_attempts;     /* to other cards; also those that failed */
};

/* work.c: the program's own work. */
struct sim_program_work {
    enum sim_phase phase;
    uint64_t cycles; /* done */
    uint64_t pauses;
    uint64_t cpu_began;
    double gpu_left;   /* of this burst when it is not computing, ns of solo time */
    double gpu_begun;  /* what was left when its work was last counted */
    uint64_t gpu_next; /* of the cycle that has begun */
    struct sim_timer phase_timer;
    bool may_compute; /* its gate is open */
    struct sim_program *gang_next;
    struct sim_job gpu_job;
    uint64_t kernels; /* cycles of it that are still to come */
};

/* work.c: the requests that the program serves. */
struct sim_program_requests {
    struct sim_timer arrival_timer;
    uint64_t arrivals; /* so far; those that come together are one */
    uint64_t *due;     /* when those not yet served were to arrive */
    size_t first, count, room;
    bool serving;        /* the first of them */
    uint64_t ideal_free; /* when a card of its own would be done with all served so far */
    struct sim_samples latency, ideal; /* ns */
};

/* client.c: the memory of the program, as the runtime library keeps it. */
struct sim_program_memory {
    uint64_t demand, resident, budget, on_host, fresh;
    bool moving_out, moving_in, was_out;
    uint64_t step_began, step_bytes, moving_ns;
    struct sim_timer step_timer;
    struct sim_job copy_job;
};

/* client.c: the runtime library's side of wire.h. */
struct sim_program_link {
    struct sched_client *client;
    uint64_t life; /* of its connection: messages of an earlier one are dropped */
    uint64_t idle_ns, switch_ns;
    uint32_t seq, flags;
    bool running, waiting, idle, has_news;
    uint64_t active_at;
    struct sim_timer stop_timer, idle_timer;
    struct gs_wire_target news; /* read after the step that is under way */
    struct gs_wire_state sent;
    uint64_t to_lock_at, from_lock_at; /* messages keep their order */
};

/* move.c: its moves to other cards. */
struct sim_program_move {
    struct balance_program *balance;
    struct sim_card *goes_to; /* NULL: it stays where it is */
    uint64_t began, bytes;
    struct sim_timer timer;
};

/* unified.c: its page faults. */
struct sim_program_faults {
    struct sim_program *queue_next;
    bool queued;
    struct sim_timer timer;
    uint64_t began;
    double missing; /* of what it touches, bytes */
};

struct sim_program {
    struct sim_world *world;
    struct sim_card *card;
    const struct sim_class *class;
    uint32_t index; /* in the world */
    /* random numbers of its own, so that all policies meet the same programs: for its work, for
     * arrivals, for what depends on the policy */
    uint64_t random, arrivals, noise;
    uint64_t started, ended;

    struct sim_program_work work;
    struct sim_program_requests asked;
    struct sim_program_memory memory;
    struct sim_program_link link;
    struct sim_program_move move;
    struct sim_program_faults faults;

    uint64_t wait_since, run_since;
    struct sim_figures figures, before; /* before: at the end of the warm-up */
};

struct sim_message;

struct sim_world {
    const struct sim_scenario *scenario;
    const struct sim_way *way;
    struct sim_clock clock;
    struct sched *sched;
    struct balance balance;
    struct sim_timer balance_timer;
    struct sim_timer lock_timer, warmup_timer;
    uint64_t look_at;
    bool warm;
    struct sim_card *cards;
    struct sim_program *programs;
    uint32_t program_count, finished, arrived;
    struct sim_message *spare, *all_messages;
    uint64_t states, targets;
    uint64_t window_began;             /* figures count from here */
    struct sim_samples latency, ideal; /* of requests, ns */
    char failure[256];                 /* a promise of wire.h was broken; empty: none */
};

/* world.c */
struct sim_world *sim_world_new(const struct sim_scenario *scenario);
void sim_world_free(struct sim_world *world);
/* Runs to the scenario's end, or until all programs have ended. */
void sim_world_run(struct sim_world *world);
/* Sends one state to the scheduler, which gets it a message's delay later. */
void sim_world_send(struct sim_program *program, const struct gs_wire_state *state);
void sim_world_connect(struct sim_program *program);
void sim_world_disconnect(struct sim_program *program);
/* The scheduler's clock, and what it wants to send. */
uint64_t sim_world_now(const struct sim_world *world);
void sim_world_flush(struct sim_world *world);
void sim_world_failed(struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* card.c */
void sim_card_uuid(uint32_t index, uint8_t uuid[16]);
void sim_card_init(struct sim_card *card, struct sim_world *world, uint32_t index);
/* Notes that it began or ceased to run, or to wait; keeps the card's and its own figures. */
void sim_world_running(struct sim_program *program, bool running);
void sim_world_waiting(struct sim_program *program, bool waiting);
void sim_world_resident(struct sim_program *program, uint64_t resident);

/* work.c */
void sim_work_init(struct sim_program *program);
/* Its gate is open (or closes): GPU work that there is gets on (or no more). */
void sim_work_compute(struct sim_program *program);
void sim_work_halt(struct sim_program *program);
/* Brings the figures of what is under way up to date. */
void sim_work_settle(struct sim_program *program);

/* client.c */
void sim_client_init(struct sim_program *program);
void sim_client_target(struct sim_program *program, const struct gs_wire_target *target);

/* It is on another card, or stayed after all. */
void sim_client_moved(struct sim_program *program);

/* move.c */
void sim_move_init(struct sim_world *world);
void sim_move_program(struct sim_program *program);
void sim_move_connected(struct sim_program *program);
void sim_move_disconnected(struct sim_program *program);
/* It may have nothing left on its card. */
void sim_move_suspended(struct sim_program *program);

/* unified.c */
void sim_unified_init(struct sim_card *card);
void sim_unified_program(struct sim_program *program);
/* How fast everybody computes who does; used for the way without a lock. */
double sim_unified_speed(const struct sim_card *card, double speed);

double sim_random(uint64_t *state); /* 0 <= x < 1 */
/* number: of the draw, for values that come one after the other */
uint64_t sim_draw(const struct sim_spread *spread, uint64_t *random, uint64_t number);
