/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_command.c: `gpusharectl metrics`: prints the figures once, for example for a node
 * exporter's textfile collector. `gpusharectl serve` serves them.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/metrics.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/words.h"

#include <errno.h>
#include <string.h>

struct metrics_words {
    bool json, list;
};

static const struct lockd_option metrics_options[] = {
    {"json", NULL, LOCKD_OPTION_FLAG, NULL, 0, 0, "print the same as status --json", NULL, 0,
     offsetof(struct metrics_words, json)},
    {"list", NULL, LOCKD_OPTION_FLAG, NULL, 0, 0,
     "print what each metric means, without values and without asking the daemon", NULL, 0,
     offsetof(struct metrics_words, list)},
    {0},
};

static enum ctl_exit metrics_run(struct ctl *ctl, int argc, char **argv)
{
    struct metrics_words words = {false, false};
    enum ctl_exit exit_code = CTL_OK;
    struct ctl_answer answer;
    int index = 1, code;

    if (lockd_options_read(metrics_options, &words, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_metrics, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_metrics, "takes options only, no arguments");
    if (words.list) {
        ctl_metrics_list(stdout);
        return ctl_done(CTL_OK);
    }
    code = ctl_ask_status(ctl, &answer);
    if (code != 0 && code != -ENOENT)
        return ctl_fail(ctl);
    ctl_gpus_look_once(&answer);
    ctl_pods_look(&answer);
    if (!words.json)
        ctl_metrics_write(stdout, &answer);
    else if (ctl_json_print(ctl, &answer) != 0)
        exit_code = CTL_FAILED;
    ctl_answer_deinit(&answer);
    return ctl_done(exit_code);
}

const struct ctl_command ctl_metrics = {
    "metrics",   "",   "print all figures in Prometheus' text format",
    metrics_run, NULL, metrics_options};
