/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_tool.h: runs another tool of gpushare.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_TOOL_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_TOOL_H

#include <stddef.h>

/* The path of a tool beside this program, else its name, to be found on the PATH. Returns
 * buffer. */
const char *doctor_tool_find(const char *name, char *buffer, size_t size);
/* Runs a tool and reads the beginning of its output to that stream. Returns its exit code, or
 * -errno. */
int doctor_tool_run(char *const argv[], int stream, char *text, size_t size);

#endif
