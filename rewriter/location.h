/* SPDX-License-Identifier: Apache-2.0
 *
 * location.h: where the runtime library is.
 */
#ifndef REWRITER_LOCATION_H
#define REWRITER_LOCATION_H

#include "common/err.h"

#include <limits.h>
#include <stdbool.h>

/* Finds the runtime library: `wanted` if not NULL, else beside this tool (build tree, then
 * installation), else the configured place. Its folder is resolved, its name stays. -ENOENT if
 * nothing is there and force is not set. */
int elf_location_find(char path[PATH_MAX], const char *wanted, bool force, struct gs_err *err);

/* The ELF machine of the library there; 0 if it is no ELF64 file. */
unsigned elf_location_machine(const char *path);

#endif
