/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile.h: works towards the daemon's newest targets and reports the state reached. Client
 * thread only, unless marked.
 */
#pragma once

#include "runtime/base/base.h"

/* Does one round: reads targets; stops, moves a step, or opens the gate; reports. Returns ns
 * until the next round is due at the latest; 0: at once. */
uint64_t gs_reconcile(void);

/* The daemon's descriptor, or -1. */
int gs_reconcile_fd(void);

/* Any thread: there is a context, or room is needed for it. Before this call the rounds only
 * look for the daemon: a device is reported together with the memory that the context takes of
 * it. */
void gs_reconcile_begin(void);

/* Any thread: the process ends. */
void gs_reconcile_exiting(void);

void gs_reconcile_after_fork(void);
