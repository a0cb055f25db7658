/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.h: the words that a shell may offer after a command.
 */
#ifndef GS_LOCKD_CTL_COMPLETE_H
#define GS_LOCKD_CTL_COMPLETE_H

#include "lockd/ctl/ctl.h"

struct gs_complete;
/* Prints the words that may follow on the line after the command, at argv[from]. */
void ctl_complete(struct ctl *ctl, const struct ctl_command *command, int from, int argc,
                  char **argv);

#endif
