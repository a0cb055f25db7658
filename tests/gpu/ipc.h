/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.h: what the files of the program `ipc` share.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bad_input.h"

/* ipc.c: calls, and bytes in blocks of a MiB, each with a value of its own. */
CUresult ipc_begin_driver(int ordinal);
CUresult ipc_get_handle(CUdeviceptr address, CUipcMemHandle *handle);
CUresult ipc_open_handle(const CUipcMemHandle *handle, unsigned flags, CUdeviceptr *address);
CUresult ipc_close_handle(CUdeviceptr address);
CUresult ipc_wait_for_card(void);
size_t ipc_lesser_of(size_t a, size_t b);
CUresult ipc_fill_bytes(CUdeviceptr address, size_t bytes, unsigned seed);
CUresult ipc_check_bytes(CUdeviceptr address, size_t bytes, unsigned seed, size_t *bad);

/* ipc_told.c and ipc_pair.c: the two ways to call it; the exit status. */
int ipc_told(int ordinal);
int ipc_pair(char **argv, bool spawn);
int ipc_pair_child(int in, int out, size_t bytes);
