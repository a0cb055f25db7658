/* SPDX-License-Identifier: Apache-2.0
 *
 * overcommits.c: how much the programs of a user or systemd unit may have beyond the card. No state but
 * the caller's list.
 */
#include "lockd/start/overcommits.h"

#include "lockd/protocol/setting_table.h"

#include <string.h>

int lockd_overcommits_take(struct lockd_lines *overcommits, const char *name, const char *value,
                           struct gs_err *err)
{
    const struct lockd_setting *setting = lockd_setting_find("overcommit");
    uint64_t bytes = 0;
    struct lockd_option option = lockd_setting_option(setting, &bytes);
    int code;

    option.name = name;
    code = lockd_option_value(&option, value, err);
    return code != 0 ? code : lockd_lines_take(overcommits, setting->name, name, bytes, err);
}

uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units)
{
    const struct lockd_line *line =
        lockd_lines_find(&config->overcommits, uid, units, strlen(units));

    return line != NULL ? line->value : config->set.overcommit;
}
