/* SPDX-License-Identifier: Apache-2.0
 *
 * gpusharectl.c: gpusharectl's command line: options before the command, the table of commands, help.
 */
#include "lockd/ctl/ctl.h"
#include "common/fd.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

static const struct ctl_command *const commands[] = {
    &ctl_status,  &ctl_top,   &ctl_get,     &ctl_set,    &ctl_pause,
    &ctl_resume,  &ctl_evict, &ctl_suspend, &ctl_reload, &ctl_trace,
    &ctl_metrics, &ctl_serve, &ctl_doctor,  &ctl_cdi,    &ctl_account,
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

struct ctl_arguments {
    const char *socket;
    bool help, version;
};

static void print_help(FILE *out, const struct lockd_option *table)
{
    fputs("usage: gpusharectl [options] COMMAND ...\nShow and control "
          "gpushare-lockd, which decides which programs may use a "
          "GPU.\n\ncommands\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s %s", commands[i]->name, commands[i]->arguments);
        fprintf(out, "  %-45s %s\n", left, commands[i]->help);
    }
    fputs("\noptions\n", out);
    lockd_options_help(table, out);
    fputs(
        "\nexit codes: 0 done, 1 failed or refused, 2 usage, 3 no gpushare-lockd is running\n",
        out);
}

static enum ctl_exit print_version(void)
{
    puts("gpusharectl " GS_VERSION);
    return ctl_done(CTL_OK);
}

static enum ctl_exit command_help(const struct ctl_command *command)
{
    printf("usage: gpusharectl %s %s\n%s\n", command->name, command->arguments, command->help);
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

static enum ctl_exit run_command(struct ctl *ctl, int argc, char **argv)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[0], commands[i]->name) != 0)
            continue;
        if (has_option(argc, argv, "-h", "--help"))
            return command_help(commands[i]);
        if (has_option(argc, argv, "-V", "--version"))
            return print_version();
        return commands[i]->run(ctl, argc, argv);
    }
    fprintf(stderr, "gpusharectl: unknown command '%s' (--help lists them)\n", argv[0]);
    return CTL_USAGE;
}

int main(int argc, char **argv)
{
    struct ctl_arguments arguments = {0};
    const struct lockd_option table[] = {
        {"socket", "PATH", LOCKD_OPTION_TEXT, &arguments.socket, 0, 0,
         "the daemon's socket (default: GPUSHARE_SOCKET or the standard place)", NULL, 0},
        {"help", NULL, LOCKD_OPTION_FLAG, &arguments.help, 0, 0, "show this help", NULL, 'h'},
        {"version", NULL, LOCKD_OPTION_FLAG, &arguments.version, 0, 0, "show the release", NULL,
         'V'},
        {0},
    };
    struct ctl ctl = {0};
    int index = 1;

    if (gs_fd_open_standard(O_RDONLY) != 0)
        return CTL_FAILED;
    setlocale(LC_CTYPE, ""); /* how wide a character is */
    if (lockd_options_parse(table, true, argc, argv, &index, &ctl.err) != 0) {
        ctl_fail(&ctl);
        return CTL_USAGE;
    }
    if (arguments.help) {
        print_help(stdout, table);
        return (int)ctl_done(CTL_OK);
    }
    if (arguments.version)
        return (int)print_version();
    if (index == argc) {
        print_help(stderr, table);
        return CTL_USAGE;
    }
    ctl.path_by_user = arguments.socket != NULL;
    if (lockd_socket_places(arguments.socket, &ctl.places, &ctl.err) != 0) {
        ctl_fail(&ctl);
        return CTL_USAGE;
    }
    memcpy(ctl.path, ctl_own_place(&ctl), sizeof ctl.path);
    return (int)run_command(&ctl, argc - index, argv + index);
}
