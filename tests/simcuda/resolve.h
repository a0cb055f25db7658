/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.h: from the name, version and flavour that cuGetProcAddress is asked for to our
 * function.
 */
#pragma once

/* The newest form of base at or below version (1000*major + 10*minor), in its per-thread
 * variant where wanted and there is one. NULL if there is none; *too_old then tells whether a
 * newer version has it. */
void *sim_resolve(const char *base, int version, int per_thread, int *too_old);
