/* SPDX-License-Identifier: Apache-2.0
 *
 * host_file.h: the last place for memory that is not on the device: a file without a name in the
 * folder that GPUSHARE_SPILL names, written past the page cache if the file system can do that.
 *
 * Client thread, except gs_host_file_put(): any.
 */
#pragma once

#include "runtime/base/base.h"

#define GS_HOST_FILE_PIECE (16ull << 20) /* bytes of the buffer */

/* Opens the file if a folder is named; prints one line if it cannot be used. A second call has
 * no effect. */
void gs_host_file_begin(void);

/* The buffer through which all bytes between device and file go; NULL: there is no file. */
char *gs_host_file_buffer(void);

/* Reserves bytes (a multiple of 2 MiB); false: there is no file, or the disk is full (printed
 * once). */
bool gs_host_file_get(uint64_t bytes, uint64_t *offset);
void gs_host_file_put(uint64_t offset, uint64_t bytes);

/* Writes or reads. 0, or -errno. memory is aligned to a page; bytes are a multiple of one. */
int gs_host_file_move(uint64_t offset, void *memory, uint64_t bytes, bool write);

void gs_host_file_after_fork(void);
