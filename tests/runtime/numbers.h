/* SPDX-License-Identifier: Apache-2.0
 *
 * numbers.h: limits of a program, and descriptors of others, as one may treat them that closes
 * what it finds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* MiB: of private memory beyond what it has; of each file, 0: as long as it likes */
void limit_memory(size_t mib);
void limit_files(size_t mib);

/* So many may be open from now on. */
void limit_numbers(size_t most);

/* Closes all but the standard ones and the simulated driver's, and opens files and sockets
 * there. */
void steal_numbers(void);

/* They are where they were opened, and nobody has written or read there. */
bool numbers_are_kept(void);
