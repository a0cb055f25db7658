/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_command.c: `gpusharectl metrics`: prints the figures once, for example for a node
 * exporter's textfile collector. `gpusharectl serve` serves them.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/metrics.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/words.h"
#include "lockd/ctl/ctl.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct metrics_words {
    bool json, list;
};

static const struct gs_option metrics_options[] = {
    {"json", NULL, GS_OPTION_FLAG, NULL, 0, 0, "print the same as status --json", NULL, 0,
     offsetof(struct metrics_words, json)},
    {"list", NULL, GS_OPTION_FLAG, NULL, 0, 0,
     "print what each metric means, without values and without asking the daemon", NULL, 0,
     offsetof(struct metrics_words, list)},
    {0},
};

static void print_metrics(const struct ctl_answer *answer)
{
    ctl_metrics_write(stdout, answer);
}

static enum ctl_exit metrics_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct metrics_words *given = words;

    (void)count, (void)operands;
    if (!given->list)
        return ctl_status_show(ctl, given->json, true, print_metrics);
    ctl_metrics_list(stdout);
    return ctl_done(CTL_OK);
}

const struct ctl_command ctl_metrics = {
    "metrics",   "",   "print all figures in Prometheus' text format",
    metrics_run, NULL, metrics_options};

/* `gpusharectl account GROUP`: prints the sums of what the programs of a group used, for
 * batch systems that record them when a job's step has ended. */

#define TEXT_SIZE 32
#define FIGURE(kind, field, words)                                                             \
    {                                                                                          \
        .unit = LOCKD_FIGURE_##kind, .json = #field, .help = words,                            \
        .offset = offsetof(struct gs_wire_account, field)                                      \
    }

/* In the order in which they are printed. */
static const struct lockd_figure figures[] = {
    FIGURE(BYTES, moved_out, "moved out"),
    FIGURE(BYTES, moved_in, "moved in"),
    FIGURE(NS, gpu_ns, "ran for"),
    FIGURE(NS, wait_ns, "waited for"),
    FIGURE(NS, wait_longest_ns, "longest wait"),
};

#define FIGURE_COUNT (sizeof figures / sizeof *figures)

static int print_json(const struct gs_wire_account *account)
{
    json_t *root =
        json_pack("{s:o, s:i, s:i}", "group", ctl_json_text(account->group), "programs",
                  (int)account->programs, "connected", (int)account->connected);

    for (size_t i = 0; i < FIGURE_COUNT; i++)
        json_object_set_new(root, figures[i].json,
                            json_integer((json_int_t)lockd_figure_value(&figures[i], account)));
    return ctl_json_put(root, JSON_COMPACT);
}

static void print_text(const struct gs_wire_account *account)
{
    printf("%u %s, %u connected", account->programs,
           account->programs == 1 ? "program" : "programs", account->connected);
    for (size_t i = 0; i < FIGURE_COUNT; i++) {
        char text[TEXT_SIZE];

        printf(", %s %s", figures[i].help,
               ctl_figure_text(&figures[i], lockd_figure_value(&figures[i], account), text,
                               sizeof text));
    }
    putchar('\n');
}

static enum ctl_exit ask_account(struct ctl *ctl, const char *group, bool json)
{
    struct gs_wire_account question = {0};
    struct ctl_answer answer;
    int code = 0;

    lockd_wire_header(&question.header, GS_WIRE_ACCOUNT);
    snprintf(question.group, sizeof question.group, "%s", group);
    if (ctl_ask(ctl, &question, sizeof question, &answer) != 0)
        return ctl_fail(ctl);
    if (answer.end.code != 0) {
        ctl_refused(&answer.end);
        code = answer.end.code;
    } else if (json) {
        code = print_json(&answer.account);
    } else {
        print_text(&answer.account);
    }
    ctl_answer_deinit(&answer);
    return ctl_done(code == 0 ? CTL_OK : CTL_FAILED);
}

static enum ctl_exit account_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    if (count != 1 || operands[0][0] == '\0')
        return ctl_usage(ctl, "give one group");
    if (strlen(operands[0]) >= sizeof((struct gs_wire_account *)NULL)->group)
        return ctl_usage(ctl, "a group has at most %zu characters",
                         sizeof((struct gs_wire_account *)NULL)->group - 1);
    return ask_account(ctl, operands[0], *(const bool *)words);
}

const struct ctl_command ctl_account = {
    "account",   "GROUP", "show sums over a group's programs, ended ones included",
    account_run, NULL,    ctl_json_option};
