/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h: the messages between a program's runtime library, gpusharectl and gpushare-lockd.
 *
 * One SOCK_SEQPACKET connection per process; every message is one fixed-size struct that starts with gs_wire_header. Host
 * byte order (both ends are on one machine). All text fields are NUL-terminated inside their size.
 *
 * The protocol is level-triggered. The daemon keeps, per (connection, device), a *target*: may it run, and how many bytes
 * of device memory may it hold. The client works towards the newest target and reports its *state*, echoing the number of
 * the target that it has taken over. Nothing is a question with an answer that could get lost: whoever connects anew sends
 * its full state and gets a full target.
 *
 * Promises of the client
 *   - resident never grows beyond the budget of the newest target it has seen;
 *   - a target with RUN off: it closes its gate, lets submitted work finish, then reports RUNNING off; only then does it
 *     start moving memory out;
 *   - a target with a lower budget: it evicts down to it (when not running) and reports resident as it falls, at least
 *     every 256 MiB;
 *   - it runs only when the target says RUN and everything it has is resident (resident == demand).
 * Promises of the daemon
 *   - the sum over clients of max(resident, newest budget, budgets not yet echoed) never exceeds the capacity, as far as the
 *     clients' own demand does not (a budget for bytes that another client still holds is given only as those bytes leave);
 *   - the budget of a client with RUN is at least its demand;
 *   - a client that wants to run and whose demand is <= capacity gets RUN in bounded time.
 */
#ifndef GS_LOCKD_WIRE_H
#define GS_LOCKD_WIRE_H

#include <stdint.h>

#define GS_WIRE_MAGIC   0x48535047u /* "GPSH" */
#define GS_WIRE_VERSION 1

enum gs_wire_type {
    GS_WIRE_HELLO = 1,  /* client -> daemon, first message of a program */
    GS_WIRE_STATE = 2,  /* client -> daemon, one device; the first one for a device registers it */
    GS_WIRE_NOTE = 3,   /* client -> daemon, a remark for gpusharectl status; also without HELLO, for a last word */
    GS_WIRE_TARGET = 4, /* daemon -> client, one device */
    /* 16 and above: gpusharectl, see below */
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
    int32_t pid;        /* as the program sees itself; the daemon trusts SO_PEERCRED first */
    uint32_t reserved;
    char name[32];      /* program_invocation_short_name */
    char version[16];   /* of the runtime library */
};

/* flags of gs_wire_state */
#define GS_STATE_RUNNING 0x01u /* the gate is open (or work submitted through it is still unfinished) */
#define GS_STATE_WANT    0x02u /* it has something to run: a thread waits at the gate, or it runs and is not idle */
#define GS_STATE_MOVING  0x04u /* copying in or out: resident is about to change */
#define GS_STATE_STUCK   0x08u /* asked to stop, but submitted work does not finish; the gate was opened again */
#define GS_STATE_SHORT   0x10u /* the driver had no memory although the budget allowed it: short_bytes were missing */
#define GS_STATE_PARTIAL 0x20u /* not everything this program does on the GPU is covered (see its notes) */

struct gs_wire_state {
    struct gs_wire_header header;
    uint8_t uuid[16];      /* of the device, as cuDeviceGetUuid gives it */
    uint32_t target_seq;   /* newest target taken over; 0 before the first */
    uint32_t flags;        /* GS_STATE_* */
    uint64_t device_total; /* bytes: physical memory of the device, or GPUSHARE_DEVICE_LIMIT where that is lower */
    uint64_t device_free;  /* bytes the driver calls free at this moment; UINT64_MAX: not measured */
    uint64_t demand;       /* bytes of movable memory the program has, wherever they are */
    uint64_t resident;     /* ... of these, on the device now; holes of page rounding included */
    uint64_t short_bytes;  /* with GS_STATE_SHORT */
    uint64_t moved_out;    /* bytes copied to the host since it started */
    uint64_t moved_in;     /* bytes copied back */
    uint64_t calls;        /* gated calls since it started (approximate) */
    uint64_t switch_ns;    /* duration of its last switch (out, or in), 0 before the first */
    char device_name[64];
};

#define GS_NOTE_UNROUTED 1 /* patched, used CUDA, but nothing was routed */
#define GS_NOTE_NEWER    2 /* a driver function in a newer ABI than this library knows passed through ungated */
#define GS_NOTE_OTHER    3

struct gs_wire_note {
    struct gs_wire_header header;
    int32_t pid;
    uint32_t kind;
    char name[32];
    char text[192];
};

/* flags of gs_wire_target */
#define GS_TARGET_RUN     0x01u /* may run */
#define GS_TARGET_WAITERS 0x02u /* others wait for this device: bound unfinished work, give back when idle */
#define GS_TARGET_PAUSED  0x04u /* not running because somebody paused it */

struct gs_wire_target {
    struct gs_wire_header header;
    uint8_t uuid[16];
    uint32_t seq;      /* rises by one with every target sent for this (connection, device); from 1 */
    uint32_t flags;    /* GS_TARGET_* */
    uint64_t budget;   /* bytes it may hold on the device; >= demand with RUN, plus what is spare */
    uint64_t capacity; /* the most that any one program can ever get here: cuMemGetInfo's and out-of-memory's truth */
    uint64_t idle_ns;  /* with WAITERS: report WANT off after this long without a gated call or a waiting sync; 0 never */
};

_Static_assert(sizeof(struct gs_wire_header) == 16, "wire");
_Static_assert(sizeof(struct gs_wire_hello) == 72, "wire");
_Static_assert(sizeof(struct gs_wire_state) == 176, "wire");
_Static_assert(sizeof(struct gs_wire_note) == 248, "wire");
_Static_assert(sizeof(struct gs_wire_target) == 64, "wire");

#endif
