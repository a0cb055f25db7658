/* SPDX-License-Identifier: Apache-2.0
 *
 * load.h: what the kernel of load does to a word of memory. Used by the kernel, by its stand-in
 * and by the check on the host.
 */
#pragma once

#define LOAD_FACTOR 1664525u /* each step: word * LOAD_FACTOR + LOAD_ADDEND, modulo 2^32 */
#define LOAD_ADDEND 1013904223u
#define LOAD_FIRST  2654435761u /* word i begins as i * LOAD_FIRST */
