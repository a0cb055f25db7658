/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h: the messages between a program's runtime library, gpusharectl and gpushare-lockd.
 *
 * One SOCK_SEQPACKET connection per process; every message is one fixed-size struct that starts
 * with gs_wire_header. Host byte order (both ends are on one machine). All text fields are
 * NUL-terminated inside their size.
 *
 * The protocol is level-triggered. The daemon keeps a *target* for each connection and device:
 * whether the program may run, and how many bytes of device memory it may hold. The client works
 * towards the newest target and reports its *state*, echoing the number of the target that it has
 * taken over. No message asks for an answer that could get lost: a client that connects anew sends
 * its full state and gets a full target.
 *
 * Promises of the client
 *   - Resident never grows beyond the budget of the newest target that it has seen, and not at all
 *     while a message is unread.
 *   - After a target with RUN off it closes its gate, lets submitted work finish and reports
 *     RUNNING off. Only then does it start to move memory out.
 *   - After a target with a lower budget it evicts down to that (when it does not run) and reports
 *     resident as it falls, at least every 64 MiB.
 *   - It runs only when the target says RUN and all its memory is resident (resident == demand).
 *
 * Promises of the daemon
 *   - The sum over clients of max(resident, newest budget, budgets not yet echoed) never exceeds
 *     the capacity, as far as the clients' own demand does not. (Of a client that has read nothing
 *     for a second only resident counts, where others lack memory. A budget for bytes that another
 *     client still holds is given only as those bytes leave.)
 *   - The budget of a client with RUN is at least its demand, or becomes so step by step as others
 *     make room. (Its turn begins with RUN; it brings in what the budget allows and opens its gate
 *     when everything is there.)
 *   - A client that wants to run and whose demand is at most the capacity gets RUN in bounded time.
 */
#pragma once

#include <stdint.h>

#define GS_WIRE_MAGIC   0x48535047u /* "GPSH" */
#define GS_WIRE_VERSION 9

/* Bounds of what a program or gpusharectl may ask for. */
#define GS_WEIGHT_DEFAULT 100
#define GS_WEIGHT_MAX     10000
#define GS_PRIORITY_MAX   100 /* and as far below 0 */

enum gs_wire_type {
    /* between a program and the daemon */
    GS_WIRE_HELLO = 1,  /* to the daemon: the first message of a program */
    GS_WIRE_STATE = 2,  /* to the daemon: one device; the first one registers it */
    GS_WIRE_NOTE = 3,   /* to the daemon: a remark for gpusharectl status; needs no HELLO */
    GS_WIRE_TARGET = 4, /* to the program: one device */
    GS_WIRE_WISH = 5,   /* to the daemon: the program's own wish; after HELLO */
    GS_WIRE_KIN = 11,   /* to the daemon: keys that programs of one job share; after HELLO */
    GS_WIRE_OPEN = 8,   /* either way: asks for memory that another program has exported */
    GS_WIRE_SHARE = 9,  /* either way: that memory, or the reason for a refusal */
    GS_WIRE_SEES = 12,  /* to the daemon: a device to which it could be moved; after HELLO */
    GS_WIRE_MOVE = 13,  /* either way: the steps of a move to another device; after HELLO */
    GS_WIRE_COPY = 14,  /* either way: contents that programs of a user may have in common */

    /* from gpusharectl; every answer ends with one END */
    GS_WIRE_STATUS = 16,   /* a header; answered by DAEMON, DEVICEs, CLIENTs, TOTALS, REMARKs */
    GS_WIRE_CONTROL = 17,  /* answered by END alone */
    GS_WIRE_TRACE = 23,    /* answered by EVENTs from now on, until its time is over */
    GS_WIRE_GET = 25,      /* answered by a SETTING for each row */
    GS_WIRE_ACCOUNT = 28,  /* answered by one ACCOUNT, where there is such a group */
    GS_WIRE_RELOCATE = 29, /* answered by END alone, when the move is over */

    /* to gpusharectl */
    GS_WIRE_DAEMON = 18,
    GS_WIRE_DEVICE = 19,
    GS_WIRE_CLIENT = 20,
    GS_WIRE_REMARK = 21,
    GS_WIRE_END = 22,
    GS_WIRE_EVENT = 24,
    GS_WIRE_SETTING = 26,
    GS_WIRE_TOTALS = 27,
};

struct gs_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;   /* enum gs_wire_type */
    uint32_t length; /* of the whole message, bytes */
    uint32_t zero;
};

struct gs_wire_hello {
    struct gs_wire_header header;
    int32_t pid;      /* as the program sees itself; the daemon trusts SO_PEERCRED first */
    uint32_t weight;  /* its share against others; 1 to GS_WEIGHT_MAX, 0: GS_WEIGHT_DEFAULT */
    int32_t priority; /* with the policy `priority`; higher goes first, 0 is ordinary */
    uint32_t class;   /* enum gs_wire_class; that it asks for */
    char name[32];    /* GPUSHARE_NAME, or program_invocation_short_name */
    char version[16]; /* of the runtime library */
    char group[32];   /* GPUSHARE_GROUP: programs with the same are a gang; "": none */
};

/* Flags of gs_wire_state. RUNNING: the gate is open, or work submitted through it is unfinished.
 * WANT: a thread waits at the gate, or the program runs and is not idle. MOVING: it copies in or
 * out, so resident is about to change. STUCK: it was asked to stop and submitted work does not
 * finish, so the gate was opened again. SHORT: the driver lacked short_bytes although the budget
 * allowed them. PARTIAL: some calls of the program go past gpushare (its notes say which), so
 * nothing of it moves: all that is on the device is pinned, and demand is what has to come back. */
#define GS_STATE_RUNNING 0x01u
#define GS_STATE_WANT    0x02u
#define GS_STATE_MOVING  0x04u
#define GS_STATE_STUCK   0x08u
#define GS_STATE_SHORT   0x10u
#define GS_STATE_PARTIAL 0x20u
#define GS_STATE_ALL     0x3fu

#define GS_GIVEN_MOST 16 /* descriptors with one message */

/* Bytes that did not have to be copied since the program started. */
struct gs_wire_saved {
    uint64_t equal;     /* in: memory that was handed over held them already */
    uint64_t zero;      /* out and in: zeros, and contents that the program has given up */
    uint64_t unchanged; /* out: the host has them */
};

struct gs_wire_state {
    struct gs_wire_header header;
    uint8_t uuid[16];      /* of the device, as cuDeviceGetUuid gives it */
    uint32_t target_seq;   /* newest target taken over; 0 before the first */
    uint32_t flags;        /* GS_STATE_* */
    uint64_t device_total; /* bytes of the device, or GPUSHARE_DEVICE_LIMIT if that is lower */
    uint64_t device_free;  /* bytes that the driver calls free; UINT64_MAX: not measured */
    uint64_t demand;       /* bytes of movable memory that the program has, wherever they are */
    uint64_t resident;     /* bytes of demand that are on the device, page rounding included */
    uint64_t short_bytes;  /* with GS_STATE_SHORT */
    uint64_t moved_out;    /* bytes copied to the host since it started */
    uint64_t moved_in;     /* bytes copied back */
    uint64_t calls;        /* gated calls since it started (approximate) */
    uint64_t switch_ns;    /* duration of its last switch (out, or in), 0 before the first */
    uint64_t pinned;       /* bytes known to be there that cannot move; not in demand */
    uint64_t host_used;    /* bytes of host memory for movable memory, of all devices */
    uint64_t host_wanted;  /* bytes of host memory that it would have without a limit */
    /* Pieces of device memory that have left it and are not released; their descriptors come with
     * this message, in this order, and resident does not count them. */
    uint64_t given_bytes[GS_GIVEN_MOST]; /* bytes of each; 0 for the rest */
    uint32_t given;                      /* how many */
    uint32_t given_network;              /* a bit for each: network cards can reach it */
    char device_name[64];
    uint64_t shared;        /* bytes of pinned that other processes have open (CUDA IPC) */
    uint64_t pinned_graphs; /* bytes of pinned: memory of graphs */
    uint64_t pinned_arrays; /* bytes of pinned: arrays, which textures and surfaces use */
    /* Bytes beyond the card, in host memory that the device reaches; in host_used, not in
     * demand. */
    uint64_t over;
    /* Bytes of resident that cannot leave, since the program's own limits (RLIMIT_DATA, RLIMIT_AS)
     * leave no host memory for them. */
    uint64_t stays;
    uint64_t loose; /* managed memory that nothing counts: any of it may be on the device */
    struct gs_wire_saved saved;
    uint64_t asked; /* number of its newest question for more room; all figures are newer */
};

/* Kinds of note. UNROUTED: the program is patched and used CUDA, but nothing was routed. NEWER: a
 * driver function in a newer ABI than this library knows passed through ungated. */
#define GS_NOTE_UNROUTED 1
#define GS_NOTE_NEWER    2
#define GS_NOTE_OTHER    3

struct gs_wire_note {
    struct gs_wire_header header;
    int32_t pid;
    uint32_t kind;
    char name[32], text[192];
};

/* The reason why programs are one gang, and the meaning of a key. Programs of one identity
 * (user, user namespace, container) that send the same key of one of the first kinds are one
 * gang. The hints count only once a program makes no progress. */
enum gs_kin_kind {
    GS_KIN_NONE = 0,
    GS_KIN_GROUP = 1,  /* never sent: GPUSHARE_GROUP */
    GS_KIN_MASTER = 2, /* MASTER_ADDR and MASTER_PORT of more than one rank */
    GS_KIN_ELASTIC = 3,
    GS_KIN_MPI = 4,
    GS_KIN_SLURM = 5,
    GS_KIN_NCCL = 6,
    GS_KIN_MEMORY = 7, /* device memory of one process that another has mapped */
    GS_KIN_TRIED = 8,  /* never sent: running together ended a hang */
    /* hints */
    GS_KIN_SHARED = 16, /* host memory that both have mapped */
    GS_KIN_PARENT = 17,
    GS_KIN_SESSION = 18,
};
#define GS_KIN_SENT_FIRST GS_KIN_MASTER
#define GS_KIN_SENT_LAST  GS_KIN_MEMORY
#define GS_KIN_HINT_FIRST GS_KIN_SHARED
#define GS_KIN_HINT_LAST  GS_KIN_SESSION
#define GS_KIN_MOST       32 /* keys of one program; the daemon ignores more */
#define GS_KIN_RANKS_MOST 65536

#define GS_KIN_OVER 0x1u /* the program takes this key back */

struct gs_wire_kin {
    struct gs_wire_header header;
    uint64_t key;   /* a hash; the same in every program of the job */
    uint16_t kind;  /* enum gs_kin_kind */
    uint16_t flags; /* GS_KIN_OVER or 0 */
    uint32_t ranks; /* of the job on this machine; 0: not known */
};

/* Flags of gs_wire_wish. CLASS: class_number is the program's wish. SUSPEND: the program is to be
 * suspended by its own wish; without the flag, that is over. */
#define GS_WISH_CLASS   0x1u
#define GS_WISH_SUSPEND 0x2u
#define GS_WISH_ALL     0x3u

struct gs_wire_wish { /* a complete wish: the newest replaces those before */
    struct gs_wire_header header;
    uint32_t flags;        /* GS_WISH_* */
    uint32_t class_number; /* enum gs_wire_class; 0 without GS_WISH_CLASS */
};

/* Flags of gs_wire_target. RUN: the program may run. WAITERS: others wait for this device, so it
 * bounds unfinished work and stops when idle. PAUSED: somebody paused it. SOLE: no other program
 * is known on this device, so no other program can make room. GIVE: memory that leaves may be
 * handed over to others. BEYOND: what the program lacks cannot come before it runs on: it puts that
 * into host memory that the device reaches, until its turn ends. FULL: its demand has no room: others
 * have memory that cannot leave. It waits for a bounded time. */
#define GS_TARGET_RUN     0x01u
#define GS_TARGET_WAITERS 0x02u
#define GS_TARGET_PAUSED  0x04u
#define GS_TARGET_SOLE    0x08u
#define GS_TARGET_GIVE    0x10u
#define GS_TARGET_BEYOND  0x20u
#define GS_TARGET_FULL    0x40u

struct gs_wire_target {
    struct gs_wire_header header;
    uint8_t uuid[16];
    uint32_t seq;      /* from 1; rises with every target for this connection and device */
    uint32_t flags;    /* GS_TARGET_* */
    uint64_t budget;   /* bytes it may hold on the device; with RUN at least demand, or more */
    uint64_t capacity; /* bytes: the most that one program can ever get here, for cuMemGetInfo
                        * and out-of-memory errors */
    /* Report WANT off after so long without a gated call or a waiting sync, even without
     * WAITERS; 0: never. Not 0 with WAITERS. */
    uint64_t idle_ns;
    /* Bytes of host memory for movable memory of all devices; UINT64_MAX: no limit. If it is below
     * host_used, host copies of memory on a device are dropped as well. */
    uint64_t host_budget;
    uint64_t shortfall; /* bytes by which the demand of all programs on this device exceeds its
                         * capacity; 0: everything fits. Sent with other news */
    /* Pieces of device memory that another program had; their descriptors come with this
     * message. They are part of the budget's rise, and still hold that program's bytes. */
    uint64_t handed_bytes[GS_GIVEN_MOST]; /* bytes of each, in their order; 0 for the rest */
    uint32_t handed;                      /* how many */
    uint32_t handed_network;              /* a bit for each: network cards can reach it */
    uint64_t answered; /* the newest question: nothing that is known says that there is more */
    uint64_t overcommit; /* bytes that the program may have beyond the card, unless it sets that
                          * itself; UINT64_MAX: the library decides */
};

/* Memory of one program that another one opens (CUDA IPC). The opener sends OPEN with the
 * contents of the exporter's handle. The daemon passes it on to that exporter, under a number of
 * its own. The exporter answers with SHAREs, which the daemon passes on to the opener. */
struct gs_wire_open {
    struct gs_wire_header header;
    uint8_t token[16]; /* random; only processes that were given the handle know it */
    int32_t pid;       /* of the exporter, as it sees itself: a hint, no proof */
    uint32_t number;   /* chosen by the sender; the answer has the same number */
};

struct gs_wire_share {
    struct gs_wire_header header;
    uint8_t uuid[16]; /* of the device */
    uint32_t number;
    int32_t code;         /* 0; or a negative errno: there is no memory */
    uint64_t bytes;       /* of all chunks together */
    uint64_t chunk_bytes; /* of each chunk but the last */
    uint64_t offset; /* bytes from the start of the first chunk to that of the allocation */
    uint64_t size;   /* bytes of the allocation */
    uint32_t first;  /* the chunk of the first descriptor */
    uint32_t count;  /* descriptors of chunks with this message, at most GS_SHARE_MOST. With
                      * first = 0 another one follows them: to be kept open as long as the
                      * memory is in use */
};

#define GS_SHARE_MOST 15

/* Contents of moved memory that other programs probably have as well. A program offers them: with
 * the message comes one descriptor, of memory of memfd_create(2) with these contents, which is
 * sealed, so that nobody can change it. The daemon numbers the offer and passes it on to all programs
 * of the same identity to which memory may be handed over, the sender included, so that all hear the
 * offers in one order. A program that has taken an offer says so, without a descriptor, and the first
 * such word is passed on to the sender of the offer. The daemon may leave some programs out, and
 * leaves out offers beyond the rate that a user has. */
struct gs_wire_copy {
    struct gs_wire_header header;
    uint64_t bytes;  /* at most GS_COPY_MOST */
    uint64_t number; /* of the offer, rising; to the daemon 0: this is an offer */
    uint32_t own;    /* to the program: 1: its own offer */
    uint32_t zero;
};

#define GS_COPY_MOST (128ull << 20)

/* A device that the program sees, whether it uses it or not. One message for each, before the first
 * STATE, and again after a move. */
struct gs_wire_sees {
    struct gs_wire_header header;
    uint8_t uuid[16];
    uint64_t total; /* bytes */
    uint32_t index; /* its place in the program's own order, below count */
    uint32_t count; /* of all devices that it sees, at most GS_SEES_MOST */
    char name[64];
};

#define GS_SEES_MOST 64

/* The steps of a move. The daemon asks ASK, then (the program is paused and its memory is leaving)
 * STOP, then sends OVER; the program answers the first two with the same step and a code. A program
 * that lost its daemon between STOP and OVER tells the next one LEFT. The daemon answers with LEFT,
 * and the program says it once more: a daemon that has asked for nothing takes no descriptors. With
 * the answers to STOP and to LEFT comes one: the record of the move
 * (lockd/protocol/move_record.h). */
enum gs_move_step {
    GS_MOVE_ASK = 1,  /* may it change devices? From now on it exports no memory */
    GS_MOVE_STOP = 2, /* answered when its memory has left and the library calls no driver */
    GS_MOVE_OVER = 3, /* code 0: it is on the other device now; else it is where it was */
    GS_MOVE_LEFT = 4,
};

struct gs_wire_move {
    struct gs_wire_header header;
    uint8_t from[16], to[16]; /* UUIDs of devices */
    uint32_t number;          /* of the move; the answer has it */
    uint32_t step;            /* enum gs_move_step */
    int32_t code;             /* 0, or a negative errno */
    uint32_t zero;
    uint64_t pinned; /* LEFT: bytes that go with it although they cannot leave the device by
                      * themselves */
    char text[160];  /* with a code: why not */
};

struct gs_wire_relocate { /* gpusharectl move */
    struct gs_wire_header header;
    uint8_t uuid[16]; /* of the device that it is to be moved to */
    int32_t pid;
    uint32_t zero;
};

/* Operations on one program, or on all. The other operations change a setting: settings.def has
 * their numbers. The value is in the unit of that row (a signed value as int64_t); UINT64_MAX:
 * automatic, no limit. */
enum gs_control_op {
    GS_CONTROL_PAUSE = 4,    /* pid; 0: all programs */
    GS_CONTROL_RESUME = 5,   /* pid; 0: all programs */
    GS_CONTROL_EVICT = 15,   /* pid; 0: all programs: stop it and move all its memory out now */
    GS_CONTROL_SUSPEND = 16, /* pid: pause, and move all its memory out */
    GS_CONTROL_RELOAD = 17,  /* read the configuration files again */
};

/* The rule that chooses the program whose turn is next. */
enum gs_policy {
    GS_POLICY_FAIR = 0,     /* the program with the least use of the device for its weight */
    GS_POLICY_FIFO = 1,     /* the program that came first, for as long as it has work */
    GS_POLICY_RR = 2,       /* each in turn */
    GS_POLICY_PRIORITY = 3, /* the highest priority, in turn among equals */
};
#define GS_POLICY_COUNT 4

/* The class of a program, for the policy `fair`. Background programs wait for all others with
 * any policy. */
enum gs_wire_class {
    GS_CLASS_AUTO = 0,        /* it goes first while it is young */
    GS_CLASS_INTERACTIVE = 1, /* served at once, within its share */
    GS_CLASS_BATCH = 2,       /* takes its turns */
    GS_CLASS_BACKGROUND = 3,  /* runs only while no other program wants the device */
};
#define GS_CLASS_COUNT 4

struct gs_wire_control {
    struct gs_wire_header header;
    uint32_t op; /* enum gs_control_op */
    int32_t pid;
    uint64_t value;
};

/* The figures of the next three are the rows of figures.def: sizes in bytes, times in nanoseconds;
 * UINT64_MAX: automatic, none or never. */
struct gs_wire_daemon {
    struct gs_wire_header header;
    int32_t pid;
    uint32_t policy; /* enum gs_policy */
#define GS_DAEMON_FIGURE(field, unit, json, metric, help) uint64_t field;
#include "lockd/protocol/figures.def"
    char version[16];
};

struct gs_wire_device {
    struct gs_wire_header header;
    uint8_t uuid[16];
#define GS_DEVICE_FIGURE(field, unit, json, metric, help) uint64_t field;
#include "lockd/protocol/figures.def"
    char name[64];
};

/* A histogram of durations: for each bound, the number that were at most as long and longer than
 * the bound before; last, the number that were longer than all bounds. */
enum {
#define GS_HISTOGRAM_BUCKET(ns, seconds) GS_BUCKET_TO_##ns,
#include "lockd/protocol/figures.def"
    GS_HISTOGRAM_BOUNDS
};

struct gs_wire_histogram {
    uint64_t count[GS_HISTOGRAM_BOUNDS + 1];
    uint64_t sum_ns;
};

/* Sums over all programs of a device since the daemon started, including ended programs; also of
 * devices that no program uses now. */
struct gs_wire_totals {
    struct gs_wire_header header;
    uint8_t uuid[16];
#define GS_TOTAL_FIGURE(field, unit, json, metric, help) uint64_t field;
#include "lockd/protocol/figures.def"
#define GS_HISTOGRAM(field, json, metric, help) struct gs_wire_histogram field;
#include "lockd/protocol/figures.def"
    char name[64]; /* of the device */
};

enum gs_condition {
    GS_CONDITION_RUNS = 0,         /* its gate is open */
    GS_CONDITION_WAITS = 1,        /* it has work and no lease */
    GS_CONDITION_IDLE = 2,         /* it has nothing to run */
    GS_CONDITION_MOVING = 3,       /* it has the lease; its memory comes in, or room is made */
    GS_CONDITION_STOPPING = 4,     /* it was asked to stop and has not yet */
    GS_CONDITION_STUCK = 5,        /* it does not stop, or keeps memory that it may not have */
    GS_CONDITION_PAUSED = 6,       /* by gpusharectl */
    GS_CONDITION_DOES_NOT_FIT = 7, /* it needs more than the device can ever give */
    GS_CONDITION_NO_DEVICE = 8,    /* it has not used a device yet; the other figures are 0 */
    GS_CONDITION_STOPPED = 9,      /* its process is stopped by a signal (Ctrl-Z) */
    GS_CONDITION_TRACED = 10,      /* ... by a debugger */
    GS_CONDITION_FROZEN = 11,      /* ... with its control group (docker pause) */
};
#define GS_CONDITION_COUNT 12

/* Why a program waits. */
enum gs_why {
    GS_WHY_NONE = 0,       /* it does not wait */
    GS_WHY_TURN = 1,       /* it comes next; the turn of another program is not over */
    GS_WHY_GOES_FIRST = 2, /* it comes next; the other one goes first */
    GS_WHY_FLOOR = 3,      /* it is served first, but not before the others had their floor */
    GS_WHY_STOPS = 4,      /* another program was asked to stop, and has not yet */
    GS_WHY_QUEUE = 5,      /* other programs come before it */
    GS_WHY_ELSEWHERE = 6,  /* it waits for its turn on another device first */
    GS_WHY_FORMS = 7, /* it is one of several programs that start together, one job a time */
    GS_WHY_TOO_LARGE = 8, /* it needs more than there is, or gives way for a while */
    GS_WHY_MEMORY = 9,    /* it has its turn, and its memory is on the way */
    GS_WHY_SILENT = 10,   /* it has not answered, and gets no turn before it does */
};
#define GS_WHY_COUNT 11

/* Flags of gs_wire_client. LEASE: its newest target says RUN. SKIPPED: its last turn ended
 * before it ran. PARTIAL: as GS_STATE_PARTIAL. FOREIGN: the process id is the program's own
 * claim (another pid namespace). PAUSED: by gpusharectl; it may not have stopped yet.
 * APART: the programs of its group do not fit on the device together. */
#define GS_CLIENT_LEASE   0x01u
#define GS_CLIENT_SKIPPED 0x02u
#define GS_CLIENT_PARTIAL 0x04u
#define GS_CLIENT_FOREIGN 0x08u
#define GS_CLIENT_PAUSED  0x10u
#define GS_CLIENT_APART   0x40u

struct gs_wire_client { /* one program on one device */
    struct gs_wire_header header;
    uint8_t uuid[16];
    int32_t pid;
    uint32_t uid;
    uint32_t condition; /* enum gs_condition */
    uint32_t flags;     /* GS_CLIENT_* */
    int32_t priority;
    uint32_t gang_why; /* enum gs_kin_kind: why it is in a gang */
#define GS_PROGRAM_FIGURE(field, unit, json, metric, heading, help) uint64_t field;
#include "lockd/protocol/figures.def"
    char name[32];
    char version[16];
    char group[32];
    char container[80]; /* its id, or its name; "": none, or not known */
    char pod[40];       /* the UID of its Kubernetes pod; "": none, or not known */
};

struct gs_wire_remark { /* a note that some program left */
    struct gs_wire_header header;
    int32_t pid;
    uint32_t kind; /* GS_NOTE_* */
    uint64_t age_ns;
    uint32_t ended; /* 1: the program is no longer connected */
    uint32_t count; /* how often it was said */
    char name[32], text[192];
};

struct gs_wire_trace {
    struct gs_wire_header header;
    uint64_t duration_ns; /* 1 ns to 1 h */
};

/* The phases of a program on a device, for a timeline. */
enum gs_phase {
    GS_PHASE_IDLE = 0,     /* it has nothing to run */
    GS_PHASE_COMPUTE = 1,  /* its gate is open */
    GS_PHASE_STOP = 2,     /* it was asked to stop, and submitted work is finishing */
    GS_PHASE_COPY_OUT = 3, /* its memory is being moved to the host */
    GS_PHASE_COPY_IN = 4,  /* its memory is being brought back */
    GS_PHASE_WAIT = 5,     /* it has work, and it is not its turn or there is no room yet */
    GS_PHASE_PAUSED = 6,   /* by gpusharectl */
};
#define GS_PHASE_COUNT 7

struct gs_wire_event { /* a program on a device began a phase, or moved memory in it */
    struct gs_wire_header header;
    uint8_t uuid[16];
    int32_t pid;
    uint32_t phase;   /* enum gs_phase */
    uint64_t program; /* a number of its own for each connection */
    uint64_t at_ns;   /* CLOCK_MONOTONIC */
    uint64_t demand, resident, moved_out, moved_in, saved; /* bytes */
    uint32_t ended;                                        /* 1: it is gone */
    uint32_t lost; /* events that were dropped before this event, the reader being too slow */
    char name[32];
};

struct gs_wire_get {
    struct gs_wire_header header;
    int32_t pid; /* the settings of the programs with that process id; 0: the daemon's */
    uint32_t zero;
};

/* The sums over the programs of one group, including ended programs. In the request only the group
 * counts, one of the caller's user; everything else is 0. */
struct gs_wire_account {
    struct gs_wire_header header;
    char group[32];
    uint32_t programs;        /* programs that named the group, including ended programs */
    uint32_t connected;       /* of them */
    uint64_t moved_out;       /* bytes, all devices together, as the next */
    uint64_t moved_in;        /* bytes */
    uint64_t gpu_ns;          /* time that they were allowed to run, summed over the programs */
    uint64_t wait_ns;         /* time that they had work and waited, summed over the programs */
    uint64_t wait_longest_ns; /* the longest single wait */
};

struct gs_wire_setting { /* one row of settings.def */
    struct gs_wire_header header;
    char name[32];
    uint64_t value; /* as set, in the unit of the row; UINT64_MAX: auto, never, none */
    /* The value in force; UINT64_MAX: no limit, or it is measured as needed. */
    uint64_t in_force;
    char text[64]; /* of a row that is a text; value is 0 then */
    int32_t pid;   /* of the program; 0: the daemon's */
    uint32_t zero;
    char program[32]; /* its name; "": the daemon's */
};

struct gs_wire_end {
    struct gs_wire_header header;
    int32_t code;   /* 0, or a negative errno */
    uint32_t count; /* messages before this message; programs concerned for PAUSE and RESUME */
    char text[192]; /* with a code: what was wrong */
};

#define GS_SIZE(name, bytes) (sizeof(struct gs_wire_##name) == (bytes))
_Static_assert(GS_SIZE(header, 16) && GS_SIZE(hello, 112) && GS_SIZE(state, 416) &&
                   GS_SIZE(open, 40) && GS_SIZE(share, 80) && GS_SIZE(note, 248) &&
                   GS_SIZE(sees, 112) && GS_SIZE(move, 232) && GS_SIZE(relocate, 40) &&
                   GS_SIZE(kin, 32) && GS_SIZE(target, 232) && GS_SIZE(wish, 24) &&
                   GS_SIZE(control, 32) && GS_SIZE(remark, 264) && GS_SIZE(trace, 24) &&
                   GS_SIZE(event, 136) && GS_SIZE(get, 24) && GS_SIZE(account, 96) &&
                   GS_SIZE(setting, 168) && GS_SIZE(end, 216),
               "wire");
/* no padding, however many figures there are */
#define GS_DAEMON_FIGURE(field, unit, json, metric, help) +8
_Static_assert(sizeof(struct gs_wire_daemon) == 16 + 8 + 16
#include "lockd/protocol/figures.def"
               ,
               "wire");
#define GS_DEVICE_FIGURE(field, unit, json, metric, help) +8
_Static_assert(sizeof(struct gs_wire_device) == 16 + 16 + 64
#include "lockd/protocol/figures.def"
               ,
               "wire");
#define GS_TOTAL_FIGURE(field, unit, json, metric, help) +8
#define GS_HISTOGRAM(field, json, metric, help)          +sizeof(struct gs_wire_histogram)
_Static_assert(sizeof(struct gs_wire_histogram) == (GS_HISTOGRAM_BOUNDS + 2) * sizeof(uint64_t),
               "wire");
_Static_assert(sizeof(struct gs_wire_totals) == 16 + 16 + 64
#include "lockd/protocol/figures.def"
               ,
               "wire");
#define GS_PROGRAM_FIGURE(field, unit, json, metric, heading, help) +8
_Static_assert(sizeof(struct gs_wire_client) == 16 + 16 + 24 + 80 + 120
#include "lockd/protocol/figures.def"
               ,
               "wire");
