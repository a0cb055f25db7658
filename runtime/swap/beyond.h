/* SPDX-License-Identifier: Apache-2.0
 *
 * beyond.h: puts memory that cannot come to the card into host memory at the same addresses: when
 * the daemon says so (GS_TARGET_BEYOND), and brings it back in a later turn; with overcommit, when
 * the card has become too small for what the program has there. Client thread.
 */
#pragma once

#include "runtime/base/base.h"

/* Puts what is missing there, if the gate is closed. Work may still run, unless stopped. True: some
 * of it went, and the next round goes on. */
bool gs_beyond_put(bool closed, bool stopped);

/* Bytes that are to come back to the card, and therefore part of the demand. */
uint64_t gs_beyond_due(const struct gs_device *device, const struct gs_accounts *accounts);

/* Looks whether memory is to come back or to leave now; the program has to stop for that. Returns ns
 * until the next look. */
uint64_t gs_beyond_look(uint64_t now, bool may_run, bool stopped);
bool gs_beyond_needs_stop(void);

/* Brings one chunk back. The gate is closed, and everything submitted has finished. True: there is
 * more. */
bool gs_beyond_step(uint64_t now);

void gs_beyond_after_fork(void);
