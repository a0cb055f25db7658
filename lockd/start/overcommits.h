/* SPDX-License-Identifier: Apache-2.0
 *
 * overcommits.h: the memory beyond the card that the configuration allows the programs of a user or
 * systemd unit.
 */
#ifndef GS_LOCKD_START_OVERCOMMITS_H
#define GS_LOCKD_START_OVERCOMMITS_H

#include "lockd/start/config.h"

/* Takes one line of the section [overcommit], as lockd_lines_read() does. */
int lockd_overcommits_take(struct lockd_lines *overcommits, const char *name, const char *value,
                           struct gs_err *err);

/* The bytes for a program of user `uid`; LOCKD_AUTO: the library's choice. units: the path of
 * its control group. The line of the last unit in it counts, else the user's, else the setting
 * `overcommit`. */
uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units);

#endif
