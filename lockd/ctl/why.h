/* SPDX-License-Identifier: Apache-2.0
 *
 * why.h: for which program a program waits, why, and for how long at most, as a sentence.
 */
#ifndef GS_LOCKD_CTL_WHY_H
#define GS_LOCKD_CTL_WHY_H

#include "lockd/ctl/ctl.h"

#define CTL_WHY_SIZE 192
/* "waits for train (pid 812): its turn ends in 6.2 s at the latest; it has used about 61 % of the
 * last minute". "": the program does not wait. */
const char *ctl_why_text(const struct ctl_answer *answer, const struct gs_wire_client *client,
                         char buffer[CTL_WHY_SIZE]);

#endif
