/* SPDX-License-Identifier: Apache-2.0
 *
 * top_table.c: makes the rows of the programs, and of the processes that are not programs. No
 * state.
 */
#include "lockd/ctl/watch/top_table.h"
#include "common/fd.h"
#include "common/size.h"
#include "lockd/base/halt.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/words.h"

#include <ctype.h>
#include <langinfo.h>
#include <ncurses.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

/* The programs as lines: filtered by user, sorted within their device; and the chosen line.
 * The chosen program stays the same when its line moves. */

const char *top_lines_order(enum top_order order)
{
    static const char *const names[TOP_ORDERS] = {
        [TOP_BY_PROCESS] = "process", [TOP_BY_USER] = "user",       [TOP_BY_MEMORY] = "memory",
        [TOP_BY_MOVED] = "moved",     [TOP_BY_ALLOWED] = "allowed", [TOP_BY_BUSY] = "busy",
        [TOP_BY_WAIT] = "wait",
    };

    return names[order];
}

/* Smaller keys come first: figures are negated, numbers of users and processes are not. */
static double key_of(const struct top *top, const struct top_line *line)
{
    const struct gs_wire_client *client = &top->now.clients[line->index];

    switch (top->view.order) {
    case TOP_BY_USER:
        return client->uid;
    case TOP_BY_MEMORY:
        return -(double)client->demand;
    case TOP_BY_MOVED:
        return -(line->rate.out + line->rate.in);
    case TOP_BY_ALLOWED:
        return -line->rate.gpu;
    case TOP_BY_BUSY:
        return -(double)ctl_client_busy(&top->now, line->index);
    case TOP_BY_WAIT:
        return -(double)client->wait_longest_ns;
    default:
        return client->pid;
    }
}

static void sort_lines(const struct top *top, struct top_line *lines, size_t count)
{
    const double sign = top->view.reverse ? -1 : 1;

    for (size_t i = 1; i < count; i++) { /* equal ones keep their order */
        const struct top_line line = lines[i];
        const double key = sign * key_of(top, &line);
        size_t at = i;

        for (; at > 0 && sign * key_of(top, &lines[at - 1]) > key; at--)
            lines[at] = lines[at - 1];
        lines[at] = line;
    }
}

static void add_device(struct top *top, const struct gs_wire_device *device)
{
    const size_t first = top->line_count;

    for (size_t i = 0; i < top->now.client_count; i++) {
        const struct gs_wire_client *client = &top->now.clients[i];

        if (client->condition == GS_CONDITION_NO_DEVICE ||
            memcmp(client->uuid, device->uuid, sizeof device->uuid) != 0 ||
            (top->view.filtered && client->uid != top->view.uid) ||
            top->line_count == top->now.client_count)
            continue;
        top->lines[top->line_count++] =
            (struct top_line){i, ctl_rate_of(&top->before, &top->now, i, top->elapsed)};
    }
    sort_lines(top, top->lines + first, top->line_count - first);
}

bool top_lines_fill(struct top *top)
{
    struct top_line *lines =
        realloc(top->lines, (top->now.client_count + 1) * sizeof *top->lines);
    struct ctl_place place;

    top->line_count = 0;
    if (lines == NULL)
        return false;
    top->lines = lines;
    for (size_t i = 0; ctl_place_at(&top->now, i, &place); i++) {
        if (place.device != NULL)
            add_device(top, place.device);
    }
    return true;
}

static bool is_chosen(const struct top *top, const struct gs_wire_client *client)
{
    return client->pid == top->chosen.pid &&
           memcmp(client->uuid, top->chosen.uuid, sizeof client->uuid) == 0;
}

static size_t chosen_index(const struct top *top)
{
    unsigned twin = top->chosen.twin;

    for (size_t i = 0; i < top->line_count; i++) {
        if (is_chosen(top, &top->now.clients[top->lines[i].index]) && twin-- == 0)
            return i;
    }
    return 0;
}

const struct top_line *top_lines_chosen(const struct top *top)
{
    return top->line_count != 0 ? &top->lines[chosen_index(top)] : NULL;
}

/* Chooses the line so many lines below (negative: above), within the existing lines. */
static void top_lines_move(struct top *top, int by)
{
    const struct gs_wire_client *client;
    long to = (long)chosen_index(top) + by;

    if (top->line_count == 0)
        return;
    to = to < 0 ? 0 : to >= (long)top->line_count ? (long)top->line_count - 1 : to;
    client = &top->now.clients[top->lines[to].index];
    top->chosen.pid = client->pid;
    memcpy(top->chosen.uuid, client->uuid, sizeof top->chosen.uuid);
    top->chosen.twin = 0; /* a process may have two connections */
    for (long i = 0; i < to; i++)
        top->chosen.twin += is_chosen(top, &top->now.clients[top->lines[i].index]);
}

#define STEPS 8

const char *top_graph_line(const double *values, size_t columns, char *buffer, size_t size)
{
    static const char *const blocks[STEPS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[STEPS] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    const char *const *marks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? blocks : plain;
    size_t at = 0;

    for (size_t i = 0; i < columns; i++) {
        const double value = values[i] > 1 ? 1 : values[i];
        const char *mark = value < 0 ? " " : marks[(int)(value * (STEPS - 1) + 0.5)];

        if (at + strlen(mark) + 1 > size)
            break;
        at += (size_t)snprintf(buffer + at, size - at, "%s", mark);
    }
    buffer[at] = '\0';
    return buffer;
}

const char *top_graph_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
                          int width, char *buffer)
{
    const struct {
        uint64_t bytes;
        char mark;
    } parts[] = {{resident, '#'}, {pinned, '+'}, {host, '-'}};
    uint64_t sum = 0;
    int at = 0;

    buffer[0] = '[';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int end;

        sum += parts[i].bytes;
        end = total == 0 ? 0 : (int)((double)sum * width / (double)total + 0.5);
        if (parts[i].bytes != 0 && end == at)
            end = at + 1; /* a small value is visible */
        for (; at < end && at < width; at++)
            buffer[1 + at] = parts[i].mark;
    }
    for (; at < width; at++)
        buffer[1 + at] = '.';
    buffer[1 + width] = ']';
    buffer[2 + width] = '\0';
    return buffer;
}

#define BAR_WIDTH   10
#define STATE_LEAST 8 /* "stopping": the columns behind it do not jump */
#define BYTES_LEAST 9
#define RATE_LEAST  11
#define RATE_UNIT   5 /* "MiB/s" */

/* The columns from left to right. */
enum cell {
    PID,
    USER,
    NAME,
    STATE,
    BAR,
    CARD,
    HOST,
    PINNED,
    EXTERNAL,
    OUT,
    IN,
    ALLOWED,
    BUSY,
    TURNS,
    LONGEST
};

/* Ranks: the place of the memory comes first, then what the program does. */
static const struct ctl_column columns[] = {
    [PID] = {"PID", .least = 7},
    [USER] = {"USER", .left = true},
    [NAME] = {"NAME", .left = true},
    [STATE] = {"STATE", .left = true, .least = STATE_LEAST},
    [BAR] = {"MEMORY", .rank = 7, .left = true},
    [CARD] = {"CARD", .rank = 1, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH},
    [HOST] = {"HOST", .rank = 3, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH},
    [PINNED] = {"PINNED", .rank = 6, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH,
                .if_any = true},
    [EXTERNAL] = {"EXTERNAL", .rank = 2, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH,
                  .if_any = true},
    [OUT] = {"OUT", .rank = 8, .least = RATE_LEAST, .unit = RATE_UNIT},
    [IN] = {"IN", .rank = 8, .least = RATE_LEAST, .unit = RATE_UNIT},
    [ALLOWED] = {"ALLOWED", .rank = 5, .unit = 1},
    [BUSY] = {"BUSY", .rank = 4, .least = 5, .unit = 1},
    [TURNS] = {"TURNS", .rank = 10},
    [LONGEST] = {"LONGEST", .rank = 9, .least = 8, .unit = CTL_UNIT_WIDTH},
};

const char *top_table_rate(double bytes, char *buffer, size_t size)
{
    char text[24];

    snprintf(buffer, size, "%s/s", gs_size_format((uint64_t)bytes, text, sizeof text));
    return buffer;
}

static void fill_line(const struct top *top, const struct top_line *line, struct ctl_row *row)
{
    const struct gs_wire_client *client = &top->now.clients[line->index];
    uint64_t total = 0;

    for (size_t i = 0; i < top->now.device_count; i++) {
        if (memcmp(top->now.devices[i].uuid, client->uuid, sizeof client->uuid) == 0)
            total = top->now.devices[i].total;
    }
    snprintf(row->cell[PID], CTL_TABLE_CELL, "%d", client->pid);
    ctl_user_name(client->uid, row->cell[USER], CTL_TABLE_CELL);
    snprintf(row->cell[NAME], CTL_TABLE_CELL, "%s", client->name);
    snprintf(row->cell[STATE], CTL_TABLE_CELL, "%s", ctl_condition_name(client->condition));
    top_graph_bar(client->resident, client->pinned, client->on_host, total, BAR_WIDTH,
                  row->cell[BAR]);
    ctl_put_bytes(client->resident, row->cell[CARD]);
    ctl_put_bytes(client->on_host, row->cell[HOST]);
    if (client->pinned != 0)
        ctl_put_bytes(client->pinned, row->cell[PINNED]);
    ctl_put_bytes(ctl_client_external(&top->now, line->index), row->cell[EXTERNAL]);
    top_table_rate(line->rate.out, row->cell[OUT], CTL_TABLE_CELL);
    top_table_rate(line->rate.in, row->cell[IN], CTL_TABLE_CELL);
    ctl_percent((int)(line->rate.gpu * 100 + 0.5), row->cell[ALLOWED], CTL_TABLE_CELL);
    ctl_percent(ctl_client_busy(&top->now, line->index), row->cell[BUSY], CTL_TABLE_CELL);
    snprintf(row->cell[TURNS], CTL_TABLE_CELL, "%llu", (unsigned long long)client->turns);
    ctl_duration(client->wait_longest_ns, row->cell[LONGEST], CTL_TABLE_CELL);
}

bool top_table_fill(struct top *top, int width)
{
    ctl_table_clear(&top->table);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        ctl_table_column(&top->table, columns[i]);
    for (size_t i = 0; i < top->line_count + top->now.outsider_count; i++) {
        struct ctl_row *row = ctl_table_row(&top->table);

        if (row == NULL)
            return false;
        if (i < top->line_count)
            fill_line(top, &top->lines[i], row);
        else
            ctl_outsider_fill(&top->now.outsiders[i - top->line_count], row, EXTERNAL, BUSY);
    }
    ctl_table_fit(&top->table, width, NAME);
    return true;
}

/* The keys, their help and their actions. An action that changes a program needs a confirmation,
 * and applies to the program that the question named. */

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
