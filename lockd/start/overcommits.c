/* SPDX-License-Identifier: Apache-2.0
 *
 * overcommits.c: the memory beyond the card that the configuration allows the programs of a user or
 * systemd unit. No state but the caller's list.
 */
#include "lockd/start/overcommits.h"

#include <string.h>

int lockd_overcommits_take(struct lockd_lines *overcommits, const char *name, const char *value,
                           struct gs_err *err)
{
    return lockd_lines_read(overcommits, "overcommit", "overcommit", name, value, err);
}

uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units)
{
    const struct lockd_line *line =
        lockd_lines_find(&config->overcommits, uid, units, strlen(units));

    return line != NULL ? line->value : config->set.overcommit;
}
