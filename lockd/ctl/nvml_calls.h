/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_calls.h: the child process that calls NVML, and the messages between it and its starter
 * (nvml.c): first the child tells whether NVML works (a uint32_t of 1 or 0; after 0 it ends), then
 * each question gets one answer.
 */
#ifndef GS_LOCKD_CTL_NVML_CALLS_H
#define GS_LOCKD_CTL_NVML_CALLS_H

#include "lockd/protocol/names.h"

#include <stdint.h>
#include <sys/types.h>

#define NVML_DEVICES_MAX 64u
#define NVML_SAMPLES_MAX 4096u

/* A question. With devices: how busy they are, each answered by one nvml_device_answer. Without:
 * the UUID of the device `index`, answered by one nvml_uuid_answer. */
struct nvml_question {
    uint32_t index, device_count;
    char uuid[NVML_DEVICES_MAX][LOCKD_UUID_SIZE];
};

struct nvml_device_answer {
    int32_t busy;    /* per cent; -1: not known */
    int32_t samples; /* the number that follows; -1: NVML has none */
};

struct nvml_sample { /* of one process, as NVML lays it out */
    unsigned pid;
    unsigned long long time_us; /* since 1970 */
    unsigned gpu, memory, encoder, decoder;
};

struct nvml_uuid_answer {
    uint32_t found;
    char uuid[LOCKD_UUID_SIZE];
};

/* Runs in the child: answers questions from fd, a stream socket, until its end. */
void nvml_child_run(int fd, pid_t starter) __attribute__((noreturn));

#endif
