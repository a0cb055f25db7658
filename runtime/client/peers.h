/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.h: processes of this machine that this process has TCP connections with.
 */
#pragma once

#include "runtime/base/base.h"

#define GS_PEERS_MOST 16

/* A key for each connection; the process at the other end finds the same key. Returns how many.
 * Reads files of /proc, for some milliseconds. Client thread. */
unsigned gs_peers_read(uint64_t keys[GS_PEERS_MOST]);
