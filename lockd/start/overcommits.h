/* SPDX-License-Identifier: Apache-2.0
 *
 * overcommits.h: how much the programs of a user or systemd unit may have beyond the card.
 */
#ifndef GS_LOCKD_START_OVERCOMMITS_H
#define GS_LOCKD_START_OVERCOMMITS_H

#include "lockd/start/config.h"

/* Takes one line of the section [overcommit], as lockd_lines_take() does. -EINVAL also for what is no
 * size. */
int lockd_overcommits_take(struct lockd_lines *overcommits, const char *name, const char *value,
                           struct gs_err *err);

/* Bytes for a program of user `uid`; LOCKD_AUTO: the library's choice. units: the path of its control
 * group; the line of the last unit in it counts, then the user's, then the setting `overcommit`. */
uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units);

#endif
