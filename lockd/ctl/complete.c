/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c: the words that a shell may offer after a command: its options (the command's own
 * table), and operands by the words of its usage line. Process ids come from the daemon, settings
 * and their values from the table of settings. No state.
 */
#include "common/complete.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/complete.h"
#include "lockd/ctl/words.h"
#include "lockd/protocol/setting_table.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_S 1 /* the shell waits meanwhile */

static void offer_programs(struct ctl *ctl, const struct gs_complete *place)
{
    struct ctl_answer answer;

    ctl->patience_s = PATIENCE_S;
    if (ctl_ask_status(ctl, &answer) != 0)
        return;
    for (size_t i = 0; i < answer.client_count; i++) {
        const struct gs_wire_client *client = &answer.clients[i];
        char pid[16], help[128], user[64];

        snprintf(pid, sizeof pid, "%d", client->pid);
        snprintf(help, sizeof help, "%s of %s, %s", client->name,
                 ctl_user_name(client->uid, user, sizeof user),
                 ctl_condition_name(client->condition));
        gs_complete_offer(place, pid, help);
    }
    ctl_answer_deinit(&answer);
}

/* settable: only those that `set` takes. */
static void offer_settings(const struct gs_complete *place, bool settable)
{
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        if (!settable || at->op != 0)
            gs_complete_offer(place, at->name, at->help);
    }
}

static void offer_values(const struct gs_complete *place, const struct lockd_setting *setting)
{
    char words[128];

    if (setting == NULL)
        return;
    lockd_setting_words(setting, words, sizeof words);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        gs_complete_offer(place, word, NULL);
}

/* One word of the usage line, without its brackets: "PID|all". */
static void offer_operand(struct ctl *ctl, const struct ctl_command *command,
                          const struct gs_complete *place, const char *operand,
                          const struct lockd_setting *setting)
{
    if (strncmp(operand, "PID", 3) == 0)
        offer_programs(ctl, place);
    if (strcmp(operand, "NAME") == 0)
        offer_settings(place, strstr(command->arguments, "VALUE") != NULL);
    else if (strcmp(operand, "VALUE") == 0)
        offer_values(place, setting);
    else
        gs_complete_argument(place, operand);
}

void ctl_complete(struct ctl *ctl, const struct ctl_command *command, int from, int argc,
                  char **argv)
{
    struct gs_complete_option rows[LOCKD_OPTIONS_MAX + 2];
    size_t count = lockd_options_complete(command->options, rows), at = 0;
    const struct lockd_setting *setting = NULL;
    struct gs_complete place;
    char words[128];

    rows[count++] = (struct gs_complete_option){"help", 'h', NULL, "show the command's help"};
    rows[count++] = (struct gs_complete_option){"version", 'V', NULL, "show the release"};
    gs_complete_read(&place, rows, count, false, from, argc, argv);
    if (gs_complete_options(&place, rows, count))
        return;
    if (place.operand_count != 0)
        setting = lockd_setting_find(place.operands[0]);
    snprintf(words, sizeof words, "%s", command->arguments);
    for (char *word = strtok(words, " []"); word != NULL; word = strtok(NULL, " []")) {
        if (strcmp(word, "PID") == 0 && setting != NULL &&
            setting->scope != LOCKD_SCOPE_PROGRAM)
            continue; /* a setting of the daemon: the line has no process id */
        if (at++ == place.operand_count) {
            offer_operand(ctl, command, &place, word, setting);
            return;
        }
    }
}
