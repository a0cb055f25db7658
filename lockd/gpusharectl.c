/* SPDX-License-Identifier: Apache-2.0
 *
 * gpusharectl.c: gpusharectl's command line: options before the command, the table of commands, and
 * help.
 */
#include "common/fd.h"
#include "lockd/base/text.h"
#include "lockd/ctl/words.h"
#include "lockd/protocol/setting_table.h"

#include <fcntl.h>
#include <locale.h>
#include <string.h>

/* The words that a shell may offer after a command: its options (the command's own table),
 * and operands by the words of its usage line. Process ids come from the daemon, settings
 * and their values from the table of settings. */

#define PATIENCE_S 1 /* the shell waits meanwhile */

static void offer_programs(struct ctl *ctl, const struct gs_complete *place)
{
    struct ctl_answer answer;

    ctl->patience_s = PATIENCE_S;
    if (ctl_ask_status(ctl, &answer) != 0)
        return;
    gs_each (client, answer.clients, answer.client_count) {
        char pid[16], help[128], user[64];

        snprintf(pid, sizeof pid, "%d", client->pid);
        snprintf(help, sizeof help, "%s of %s, %s", client->name,
                 ctl_user_name(client->uid, user, sizeof user),
                 ctl_condition_name(client->condition));
        gs_complete_offer(place, pid, help);
    }
    ctl_answer_deinit(&answer);
}

/* One word of the usage line, without its brackets: "PID|all". */
static void offer_operand(struct ctl *ctl, const struct ctl_command *command,
                          const struct gs_complete *place, const char *operand,
                          const struct lockd_setting *setting)
{
    char words[128] = "";

    if (strncmp(operand, "PID", 3) == 0)
        offer_programs(ctl, place);
    if (strcmp(operand, "NAME") == 0) {
        for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
            if (at->op != 0 || strstr(command->arguments, "VALUE") == NULL) /* `set` takes it */
                gs_complete_offer(place, at->name, at->help);
        }
    } else if (strcmp(operand, "VALUE") == 0) {
        if (setting != NULL)
            lockd_setting_words(setting, words, sizeof words);
        for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
            gs_complete_offer(place, word, NULL);
    } else {
        gs_complete_argument(place, operand);
    }
}

/* Prints the words that may follow on the line after the command, at argv[from]. */
static void ctl_complete(struct ctl *ctl, const struct ctl_command *command, int from, int argc,
                         char **argv)
{
    struct gs_option rows[GS_OPTIONS_MAX + 3] = {0}, *row = rows;
    size_t at = 0;
    const struct lockd_setting *setting = NULL;
    struct gs_complete place;
    char words[128];

    for (const struct gs_option *own = command->options; own != NULL && own->name != NULL;)
        *row++ = *own++;
    *row++ =
        (struct gs_option){.name = "help", .letter = 'h', .help = "show the command's help"};
    *row = (struct gs_option){.name = "version", .letter = 'V', .help = "show the release"};
    gs_complete_read(&place, rows, false, from, argc, argv);
    if (gs_complete_options(&place, rows))
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

static enum ctl_exit help_run(struct ctl *ctl, const void *words, int count, char **operands);

static const struct ctl_command ctl_help = {
    "help", "[COMMAND]", "show the commands, or the options of one", help_run, NULL, NULL};

static const struct ctl_command *const commands[] = {
    &ctl_status, &ctl_top,     &ctl_get,  &ctl_set,     &ctl_pause, &ctl_resume,
    &ctl_evict,  &ctl_suspend, &ctl_move, &ctl_reload,  &ctl_trace, &ctl_metrics,
    &ctl_serve,  &ctl_doctor,  &ctl_cdi,  &ctl_account, &ctl_help,
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

struct ctl_arguments {
    const char *socket;
    bool help, version;
};

static const struct gs_option own_options[] = {
    {"socket", "PATH", GS_OPTION_TEXT, NULL, 0, 0,
     "the daemon's socket (default: GPUSHARE_SOCKET or the standard place)", NULL, 0,
     offsetof(struct ctl_arguments, socket)},
    {"help", NULL, GS_OPTION_FLAG, NULL, 0, 0, "show this help", NULL, 'h',
     offsetof(struct ctl_arguments, help)},
    {"version", NULL, GS_OPTION_FLAG, NULL, 0, 0, "show the release", NULL, 'V',
     offsetof(struct ctl_arguments, version)},
    {0},
};

static void print_help(FILE *out)
{
    fputs("usage: gpusharectl [options] COMMAND ...\nShow and control "
          "gpushare-lockd, which decides which programs may use a "
          "GPU.\n\ncommands\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s %s", commands[i]->name, commands[i]->arguments);
        fprintf(out, "  %-24s %s\n", left, commands[i]->help);
    }
    fputs("\noptions\n", out);
    gs_options_help(own_options, out);
    fputs("\n`gpusharectl help COMMAND` shows the options of a command.\n"
          "exit codes: 0 done, 1 failed or refused, 2 usage, 3 no gpushare-lockd is running, "
          "4 no such program\n",
          out);
}

static enum ctl_exit print_version(void)
{
    puts("gpusharectl " GS_VERSION);
    return ctl_done(CTL_OK);
}

static enum ctl_exit command_help(const struct ctl_command *command)
{
    ctl_print_usage(command, stdout);
    printf("%s\n", command->help);
    if (command->options != NULL) {
        puts("\noptions");
        gs_options_help(command->options, stdout);
    }
    if (command->details != NULL)
        command->details();
    return ctl_done(CTL_OK);
}

/* Every command has -h and -V, wherever they stand. */
static bool has_option(int argc, char **argv, const char *letter, const char *name)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], letter) == 0 || strcmp(argv[i], name) == 0)
            return true;
    }
    return false;
}

static const struct ctl_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    }
    return NULL;
}

/* Says so if there is no such command. */
static const struct ctl_command *need_command(const char *word)
{
    const struct ctl_command *command = find_command(word);
    const char *similar = NULL;

    for (size_t i = 0; i < COMMAND_COUNT && similar == NULL; i++)
        similar = lockd_text_is_similar(word, commands[i]->name) ? commands[i]->name : NULL;
    if (command == NULL && similar != NULL)
        fprintf(stderr, "gpusharectl: unknown command '%s', did you mean '%s'?\n", word,
                similar);
    else if (command == NULL)
        fprintf(stderr, "gpusharectl: unknown command '%s' (--help lists them)\n", word);
    return command;
}

static enum ctl_exit help_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct ctl_command *command = count == 1 ? need_command(operands[0]) : NULL;

    (void)words;
    if (count > 1)
        return ctl_usage(ctl, "give the name of one command");
    if (command != NULL)
        return command_help(command);
    if (count == 1)
        return CTL_USAGE;
    print_help(stdout);
    return ctl_done(CTL_OK);
}

static enum ctl_exit run_command(struct ctl *ctl, int argc, char **argv)
{
    const struct ctl_command *command = need_command(argv[0]);
    max_align_t words[CTL_WORDS_SIZE / sizeof(max_align_t)] = {0};
    int index = 1;

    if (command == NULL)
        return CTL_USAGE;
    ctl->command = command;
    if (has_option(argc, argv, "-h", "--help"))
        return command_help(command);
    if (has_option(argc, argv, "-V", "--version"))
        return print_version();
    if (command->options != NULL &&
        gs_options_parse(command->options, words, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(ctl, "%s", ctl->err.text);
    if (index != argc && command->arguments[0] == '\0')
        return ctl_usage(ctl, "takes no arguments");
    return command->run(ctl, words, argc - index, argv + index);
}

/* Prints what a shell may offer for the last word (common/complete.h). */
static enum ctl_exit complete_line(struct ctl *ctl, int argc, char **argv)
{
    const struct ctl_command *command;
    struct ctl_arguments arguments = {0};
    struct gs_complete place;
    int index = 2;

    gs_complete_read(&place, own_options, true, 2, argc, argv);
    if (place.first_operand == 0 && gs_complete_options(&place, own_options))
        return CTL_OK;
    if (place.first_operand == 0) {
        for (size_t i = 0; i < COMMAND_COUNT; i++)
            gs_complete_offer(&place, commands[i]->name, commands[i]->help);
        return CTL_OK;
    }
    command = find_command(place.operands[0]);
    /* --socket may come before the command */
    if (command == NULL ||
        gs_options_parse(own_options, &arguments, true, place.first_operand, argv, &index,
                         &ctl->err) != 0 ||
        gs_socket_places(arguments.socket, &ctl->places, &ctl->err) != 0)
        return CTL_OK;
    ctl_complete(ctl, command, place.first_operand + 1, argc, argv);
    return CTL_OK;
}

int main(int argc, char **argv)
{
    struct ctl_arguments arguments = {0};
    struct ctl ctl = {0};
    int index = 1;

    if (gs_fd_open_standard(O_RDONLY) != 0)
        return CTL_FAILED;
    setlocale(LC_CTYPE, ""); /* for the width of characters */
    if (gs_complete_asked(argc, argv))
        return (int)complete_line(&ctl, argc, argv);
    if (gs_options_parse(own_options, &arguments, true, argc, argv, &index, &ctl.err) != 0) {
        ctl_fail(&ctl);
        return CTL_USAGE;
    }
    if (arguments.help) {
        print_help(stdout);
        return (int)ctl_done(CTL_OK);
    }
    if (arguments.version)
        return (int)print_version();
    if (index == argc) {
        print_help(stderr);
        return CTL_USAGE;
    }
    ctl.path_by_user = arguments.socket != NULL;
    if (gs_socket_places(arguments.socket, &ctl.places, &ctl.err) != 0) {
        ctl_fail(&ctl);
        return CTL_USAGE;
    }
    memcpy(ctl.path, ctl_own_place(&ctl), sizeof ctl.path);
    return (int)run_command(&ctl, argc - index, argv + index);
}
