/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.c: the properties of standard output, and figures that line up on it. No state.
 */
#include "lockd/ctl/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MAX  1000
#define USUAL_COLUMN 80

enum ctl_colour ctl_condition_colour(uint32_t condition)
{
    switch (condition) {
    case GS_CONDITION_RUNS:
        return CTL_RUNS;
    case GS_CONDITION_WAITS:
        return CTL_WAITS;
    case GS_CONDITION_MOVING:
    case GS_CONDITION_STOPPING:
        return CTL_MOVES;
    case GS_CONDITION_STUCK:
    case GS_CONDITION_DOES_NOT_FIT:
    case GS_CONDITION_STOPPED:
    case GS_CONDITION_TRACED:
    case GS_CONDITION_FROZEN:
        return CTL_TROUBLE;
    default:
        return CTL_PLAIN;
    }
}

int ctl_terminal_columns(void)
{
    const char *text = getenv("COLUMNS");
    const long wanted = text != NULL ? strtol(text, NULL, 10) : 0;
    struct winsize size = {0};

    if (wanted > 0 && wanted <= COLUMNS_MAX)
        return (int)wanted;
    if (isatty(STDOUT_FILENO) == 0)
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return USUAL_COLUMN;
}

bool ctl_colour_wanted(void)
{
    const char *without = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return (without == NULL || *without == '\0') && terminal != NULL && *terminal != '\0' &&
           strcmp(terminal, "dumb") != 0;
}

bool ctl_terminal_colour(void)
{
    return isatty(STDOUT_FILENO) != 0 && ctl_colour_wanted();
}

const char *ctl_colour_start(enum ctl_colour colour)
{
    const char *terminal = getenv("TERM");

    if (colour == CTL_GREY)
        return terminal != NULL && strstr(terminal, "256") != NULL ? "\x1b[38;5;243m"
                                                                   : "\x1b[2m";
    static const char *const starts[] = {
        [CTL_PLAIN] = "",         [CTL_RUNS] = "\x1b[32m",    [CTL_WAITS] = "\x1b[33m",
        [CTL_MOVES] = "\x1b[36m", [CTL_TROUBLE] = "\x1b[31m", [CTL_HEAD] = "\x1b[1m",
    };

    return starts[colour];
}

const char *ctl_align(const char *text, int width, int unit_width, char *buffer, size_t size)
{
    const char *unit = strchr(text, ' ');
    const int number = unit != NULL ? (int)(unit - text) : (int)strlen(text);
    const int room = width - unit_width - 1;

    if (unit == NULL || number > room)
        snprintf(buffer, size, "%*s", width, text);
    else
        snprintf(buffer, size, "%*.*s %-*s", room, number, text, unit_width, unit + 1);
    return buffer;
}
