/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: the library's clock.
 */
#pragma once

#include <stdint.h>

/* Monotonic time, ns. In a file of its own so that tests can have another. */
uint64_t gs_now(void);
