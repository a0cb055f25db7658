/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl_set.c: `gpusharectl set NAME VALUE`: settings of the running daemon; they last until it
 * ends.
 */
#include "lockd/ctl.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum lockd_option_kind kind;
    uint64_t low, high;
    uint32_t op;
} settings[] = {
    {"quantum", LOCKD_OPTION_MS, 1, 3600000, GS_CONTROL_QUANTUM},
    {"idle", LOCKD_OPTION_MS, 1, 3600000, GS_CONTROL_IDLE},
    {"reserve", LOCKD_OPTION_SIZE, 0, LOCKD_BYTES_MAX, GS_CONTROL_RESERVE},
};

static enum ctl_exit set_run(struct ctl *ctl, int argc, char **argv)
{
    struct gs_wire_end end;
    uint64_t value = 0;

    if (argc != 3)
        return ctl_usage(&ctl_set, "a name and a value are needed");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const struct lockd_option option = {
            .name = settings[i].name,
            .kind = settings[i].kind,
            .value = &value,
            .low = settings[i].low,
            .high = settings[i].high,
        };

        if (strcmp(argv[1], settings[i].name) != 0)
            continue;
        if (lockd_option_value(&option, argv[2], &ctl->err) != 0)
            return ctl_usage(&ctl_set, ctl->err.text);
        return ctl_operate(ctl, settings[i].op, 0, value, &end);
    }
    return ctl_usage(&ctl_set, "there is no such setting");
}

const struct ctl_command ctl_set = {
    "set",
    "quantum|idle|reserve VALUE|auto",
    "length of a turn (ms), idle time of a holder (ms), bytes kept free",
    set_run,
};
