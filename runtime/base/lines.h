/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: reads a file of /proc line by line, without memory of its own. No state. Any thread.
 */
#pragma once

#include "runtime/base/base.h"

/* Calls take() for each line, without its end; take() may change the line. Reads so many bytes at
 * most; a line of more than 4096 bytes is left out. A file that cannot be read has no lines. */
void gs_lines_read(const char *path, size_t most, void (*take)(char *line, void *context),
                   void *context);
