/* SPDX-License-Identifier: Apache-2.0
 *
 * sharekit.h: what the tests of shared memory have in common (see testkit.h): calls that must
 * succeed, descriptors on their way through a socket.
 */
#pragma once

#include "tests/simcuda/testkit.h"

#define SHARE_DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define SHARE_SIZE       (8 * MIB)

extern struct kit_turn share_ready, share_go;
extern int share_line[2]; /* a pair of sockets */

size_t share_memory_left(void);
/* Makes the turns and the sockets; before the other processes. */
void share_start(void);
/* Sends and closes fd; when the socket is full, closes it only. */
void share_send(int fd);
/* flags of recvmsg(). -1: there is none (with MSG_DONTWAIT). */
int share_receive(int flags);
CUmemGenericAllocationHandle share_make(size_t size);
int share_export(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle share_import(int fd);
/* Mapped somewhere, writable. */
CUdeviceptr share_map(CUmemGenericAllocationHandle handle, size_t size);
/* All bytes there have this value. */
bool share_all_bytes(CUdeviceptr address, size_t size, unsigned char value);
/* Files of memory in the folder of the cards. */
unsigned share_files(void);
/* Kills the process and waits until it is gone. */
void share_kill(int pid);
