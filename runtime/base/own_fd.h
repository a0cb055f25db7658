/* SPDX-License-Identifier: Apache-2.0
 *
 * own_fd.h: descriptors of this library in a process that is not ours. A program may close any
 * number (daemons close all), and its next file may get that number. So each descriptor is known
 * by the file that it refers to, and checked before use. If it is another file by then, it is the
 * program's, and is left alone. Our descriptors have higher numbers than programs use, so that
 * hardly ever one changes between the check and the use.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include <sys/stat.h>

#define GS_OWN_FD_SHARE 8 /* at most this part of all numbers is ours */

/* Any thread may read it while another one sets it: it then sees a descriptor, or none. */
struct gs_own_fd {
    _Atomic(int) number; /* plus 1; 0: none */
    _Atomic(uint64_t) device, inode;
};

/* The lowest number for descriptors of ours. errno is kept. */
int gs_own_fd_floor(void);

/* Makes the process's table of descriptors large enough for them. The kernel needs some 10 ms for
 * that once there are threads (it waits for all processors), and microseconds before. errno is
 * kept. */
void gs_own_fd_prepare(void);

/* Gives the file another number, of at least `from`, close-on-exec, and closes the first,
 * unless the program has made it its own meanwhile. what: the file. -1: there is no number, and
 * the first is unchanged. */
int gs_own_fd_higher(int fd, int from, struct stat *what);

/* Takes the descriptor over, close-on-exec, under a higher number if possible. The
 * number that was there before is forgotten, not closed. */
void gs_own_fd_set(struct gs_own_fd *own, int fd);

/* Its number; -1: there is none (any more). errno is kept. */
int gs_own_fd(const struct gs_own_fd *own);

/* Closes it if it is ours still; none is there then. errno is kept. */
void gs_own_fd_close(struct gs_own_fd *own);
