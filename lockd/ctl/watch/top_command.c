/* SPDX-License-Identifier: Apache-2.0
 *
 * top_command.c: `gpusharectl top`: shows the status on a terminal as it changes (top_draw.c,
 * top_keys.c). With --json it prints one object for each look, including rates.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/watch/top_draw.h"
#include "lockd/ctl/watch/top_keys.h"
#include "lockd/ctl/watch/top_look.h"

#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOK_S 2 /* time for which a daemon that hangs may delay the keys */

static void start_screen(struct top *top)
{
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    top_draw_colours(top);
}

/* Whether the terminal was closed, in case our starter ignores SIGHUP. */
static bool hung_up(void)
{
    struct pollfd ends[] = {{.fd = STDIN_FILENO}, {.fd = STDOUT_FILENO}};

    return poll(ends, 2, 0) > 0 && ((ends[0].revents | ends[1].revents) & ~POLLNVAL) != 0;
}

/* Shows a fault of NVML once, if there is no other message. */
static void show_remark(struct top *top)
{
    const char *remark = top->message[0] == '\0' ? nvml_remark(top->nvml) : NULL;

    if (remark != NULL)
        snprintf(top->message, sizeof top->message, "%s", remark);
}

/* Takes the next look. While the daemon does not answer, the screen stays and shows the reason. */
static void take_look(struct top *top)
{
    const bool lost = top->lost;

    top->lost = top_look_take(top) != 0;
    if (top->lost)
        snprintf(top->message, sizeof top->message, "%.150s", top->ctl->err.text);
    else if (lost)
        top->message[0] = '\0';
    show_remark(top);
}

static enum ctl_exit show_screen(struct top *top, uint64_t interval_ns)
{
    const char *terminal = getenv("TERM");
    SCREEN *screen;
    uint64_t next;
    bool on = true;

    screen = newterm(terminal, stdout, stdin);
    if (screen == NULL || tigetstr("cup") == NULL) {
        gs_err_set(&top->ctl->err, -ENOTTY,
                   "the terminal type '%s' %s: set TERM, or use top --json",
                   terminal != NULL ? terminal : "",
                   screen == NULL ? "is unknown on this machine" : "cannot move the cursor");
        if (screen != NULL) {
            endwin();
            delscreen(screen);
        }
        return ctl_fail(top->ctl);
    }
    start_screen(top);
    show_remark(top);
    top->ctl->patience_s = LOOK_S;
    for (next = ctl_now() + interval_ns; on;) {
        const uint64_t now = ctl_now();

        top_draw(top);
        timeout(now >= next ? 0 : (int)((next - now) / 1000000) + 1);
        on = top_keys_take(top, getch()) && !hung_up();
        if (!on || ctl_now() < next)
            continue;
        next = ctl_now() + interval_ns;
        take_look(top);
    }
    endwin();
    delscreen(screen);
    return CTL_OK;
}

static enum ctl_exit print_json(struct top *top, uint64_t interval_ns, uint64_t count)
{
    const struct timespec pause = {(time_t)(interval_ns / 1000000000u),
                                   (long)(interval_ns % 1000000000u)};

    for (uint64_t i = 0; i < count; i++) {
        const char *remark = nvml_remark(top->nvml);

        if (remark != NULL)
            fprintf(stderr, "gpusharectl: %s\n", remark);
        nanosleep(&pause, NULL);
        if (top_look_take(top) != 0)
            return ctl_fail(top->ctl);
        if (ctl_json_top(top->ctl, &top->now, &top->before, top->elapsed) != 0 ||
            ctl_done(CTL_OK) != CTL_OK)
            return CTL_FAILED;
    }
    return CTL_OK;
}

struct top_words {
    uint64_t interval_ns, count;
    bool json;
};

static const struct lockd_option top_options[] = {
    {"interval", "SECONDS", LOCKD_OPTION_SECONDS, NULL, 50000000u, 3600000000000u,
     "time between two updates (default: 1)", NULL, 0, offsetof(struct top_words, interval_ns)},
    {"count", "N", LOCKD_OPTION_COUNT, NULL, 1, 1000000000, "end after N updates", NULL, 0,
     offsetof(struct top_words, count)},
    {"json", NULL, LOCKD_OPTION_FLAG, NULL, 0, 0, "print a JSON object for each update", NULL,
     0, offsetof(struct top_words, json)},
    {0},
};

static enum ctl_exit top_run(struct ctl *ctl, int argc, char **argv)
{
    struct top_words words = {.interval_ns = 1000000000u, .count = UINT64_MAX};
    struct top *top;
    enum ctl_exit code;
    int index = 1;

    if (lockd_options_read(top_options, &words, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_top, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_top, "takes options only, no arguments");
    if (!words.json && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
        gs_err_set(&ctl->err, -ENOTTY,
                   "top needs a terminal; for a pipe or a log use: "
                   "gpusharectl status, or top --json");
        return ctl_fail(ctl);
    }
    top = calloc(1, sizeof *top);
    if (top == NULL)
        return CTL_FAILED;
    top->ctl = ctl;
    top->pending.pidfd = -1;
    top->nvml = nvml_open(NVML_KEPT);
    if (top_look_take(top) != 0)
        code = ctl_fail(ctl);
    else
        code = words.json ? print_json(top, words.interval_ns, words.count)
                          : show_screen(top, words.interval_ns);
    top_look_deinit(top);
    nvml_close(top->nvml);
    free(top);
    return code;
}

const struct ctl_command ctl_top = {
    "top",   "",   "show memory, moved bytes and waiting programs as they change",
    top_run, NULL, top_options};
