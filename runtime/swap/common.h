/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h: host copies that several programs of one user have in common, as one memory.
 * Client thread only.
 */
#pragma once

#include "runtime/base/base.h"
#include "common/packet.h"
#include "lockd/protocol/wire.h"

struct gs_job;

/* A chunk has come in, and its job is about to be settled. */
void gs_common_came(const struct gs_job *job);

/* The daemon has passed on an offer of contents, or the word that an offer was taken. The
 * descriptors stay the caller's. */
void gs_common_heard(const struct gs_wire_copy *copy, const struct gs_descriptors *with);

/* Offers that are too old are dropped. If this thread is idle, one step: makes the host copy of one
 * chunk common, or offers one. It ends early when the daemon has sent something. quiet: as in
 * gs_moving_keep_host(). Returns ns until the next step. */
uint64_t gs_common_step(uint64_t now, bool idle, bool quiet);

/* The next message to the daemon, but for its header; *fd: the descriptor that goes with it, or -1.
 * False: there is nothing to say. */
bool gs_common_say(struct gs_wire_copy *copy, int *fd);
/* It has been sent, or cannot be. */
void gs_common_said(const struct gs_wire_copy *copy);

/* Registered memory of this size through which common memory is copied to the card that is not
 * registered itself. NULL: there is none. With a current context. */
#define GS_COMMON_STAGE (32ull << 20)
char *gs_common_stage(void);
void gs_common_drop_stage(void);

/* The daemon is gone: what was to be said to it is not. */
void gs_common_lost(void);
