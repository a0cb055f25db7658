/* SPDX-License-Identifier: Apache-2.0
 *
 * together.h: the programs of a gang stop together or not at all; gangs that are forming run one at
 * a time.
 */
#pragma once

#include "lockd/sched/state.h"

/* The gang's turn is to end, for the sake of that device. Returns whether it can end now: all of
 * its programs have stopped, or there is nothing to wait for. Otherwise they have been asked to,
 * and it is to be called again with the next plan of that device. */
bool sched_together_stop(struct sched_gang *gang, struct sched_device *by, uint64_t now);
/* After a plan: turns that it did not want to end go on. */
void sched_together_end_plan(struct sched_device *device);
/* Its turn has ended, begins, or goes on. */
void sched_together_forget(struct sched_gang *gang);

/* A program has come to the gang, or to another device; or has said that it is a rank of a job. */
void sched_together_came(struct sched_gang *gang, uint64_t now);
/* The gang is no longer forming. */
void sched_together_formed(struct sched_gang *gang);
/* A program of the gang needs more memory than there is room for. */
void sched_together_outgrew(struct sched_gang *gang, uint64_t now);
/* Decides which of the gangs that are forming may run. Before the plans of devices. */
void sched_together_let_next(struct sched *sched, uint64_t now);
/* Is there a gang on the device whose forming turn others wait for? waits: or that waits itself. */
bool sched_together_is_awaited(const struct sched_device *device, bool waits);
