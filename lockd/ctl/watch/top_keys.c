/* SPDX-License-Identifier: Apache-2.0
 *
 * top_keys.c: the keys, their help and their actions. An action that
 * changes a program needs a confirmation, and applies to the program that the question named.
 */
#include "lockd/ctl/watch/top_keys.h"
#include "lockd/base/halt.h"
#include "lockd/ctl/program.h"
#include "lockd/ctl/watch/top_table.h"
#include "lockd/ctl/words.h"
#include "common/fd.h"

#include <ctype.h>
#include <errno.h>
#include <ncurses.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Finds the process of a program and sends it a signal. The process id from the daemon may
 * be of another pid namespace, or already belong to another process: owner and start time
 * must fit, and the signal goes through the descriptor that was checked. */

#define SECOND    1000000000ull
#define TOLERANCE (2 * SECOND) /* clock ticks are coarse, and the answer is not quite new */

static int check_process(const struct gs_wire_client *client, struct gs_err *err)
{
    struct timespec now;
    struct stat st;
    char path[64];
    uint64_t up;

    snprintf(path, sizeof path, "/proc/%d", client->pid);
    if (stat(path, &st) != 0)
        return gs_err_set(err, -ESRCH, "process %d cannot be seen from here", client->pid);
    clock_gettime(CLOCK_BOOTTIME, &now);
    up = (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
    if (st.st_uid != client->uid ||
        (up > client->connected_ns &&
         lockd_process_started(client->pid) * (SECOND / (uint64_t)sysconf(_SC_CLK_TCK)) >
             up - client->connected_ns + TOLERANCE))
        return gs_err_set(err, -ESRCH, "process %d is another one than the program shown here",
                          client->pid);
    return 0;
}

int top_process_open(const struct gs_wire_client *client, struct gs_err *err)
{
    int fd, code;

    if (client->pid <= 0 || (client->flags & GS_CLIENT_FOREIGN) != 0)
        return gs_err_set(err, -ESRCH,
                          "the program is in another pid namespace: end it from there");
    fd = (int)syscall(SYS_pidfd_open, client->pid, 0);
    if (fd < 0)
        return gs_err_errno(err, -errno, "process %d", client->pid);
    code = check_process(client, err);
    if (code != 0) {
        close(fd);
        return code;
    }
    return fd;
}

int top_process_signal(int pidfd, int number, struct gs_err *err)
{
    if (syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) != 0)
        return gs_err_errno(err, -errno, "no signal was sent");
    return 0;
}

#define PAGE      10
#define ESC       27
#define HELP_LINE 160

/* Asks whether the key is to act on the chosen program. */
static void ask_about(struct top *top, int key)
{
    const struct top_line *line = top_lines_chosen(top);
    const struct gs_wire_client *client = line != NULL ? &top->now.clients[line->index] : NULL;
    const bool paused = client != NULL && (client->flags & GS_CLIENT_PAUSED) != 0;
    struct gs_err err = {0};
    const char *what;
    char user[64];

    if (client == NULL) {
        snprintf(top->message, sizeof top->message, "there is no program to choose");
        return;
    }
    top->pending = (struct top_pending){.pidfd = -1, .act.pid = client->pid};
    if (key == 'p') {
        top->pending.act.op = paused ? GS_CONTROL_RESUME : GS_CONTROL_PAUSE;
        top->pending.act.done = paused ? "resumed" : "paused";
        what = paused ? "resume" : "pause";
    } else if (key == 'e') {
        top->pending.act.op = GS_CONTROL_EVICT;
        top->pending.act.done = "evicting";
        what = "move to the host all memory of";
    } else {
        top->pending.signal = key == 'K' ? SIGKILL : SIGTERM;
        top->pending.pidfd = top_process_open(client, &err);
        what = key == 'K' ? "kill with SIGKILL" : "end with SIGTERM";
    }
    if (err.code != 0) {
        snprintf(top->message, sizeof top->message, "%.150s", err.text);
        return;
    }
    snprintf(top->pending.question, sizeof top->pending.question,
             "%s %.32s (process %d of %.32s)?", what, client->name, client->pid,
             ctl_user_name(client->uid, user, sizeof user));
    top->mode = TOP_CONFIRM;
}

static bool take_command(struct top *top, int key)
{
    static const char orders[] = "PUMVABW"; /* in the order of enum top_order */
    const char *order = key > 0 && key < 128 ? strchr(orders, key) : NULL;

    top->message[0] = '\0';
    if (order != NULL)
        top->view.order = (enum top_order)(order - orders);
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case '?':
    case 'h':
        top->mode = TOP_HELP;
        top->help = 0;
        break;
    case 'o':
        top->view.order = (top->view.order + 1) % TOP_ORDERS;
        break;
    case 'r':
        top->view.reverse = !top->view.reverse;
        break;
    case 'g':
        top->view.without_graph = !top->view.without_graph;
        break;
    case 'u':
        top->mode = TOP_INPUT;
        top->input[0] = '\0';
        break;
    case KEY_DOWN:
    case KEY_UP:
        top_lines_move(top, key == KEY_DOWN ? 1 : -1);
        break;
    case KEY_NPAGE:
    case KEY_PPAGE:
        top_lines_move(top, key == KEY_NPAGE ? PAGE : -PAGE);
        break;
    case 'p':
    case 'e':
    case 'k':
    case 'K':
        ask_about(top, key);
        break;
    default:
        break;
    }
    return true;
}

static const char *const help[] = {
    "gpusharectl top: the programs that share each device",
    "",
    "  up, down    choose a program; page up, page down: ten lines",
    "  p           pause the chosen program, or resume it",
    "  e           move the chosen program's memory to the host until its next turn",
    "  k           end the chosen program (SIGTERM)",
    "  K           kill the chosen program (SIGKILL)",
    "  u           show one user's programs",
    "  o           next order; r: reverse the order",
    "  P U M V     order by process, user, memory, moved bytes",
    "  A B W       order by allowed, busy, longest wait",
    "  g           show or hide the graphs of each device",
    "  q           quit",
    "  ? h         show this help",
};

/* The keys, then the words. */
const char *top_keys_help(size_t line, char *buffer, size_t size)
{
    if (line < sizeof help / sizeof help[0])
        return help[line];
    line -= sizeof help / sizeof help[0];
    if (line-- == 0)
        return "";
    if (line-- == 0)
        return "memory     # on the card, + pinned there, - on the host";
    for (size_t i = 0; ctl_words[i].word != NULL; i++) {
        if (line-- == 0) {
            snprintf(buffer, size, "%-10s %s", ctl_words[i].word, ctl_words[i].meaning);
            return buffer;
        }
    }
    return NULL;
}

const char *top_keys_footer(size_t place)
{
    static const char *const texts[] = {"p pause",   "e evict",  "k end",
                                        "u user",    "g graphs", "arrows choose",
                                        "r reverse", "K kill",   "P U M V A B W orders"};

    return place < sizeof texts / sizeof texts[0] ? texts[place] : NULL;
}

/* Carries out the confirmed action. */
static void carry_out(struct top *top)
{
    struct top_pending *pending = &top->pending;
    struct gs_wire_end end = {0};
    struct gs_err err = {0};

    if (pending->act.op == 0 && top_process_signal(pending->pidfd, pending->signal, &err) != 0)
        snprintf(top->message, sizeof top->message, "%.150s", err.text);
    else if (pending->act.op == 0)
        snprintf(top->message, sizeof top->message, "sent %s",
                 pending->signal == SIGKILL ? "SIGKILL" : "SIGTERM");
    else if (ctl_control(top->ctl, &pending->act, &end) != 0)
        snprintf(top->message, sizeof top->message, "%.150s", top->ctl->err.text);
    else if (end.code != 0)
        snprintf(top->message, sizeof top->message, "%.150s", end.text);
    else
        snprintf(top->message, sizeof top->message, "%s %u %s", pending->act.done, end.count,
                 end.count == 1 ? "program" : "programs");
}

static void choose_user(struct top *top)
{
    const struct passwd *entry = getpwnam(top->input);
    char *end;
    unsigned long number;

    top->mode = TOP_NORMAL;
    top->view.filtered = false;
    if (top->input[0] == '\0')
        return;
    number = entry != NULL ? entry->pw_uid : strtoul(top->input, &end, 10);
    if (entry == NULL &&
        (!isdigit((unsigned char)top->input[0]) || *end != '\0' || number > UINT32_MAX)) {
        snprintf(top->message, sizeof top->message, "there is no user '%s'", top->input);
        return;
    }
    top->view.filtered = true;
    top->view.uid = (uint32_t)number;
}

static void take_letter(struct top *top, int key)
{
    const size_t length = strlen(top->input);

    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        choose_user(top);
    } else if (key == ESC) {
        top->mode = TOP_NORMAL;
    } else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length > 0) {
        top->input[length - 1] = '\0';
    } else if (key > ' ' && key < 127 && length + 1 < sizeof top->input) {
        top->input[length] = (char)key;
        top->input[length + 1] = '\0';
    }
}

bool top_keys_take(struct top *top, int key)
{
    char line[HELP_LINE];

    if (key == ERR || key == KEY_RESIZE)
        return true;
    switch (top->mode) {
    case TOP_CONFIRM:
        if (key == 'y' || key == 'Y')
            carry_out(top);
        else
            snprintf(top->message, sizeof top->message, "nothing was done");
        if (top->pending.pidfd >= 0)
            close(top->pending.pidfd);
        top->pending = (struct top_pending){.pidfd = -1};
        top->mode = TOP_NORMAL;
        return true;
    case TOP_INPUT:
        take_letter(top, key);
        return true;
    case TOP_HELP:
        top->help += LINES - 1;
        if (key != '?' || top_keys_help((size_t)top->help, line, sizeof line) == NULL)
            top->mode = TOP_NORMAL;
        return true;
    default:
        return take_command(top, key);
    }
}
