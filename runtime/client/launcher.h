/* SPDX-License-Identifier: Apache-2.0
 *
 * launcher.h: what the environment and the process tree say of the job that this process is a
 * rank of.
 */
#ifndef GS_RUNTIME_CLIENT_LAUNCHER_H
#define GS_RUNTIME_CLIENT_LAUNCHER_H

#include <stdint.h>

struct gs_evidence {
    uint64_t key;
    uint32_t kind;  /* enum gs_kin_kind */
    uint32_t ranks; /* of the job on this machine; 0: not known */
};

#define GS_LAUNCHER_MOST 6

/* Reads the environment as it is now (Python sets variables after the start), by getenv(): to be
 * called by a thread of the program that has just called the driver. Returns how many keys. */
unsigned gs_launcher_read(struct gs_evidence keys[GS_LAUNCHER_MOST]);

/* A key of some bytes; begin with hash 0. */
uint64_t gs_evidence_hash(uint64_t hash, const void *bytes, unsigned long size);

#endif
