/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_calls.h: the child process that calls NVML, and the messages between it and its starter
 * (nvml.c): first the child tells whether NVML works (a uint32_t of 1 or 0; after 0 it ends), then
 * each question, of one byte, gets one answer: a struct nvml_answer, the GPUs, the processes.
 */
#pragma once

#include "lockd/nvml/nvml.h"

struct nvml_answer {
    uint32_t gpu_count;     /* at most NVML_GPUS_MAX */
    uint32_t process_count; /* at most NVML_PROCESSES_MAX */
};

/* Runs in the child: answers questions from fd, a stream socket, until its end. */
void nvml_child_run(int fd, pid_t starter) __attribute__((noreturn));
