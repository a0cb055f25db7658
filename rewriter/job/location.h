/* SPDX-License-Identifier: Apache-2.0
 *
 * location.h: where the runtime library is.
 */
#pragma once

#include "common/err.h"

#include <limits.h>
#include <stdbool.h>

/* Finds the runtime library: `wanted` if not NULL, else beside this tool (build tree, then
 * installation), else the configured place. The path is absolute; links in it stay as they are.
 * -ENOENT if nothing is there and force is not set. */
int elf_location_find(char path[PATH_MAX], const char *wanted, bool force, struct gs_err *err);

/* Whether a folder on that absolute path is a link; `real` gets where the path leads now. */
bool elf_location_leads(const char *path, char real[PATH_MAX]);

/* Whether the library is made for that ELF machine, which is the machine of the file `name`. 0;
 * -ENOENT, or the error of opening it. */
int elf_location_check(const char *path, const char *name, unsigned machine,
                       struct gs_err *err);

/* Python environments (PEP 405). Their interpreter usually is a link to an interpreter that
 * other environments use as well. */

/* Whether `name` is a link that leads out of a Python environment, or leads to such a link;
 * `real` is the file at its end. `environment` gets the environment's folder, else "". */
bool elf_environment_left(const char *name, const char *real, char environment[PATH_MAX]);

/* Whether a file of that name is a Python interpreter: python, python3.11, python3.13t
 * (free-threaded), python3.12d (debug), pypy3. */
bool elf_environment_is_python(const char *path);
