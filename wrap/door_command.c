/* SPDX-License-Identifier: Apache-2.0
 *
 * door_command.c: gpushare-door's command line.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/complete.h"
#include "common/fd.h"
#include "wrap/bind.h"
#include "wrap/find_driver.h"
#include "wrap/stage.h"

enum action { ACTION_NONE, ACTION_FIND, ACTION_STAGE, ACTION_BIND, ACTION_RUN };

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_WRONG_USE = 2, EXIT_NOT_FOUND = 127 };

static const struct gs_complete_option own_options[] = {
    {"bind", 0, NULL, "mount the door in this mount namespace (made by `unshare -m`)"},
    {"stage", 0, "FOLDER",
     "make a folder with the door and a copy of the driver's library, for\n"
     "                         LD_LIBRARY_PATH or an image"},
    {"find", 0, NULL, "print the driver's library, then other copies of it"},
    {"folder", 'd', "FOLDER",
     "folder in which the mounted door is kept (default: a folder of this user\n"
     "                         below /run or /tmp)"},
    {"help", 'h', NULL, "show this help"},
    {"version", 'V', NULL, "show the release"},
};

#define OPTION_COUNT (sizeof own_options / sizeof own_options[0])
#define LONG_START   256 /* what getopt_long() returns for the first row */

static void print_usage(FILE *out)
{
    fputs("usage: gpushare-door [-d FOLDER] -- PROGRAM [ARGUMENT...]\n"
          "       gpushare-door [-d FOLDER] --bind\n"
          "       gpushare-door --stage FOLDER | --find\n"
          "Put gpushare in the driver's place (libcuda.so.1), for programs and images that "
          "cannot be changed.\n\n"
          "  -- PROGRAM             run one program in a mount namespace of its own, with the "
          "door\n"
          "                         mounted over the driver's library\n",
          out);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct gs_complete_option *row = &own_options[i];
        char left[40], letter[] = "-?, ";

        letter[1] = (char)row->letter;
        snprintf(left, sizeof left, "%s--%s%s%s", row->letter != 0 ? letter : "", row->name,
                 row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
        fprintf(out, "  %-22s %s\n", left, row->help);
    }
    fputs(
        "\nexit codes: 0 done, 1 failed, 2 usage, 127 PROGRAM was not found; with PROGRAM its "
        "own\n",
        out);
}

/* Prints what a shell may offer for the last word (common/complete.h). */
static int complete_line(int argc, char **argv)
{
    struct gs_complete place;

    gs_complete_read(&place, own_options, OPTION_COUNT, true, 2, argc, argv);
    if (!gs_complete_options(&place, own_options, OPTION_COUNT))
        gs_complete_argument(&place, "PROGRAM");
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}

struct request {
    enum action action;
    const char *folder; /* of --folder */
    const char *stage;  /* of --stage */
    char **program;
};

static int report_failure(const struct gs_err *err)
{
    fprintf(stderr, "gpushare-door: %s\n", err->text);
    return EXIT_FAILED;
}

static int print_drivers(const struct gs_drivers *drivers)
{
    for (size_t i = 0; i < drivers->count; i++)
        printf("%s%s\n", drivers->path[i], i == 0 && drivers->bound ? " (a door)" : "");
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}

static int mount_door(const struct request *request, const struct gs_drivers *drivers,
                      struct gs_err *err)
{
    char door[PATH_MAX], folder[PATH_MAX];
    struct gs_stage stage;
    int code = gs_find_door(door, err);

    if (code == 0 && request->folder == NULL)
        code = gs_stage_place(folder, err);
    if (code == 0)
        code = gs_stage_make(&stage, request->folder != NULL ? request->folder : folder, door,
                             NULL, err);
    if (code == 0 && request->action == ACTION_RUN)
        code = gs_bind_unshare(err);
    if (code == 0 && request->action == ACTION_BIND)
        code = gs_bind_check(err);
    return code == 0 ? gs_bind_mount(&stage, drivers, err) : code;
}

static int run_program(char **program)
{
    execvp(program[0], program);
    fprintf(stderr, "gpushare-door: %s: %s\n", program[0], strerror(errno));
    return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED;
}

static int stage_copy(const char *folder, const struct gs_drivers *drivers, struct gs_err *err)
{
    char door[PATH_MAX];
    struct gs_stage stage;
    int code = gs_find_door(door, err);

    if (code == 0 && drivers->bound)
        code = gs_err_set(err, -EEXIST,
                          "the driver's library here is a door already: nothing to copy");
    if (code == 0)
        code = gs_stage_make(&stage, folder, door, drivers->path[0], err);
    return code;
}

static int carry_out(const struct request *request)
{
    struct gs_drivers *drivers = malloc(sizeof *drivers);
    struct gs_err err = {0};
    int code;

    if (drivers == NULL) {
        gs_err_set(&err, -ENOMEM, "out of memory");
        return report_failure(&err);
    }
    code = gs_find_drivers(drivers, &err);
    if (code == 0 && request->action == ACTION_FIND) {
        code = print_drivers(drivers);
        free(drivers);
        return code;
    }
    if (code == 0 && request->action == ACTION_STAGE)
        code = stage_copy(request->stage, drivers, &err);
    else if (code == 0 && !drivers->bound) /* else everything is done */
        code = mount_door(request, drivers, &err);
    free(drivers);
    if (code != 0)
        return report_failure(&err);
    return request->action == ACTION_RUN ? run_program(request->program) : EXIT_DONE;
}

static bool choose_action(struct request *request, enum action action)
{
    const bool first = request->action == ACTION_NONE;

    request->action = action;
    return first;
}

/* Fills in the table for getopt_long(). */
static void fill_getopt(struct option longs[OPTION_COUNT + 1], char *shorts)
{
    *shorts++ = '+';
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct gs_complete_option *row = &own_options[i];

        longs[i] = (struct option){
            .name = row->name,
            .has_arg = row->argument != NULL ? required_argument : no_argument,
            .val = row->letter != 0 ? row->letter : LONG_START + (int)i,
        };
        if (row->letter != 0)
            *shorts++ = (char)row->letter;
        if (row->letter != 0 && row->argument != NULL)
            *shorts++ = ':';
    }
    *shorts = '\0';
    longs[OPTION_COUNT] = (struct option){0};
}

/* Takes one option. false: it is unknown, or does not go with those before it. */
static bool take_option(struct request *request, int value)
{
    const char *name = value >= LONG_START ? own_options[value - LONG_START].name : "";

    if (value == 'd') {
        request->folder = optarg;
        return true;
    }
    if (strcmp(name, "stage") == 0) {
        request->stage = optarg;
        return choose_action(request, ACTION_STAGE);
    }
    if (strcmp(name, "bind") == 0)
        return choose_action(request, ACTION_BIND);
    return strcmp(name, "find") == 0 && choose_action(request, ACTION_FIND);
}

/* Fills in the request, or an exit code in *code. */
static bool parse_arguments(int argc, char **argv, struct request *request, int *code)
{
    struct option longs[OPTION_COUNT + 1];
    char shorts[2 * OPTION_COUNT + 2];
    bool good = true;
    int option;

    *code = EXIT_DONE;
    fill_getopt(longs, shorts);
    while ((option = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (option == 'h') {
            print_usage(stdout);
            return false;
        }
        if (option == 'V') {
            puts("gpushare-door " GS_VERSION);
            return false;
        }
        good &= take_option(request, option);
    }
    request->program = argv + optind;
    if (optind < argc)
        good &= choose_action(request, ACTION_RUN);
    if (request->folder != NULL) /* of the mounts, which these two do not make */
        good &= request->action == ACTION_BIND || request->action == ACTION_RUN;
    if (good && request->action != ACTION_NONE)
        return true;
    print_usage(stderr);
    *code = EXIT_WRONG_USE;
    return false;
}

int main(int argc, char **argv)
{
    struct request request = {0};
    int code;

    if (gs_fd_open_standard(O_RDONLY) != 0)
        return EXIT_FAILED;
    if (gs_complete_asked(argc, argv))
        return complete_line(argc, argv);
    if (!parse_arguments(argc, argv, &request, &code))
        return fflush(stdout) == 0 ? code : EXIT_FAILED;
    return carry_out(&request);
}
