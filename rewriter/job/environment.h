/* SPDX-License-Identifier: Apache-2.0
 *
 * environment.h: Python environments (PEP 405). Their interpreter usually is a link to an
 * interpreter that other environments use as well.
 */
#ifndef REWRITER_JOB_ENVIRONMENT_H
#define REWRITER_JOB_ENVIRONMENT_H

#include <limits.h>
#include <stdbool.h>

/* Whether `name` is a link that leads out of a Python environment, or leads to such a link;
 * `real` is the file at its end. `environment` gets the environment's folder, else "". */
bool elf_environment_left(const char *name, const char *real, char environment[PATH_MAX]);

/* Whether a file of that name (without folder) is a Python interpreter: python, python3.11,
 * python3.13t (free-threaded), python3.12d (debug), pypy3. */
bool elf_environment_is_python(const char *base);

#endif
