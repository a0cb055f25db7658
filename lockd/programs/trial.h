/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.h: helps a program that makes no progress while programs that share a hint with it wait for
 * other devices. The program may wait for their work: combinations of them are tried as one gang,
 * one after the other, each for a limited time. The combination that helps stays a gang.
 */
#pragma once

#include "lockd/programs/kin.h"

/* Looks for hangs, begins and ends trials. Returns when to look again; LOCKD_NEVER: there is
 * nothing to look at. */
uint64_t kin_tend(struct kin *kin, uint64_t now_ns);
