/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_command.c: `gpusharectl metrics`: prints the figures once, for example for a node exporter's textfile
 * collector. `gpusharectl serve` serves them.
 */
#include "lockd/ctl/metrics.h"

#include <errno.h>
#include <string.h>

static enum ctl_exit metrics_run(struct ctl *ctl, int argc, char **argv)
{
    bool json = false;
    enum ctl_exit exit_code = CTL_OK;
    struct ctl_answer answer;
    int index = 1, code;

    if (lockd_options_read(ctl_json_option, &json, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_metrics, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_metrics, "takes options only, no arguments");
    code = ctl_ask_status(ctl, &answer);
    if (code != 0 && code != -ENOENT)
        return ctl_fail(ctl);
    if (!json)
        ctl_metrics_write(stdout, &answer);
    else if (ctl_json_print(ctl, &answer) != 0)
        exit_code = CTL_FAILED;
    ctl_answer_deinit(&answer);
    return ctl_done(exit_code);
}

const struct ctl_command ctl_metrics = {
    "metrics",   "",   "print all figures in Prometheus' text format",
    metrics_run, NULL, ctl_json_option};
