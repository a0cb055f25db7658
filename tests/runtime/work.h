/* SPDX-License-Identifier: Apache-2.0
 *
 * work.h: work that does not end by itself, or not yet.
 */
#pragma once

#include <cuda.h>

#include "tests/simcuda/standin.h"

/* The kernel "spin", parameter: a pointer to a 32-bit flag. */
void work_spin_run(const struct simcuda_launch *launch);

/* Starts it; and tells it to end. */
CUresult work_spin(void);
void work_stop(void);

/* Frees memory, and tells it to end meanwhile. CUDA_ERROR_UNKNOWN: cuMemFree did not wait for it. */
CUresult work_free(CUdeviceptr memory);

/* A little work in a stream of its own, which is not waited for. */
CUresult work_poke(void);

/* That stream is captured from the one to the other, which then runs what was recorded. */
CUresult work_capture(void);
CUresult work_record(size_t bytes); /* sets new memory there */
CUresult work_captured(void);

/* The kernel "wipe", parameters: memory and 64 bits, so many bytes there become zeros. */
void work_wipe_run(const struct simcuda_launch *launch);

/* So many launches of it, none waited for. */
CUresult work_wipe_now(CUdeviceptr memory, uint64_t bytes, size_t times);

/* A graph of one such kernel; and so many launches of it, each waited for. */
CUresult work_wipe_graph(CUgraphExec *exec, CUdeviceptr memory, uint64_t bytes);
CUresult work_wipe(CUgraphExec exec, size_t times);
