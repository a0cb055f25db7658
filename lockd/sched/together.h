/* SPDX-License-Identifier: Apache-2.0
 *
 * together.h: the programs of a gang stop together or not at all.
 */
#ifndef GS_LOCKD_SCHED_TOGETHER_H
#define GS_LOCKD_SCHED_TOGETHER_H

#include "lockd/sched/state.h"

/* The gang's turn is to end, for the sake of that device. Returns whether it can end now: all of
 * its programs have stopped, or there is nothing to wait for. Otherwise they have been asked to,
 * and it is to be called again with the next plan of that device. */
bool sched_together_stop(struct sched_gang *gang, struct sched_device *by, uint64_t now);
/* Before and after a plan: turns that need not end any more go on. */
void sched_together_begin_plan(struct sched_device *device);
void sched_together_end_plan(struct sched_device *device);
/* Its turn has ended, begins, or goes on. */
void sched_together_forget(struct sched_gang *gang);
/* A program of the gang has said something. */
void sched_together_heard(const struct sched_gang *gang);

#endif
