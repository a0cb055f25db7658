/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.h: sends targets of the scheduler to programs.
 */
#ifndef GS_LOCKD_SERVER_TARGETS_H
#define GS_LOCKD_SERVER_TARGETS_H

struct lockd_server;

/* Sends all targets that the scheduler has issued. To be called after each event that was passed
 * to the scheduler (lockd/sched/scheduler.h). */
void lockd_targets_send(struct lockd_server *server);

#endif
