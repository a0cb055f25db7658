/* SPDX-License-Identifier: Apache-2.0
 *
 * launcher.h: the job that this process is a rank of, from the environment and the process tree.
 */
#pragma once

#include "runtime/base/base.h"

struct gs_evidence {
    uint64_t key;
    uint32_t kind;  /* enum gs_kin_kind */
    uint32_t ranks; /* of the job on this machine; 0: not known */
};

#define GS_LAUNCHER_MOST 6

/* Reads the present environment (Python sets variables after the start) with getenv(): to be
 * called by a thread of the program that has just called the driver. Returns the number of keys. */
unsigned gs_launcher_read(struct gs_evidence keys[GS_LAUNCHER_MOST]);

/* Hashes bytes into a key; begin with hash 0. */
uint64_t gs_evidence_hash(uint64_t hash, const void *bytes, unsigned long size);

#define GS_PEERS_MOST 16

/* A key for each connection; the process at the other end finds the same key. Returns how many.
 * Reads files of /proc, for some milliseconds. Client thread. */
unsigned gs_peers_read(uint64_t keys[GS_PEERS_MOST]);

/* Calls take() for each line, without its end; take() may change the line. Reads so many bytes at
 * most; a line of more than 4096 bytes is left out. A file that cannot be read has no lines. */
void gs_lines_read(const char *path, size_t most, void (*take)(char *line, void *context),
                   void *context);
