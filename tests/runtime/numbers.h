/* SPDX-License-Identifier: Apache-2.0
 *
 * numbers.h: descriptors of others, as a program may treat them that closes what it finds.
 */
#ifndef GS_TESTS_RUNTIME_NUMBERS_H
#define GS_TESTS_RUNTIME_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

/* So many may be open from now on. */
void limit_numbers(size_t most);

/* Closes all but the standard ones and the simulated driver's, and opens files and sockets
 * there. */
void steal_numbers(void);

/* They are where they were opened, and nobody has written or read there. */
bool numbers_are_kept(void);

#endif
