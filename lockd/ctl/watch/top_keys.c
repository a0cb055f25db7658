/* SPDX-License-Identifier: Apache-2.0
 *
 * top_keys.c: the table of keys, from which the help is made, and their actions. An action that
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

struct key {
    int code;                                 /* 0: this row is only a line of the help */
    bool (*take)(struct top *top, int value); /* false: the end */
    int value;
    const char *help;
};

static bool take_quit(struct top *top, int value)
{
    (void)top, (void)value;
    return false;
}

static bool take_help(struct top *top, int value)
{
    (void)value;
    top->mode = TOP_HELP;
    top->help = 0;
    return true;
}

static bool take_order(struct top *top, int value)
{
    top->view.order = (enum top_order)value;
    return true;
}

static bool take_next_order(struct top *top, int value)
{
    (void)value;
    top->view.order = (top->view.order + 1) % TOP_ORDERS;
    return true;
}

static bool take_reverse(struct top *top, int value)
{
    (void)value;
    top->view.reverse = !top->view.reverse;
    return true;
}

static bool take_graph(struct top *top, int value)
{
    (void)value;
    top->view.without_graph = !top->view.without_graph;
    return true;
}

static bool take_move(struct top *top, int value)
{
    top_lines_move(top, value);
    return true;
}

static bool take_user(struct top *top, int value)
{
    (void)value;
    top->mode = TOP_INPUT;
    top->input[0] = '\0';
    return true;
}

/* The program that the keys act on; NULL: there is none, and a message is shown. */
static const struct gs_wire_client *chosen_program(struct top *top)
{
    const struct top_line *line = top_lines_chosen(top);

    if (line == NULL)
        snprintf(top->message, sizeof top->message, "there is no program to choose");
    return line != NULL ? &top->now.clients[line->index] : NULL;
}

static void ask_about(struct top *top, const struct gs_wire_client *client, const char *what)
{
    char user[64];

    snprintf(top->pending.question, sizeof top->pending.question,
             "%s %.32s (process %d of %.32s)?", what, client->name, client->pid,
             ctl_user_name(client->uid, user, sizeof user));
    top->mode = TOP_CONFIRM;
}

static bool take_pause(struct top *top, int value)
{
    const struct gs_wire_client *client = chosen_program(top);
    bool paused;

    (void)value;
    if (client == NULL)
        return true;
    paused = (client->flags & GS_CLIENT_PAUSED) != 0;
    top->pending = (struct top_pending){
        .act = {.op = paused ? GS_CONTROL_RESUME : GS_CONTROL_PAUSE,
                .pid = client->pid,
                .done = paused ? "resumed" : "paused"},
        .pidfd = -1,
    };
    ask_about(top, client, paused ? "resume" : "pause");
    return true;
}

static bool take_evict(struct top *top, int value)
{
    const struct gs_wire_client *client = chosen_program(top);

    (void)value;
    if (client == NULL)
        return true;
    top->pending = (struct top_pending){
        .act = {.op = GS_CONTROL_EVICT, .pid = client->pid, .done = "evicting"},
        .pidfd = -1,
    };
    ask_about(top, client, "move to the host all memory of");
    return true;
}

static bool take_kill(struct top *top, int value)
{
    const struct gs_wire_client *client = chosen_program(top);
    struct gs_err err = {0};
    int pidfd;

    if (client == NULL)
        return true;
    pidfd = top_process_open(client, &err);
    if (pidfd < 0) {
        snprintf(top->message, sizeof top->message, "%.150s", err.text);
        return true;
    }
    top->pending = (struct top_pending){.signal = value, .pidfd = pidfd};
    ask_about(top, client, value == SIGKILL ? "kill with SIGKILL" : "end with SIGTERM");
    return true;
}

static const struct key keys[] = {
    {0, NULL, 0, "gpusharectl top: the programs that share each device"},
    {0, NULL, 0, ""},
    {0, NULL, 0, "  up, down    choose a program; page up, page down: ten lines"},
    {'p', take_pause, 0, "  p           pause the chosen program, or resume it"},
    {'e', take_evict, 0,
     "  e           move the chosen program's memory to the host until its next turn"},
    {'k', take_kill, SIGTERM, "  k           end the chosen program (SIGTERM)"},
    {'K', take_kill, SIGKILL, "  K           kill the chosen program (SIGKILL)"},
    {'u', take_user, 0, "  u           show one user's programs"},
    {'o', take_next_order, 0, "  o           next order; r: reverse the order"},
    {'P', take_order, TOP_BY_PROCESS,
     "  P U M V     order by process, user, memory, moved bytes"},
    {'A', take_order, TOP_BY_ALLOWED, "  A B W       order by allowed, busy, longest wait"},
    {'g', take_graph, 0, "  g           show or hide the graphs of each device"},
    {'q', take_quit, 0, "  q           quit"},
    {'?', take_help, 0, "  ? h         show this help"},
    {'h', take_help, 0, NULL},
    {'Q', take_quit, 0, NULL},
    {'r', take_reverse, 0, NULL},
    {'U', take_order, TOP_BY_USER, NULL},
    {'M', take_order, TOP_BY_MEMORY, NULL},
    {'V', take_order, TOP_BY_MOVED, NULL},
    {'B', take_order, TOP_BY_BUSY, NULL},
    {'W', take_order, TOP_BY_WAIT, NULL},
    {KEY_DOWN, take_move, 1, NULL},
    {KEY_UP, take_move, -1, NULL},
    {KEY_NPAGE, take_move, PAGE, NULL},
    {KEY_PPAGE, take_move, -PAGE, NULL},
};

#define KEY_COUNT (sizeof keys / sizeof keys[0])

/* The keys, then the words. */
const char *top_keys_help(size_t line, char *buffer, size_t size)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (keys[i].help != NULL && line-- == 0)
            return keys[i].help;
    }
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

static void take_answer(struct top *top, int key)
{
    if (key == 'y' || key == 'Y')
        carry_out(top);
    else
        snprintf(top->message, sizeof top->message, "nothing was done");
    if (top->pending.pidfd >= 0)
        close(top->pending.pidfd);
    top->pending = (struct top_pending){.pidfd = -1};
    top->mode = TOP_NORMAL;
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
        take_answer(top, key);
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
        break;
    }
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (keys[i].take != NULL && keys[i].code == key) {
            top->message[0] = '\0';
            return keys[i].take(top, keys[i].value);
        }
    }
    return true;
}
