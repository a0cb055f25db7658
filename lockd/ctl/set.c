/* SPDX-License-Identifier: Apache-2.0
 *
 * set.c: `gpusharectl set NAME [PID] VALUE`: settings of the running daemon, which last
 * until it ends or reads its configuration again, and of one program, which last as long as it.
 * `gpusharectl reload`: that reading.
 */
#include "lockd/ctl/ctl.h"
#include "lockd/protocol/names.h"

#include <stdio.h>
#include <string.h>

static const char *const policies[] = {"fair", "fifo", "rr", "priority", NULL};

static const struct setting {
    const char *name;
    const char *argument;
    enum lockd_option_kind kind;
    uint64_t low, high;
    uint32_t op;
    bool of_program;
    const char *help;
} settings[] = {
    {"quantum", "MS|auto", LOCKD_OPTION_MS, 1, 3600000, GS_CONTROL_QUANTUM, false,
     "length of a turn"},
    {"quantum-min", "MS|auto", LOCKD_OPTION_MS, 1, 3600000, GS_CONTROL_QUANTUM_MIN, false,
     "an automatic quantum is no shorter"},
    {"quantum-max", "MS|auto", LOCKD_OPTION_MS, 1, 3600000, GS_CONTROL_QUANTUM_MAX, false,
     "... and no longer"},
    {"switch-share", "PERCENT|auto", LOCKD_OPTION_PERCENT, 0, 50, GS_CONTROL_SHARE, false,
     "of the time that an automatic quantum lets switches cost"},
    {"idle", "MS|auto", LOCKD_OPTION_MS, 1, 3600000, GS_CONTROL_IDLE, false,
     "how long a holder may idle while others wait"},
    {"policy", "fair|fifo|rr|priority", LOCKD_OPTION_CHOICE, 0, 0, GS_CONTROL_POLICY, false,
     "who comes next"},
    {"exclusive", "yes|no", LOCKD_OPTION_YES, 0, 0, GS_CONTROL_EXCLUSIVE, false,
     "turns also when everything fits"},
    {"reserve", "SIZE|auto", LOCKD_OPTION_SIZE, 0, LOCKD_BYTES_MAX, GS_CONTROL_RESERVE, false,
     "memory of each device that nobody gets"},
    {"host", "SIZE|auto", LOCKD_OPTION_SIZE, 0, LOCKD_BYTES_MAX, GS_CONTROL_HOST, false,
     "host memory for what is moved out"},
    {"weight", "N", LOCKD_OPTION_COUNT, 1, GS_WEIGHT_MAX, GS_CONTROL_WEIGHT, true,
     "its share against others (an ordinary program has 100)"},
    {"priority", "N", LOCKD_OPTION_SIGNED, 0, GS_PRIORITY_MAX, GS_CONTROL_PRIORITY, true,
     "with policy priority: higher goes first"},
    {"limit", "SIZE|auto", LOCKD_OPTION_SIZE, 0, LOCKD_BYTES_MAX, GS_CONTROL_LIMIT, true,
     "the most it may have on one device (auto: no limit)"},
};

#define SETTING_COUNT (sizeof settings / sizeof settings[0])

static void list(void)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s %s%s", settings[i].name,
                 settings[i].of_program ? "PID " : "", settings[i].argument);
        printf("  %-32s %s\n", left, settings[i].help);
    }
}

static enum ctl_exit set_one(struct ctl *ctl, const struct setting *setting, bool json,
                             int count, char **words)
{
    struct ctl_act act = {.op = setting->op, .json = json};
    const struct lockd_option option = {
        .name = setting->name,
        .argument = setting->argument,
        .kind = setting->kind,
        .value = &act.value,
        .low = setting->low,
        .high = setting->high,
        .choices = policies,
    };

    if (count != (setting->of_program ? 2 : 1))
        return ctl_usage(&ctl_set, "%s is set so: %s %s%s", setting->name, setting->name,
                         setting->of_program ? "PID " : "", setting->argument);
    if (setting->of_program && ctl_pid(words[0], &act.pid) != 0)
        return ctl_usage(&ctl_set, "'%s' is no process id", words[0]);
    if (lockd_option_value(&option, words[count - 1], &ctl->err) != 0)
        return ctl_usage(&ctl_set, "%s", ctl->err.text);
    return ctl_act(ctl, &act);
}

static enum ctl_exit set_run(struct ctl *ctl, int argc, char **argv)
{
    bool json = false;
    const struct lockd_option table[] = {
        {.name = "json", .kind = LOCKD_OPTION_FLAG, .value = &json},
        {0},
    };
    int index = 1;

    if (lockd_options_parse(table, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_set, "%s", ctl->err.text);
    if (index == argc)
        return ctl_usage(&ctl_set, "a name and a value are needed (set --help lists them)");
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(argv[index], settings[i].name) == 0)
            return set_one(ctl, &settings[i], json, argc - index - 1, argv + index + 1);
    }
    return ctl_usage(&ctl_set, "there is no setting '%s' (set --help lists them)", argv[index]);
}

static enum ctl_exit reload_run(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_act act = {.op = GS_CONTROL_RELOAD};
    const struct lockd_option table[] = {
        {.name = "json", .kind = LOCKD_OPTION_FLAG, .value = &act.json},
        {0},
    };
    int index = 1;

    if (lockd_options_parse(table, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_reload, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_reload, "it takes no argument");
    return ctl_act(ctl, &act);
}

const struct ctl_command ctl_set = {"set", "[--json] NAME [PID] VALUE",
                                    "change a setting (set --help lists them)", set_run, list};
const struct ctl_command ctl_reload = {"reload", "[--json]",
                                       "let the daemon read its configuration files again",
                                       reload_run, NULL};
