/* SPDX-License-Identifier: Apache-2.0
 *
 * standin.h: reports to the scheduler in place of a checkpointed program, which cannot report
 * itself (checkpoint.h).
 */
#ifndef GS_LOCKD_SERVER_STANDIN_H
#define GS_LOCKD_SERVER_STANDIN_H

#include "lockd/protocol/wire.h"
#include "lockd/sched/scheduler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lockd_connection;

/* One device of a checkpointed program: its memory at the checkpoint, and the newest target
 * since then. */
struct lockd_standin_device {
    struct gs_wire_state state;   /* the last report */
    struct gs_wire_target target; /* seq 0: there was none */
    bool may_run;                 /* as the newest target says */
    uint64_t budget;              /* as the newest target says */
    uint64_t movable, resident, pinned;
    bool unanswered;
};

struct lockd_standin {
    struct lockd_connection *connection;
    size_t count; /* 0 before lockd_standin_record() */
    struct lockd_standin_device device[LOCKD_DEVICES_PER_CLIENT];
};

/* The program has been checkpointed: records the memory that it had on each device. */
void lockd_standin_record(struct lockd_standin *standin, uint64_t now);
/* Repeats the last report of every device. */
void lockd_standin_report(struct lockd_standin *standin, uint64_t now);
/* Reports that all memory is off the devices. */
void lockd_standin_report_out(struct lockd_standin *standin, uint64_t now);
/* Reports the same, and that there was no room for a restore. */
void lockd_standin_report_short(struct lockd_standin *standin, uint64_t now);
/* Reports that more of the memory has come back. */
void lockd_standin_report_more(struct lockd_standin *standin, uint64_t now);
/* Reports that all memory is back and the program runs, and sends it its newest targets. */
void lockd_standin_report_back(struct lockd_standin *standin, uint64_t now);
/* Keeps a target for the program until it is back. */
void lockd_standin_target(struct lockd_standin *standin, const struct gs_wire_target *target);
/* Reports for the devices that got such a target since the last report. True if there were any. */
bool lockd_standin_answer(struct lockd_standin *standin);
/* Whether the program may run and there is room for all memory that it had on the devices. */
bool lockd_standin_may_return(const struct lockd_standin *standin);

#endif
