/* SPDX-License-Identifier: Apache-2.0
 *
 * top.c: `gpusharectl top`: what `status` shows, as it changes, on a terminal: for each
 * device who holds it and who waits, for each program where its memory is, and how much moves.
 * With --json one object for each look, rates included.
 */
#include "common/size.h"
#include "lockd/ctl/rates.h"
#include "lockd/base/text.h"

#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 20
#define BAR_SMALL 10
#define WIDE      138 /* columns that all figures take; what 80 show of them is below */
#define LOOK_S    2   /* how long a daemon that hangs may keep the keys waiting */

enum colour { RUNS = 1, WAITS, MOVES, TROUBLE, HEAD };

enum order { BY_NAME, BY_MEMORY, BY_MOVED, BY_GPU, ORDERS };

static const char *const order_names[ORDERS] = {"process", "memory", "moved", "gpu time"};

/* Two looks, and what the user chose. */
struct top {
    struct ctl *ctl;
    struct ctl_answer now, before;
    uint64_t at, elapsed;
    enum order order;
    int row, skip; /* line being written; lines scrolled past */
    char message[160];
};

/* A program of the device being shown. */
struct line {
    const struct gs_wire_client *client;
    struct ctl_rate rate;
};

/* The next look. 0, or -errno with ctl->err; then the last one stays. */
static int take_look(struct top *top)
{
    struct ctl_answer answer;
    const uint64_t now = ctl_now();
    int code;

    top->ctl->err = (struct gs_err){0};
    code = ctl_ask_status(top->ctl, &answer);
    if (code != 0)
        return code;
    ctl_answer_deinit(&top->before);
    top->before = top->now;
    top->now = answer;
    top->elapsed = top->at != 0 ? now - top->at : 0;
    top->at = now;
    return 0;
}

static void put_line(struct top *top, int colour, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put_line(struct top *top, int colour, const char *format, ...)
{
    const int y = top->row++ - top->skip;
    char text[512], line[1024];
    va_list ap;

    if (y < 0 || y >= LINES - 1)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (colour != 0)
        attron(COLOR_PAIR(colour));
    mvaddstr(y, 0, lockd_text_fit(text, (size_t)COLS, line, sizeof line));
    if (colour != 0)
        attroff(COLOR_PAIR(colour));
}

/* "[######+++---.....]": of `total`: on the card, pinned there, on the host (what does not fit
 * into the bar is cut). */
static const char *draw_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
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
            end = at + 1; /* a little is not nothing */
        for (; at < end && at < width; at++)
            buffer[1 + at] = parts[i].mark;
    }
    for (; at < width; at++)
        buffer[1 + at] = '.';
    buffer[1 + width] = ']';
    buffer[2 + width] = '\0';
    return buffer;
}

static int colour_of(const struct gs_wire_client *client)
{
    switch (client->condition) {
    case GS_CONDITION_RUNS:
        return RUNS;
    case GS_CONDITION_WAITS:
        return WAITS;
    case GS_CONDITION_MOVING:
    case GS_CONDITION_STOPPING:
        return MOVES;
    case GS_CONDITION_STUCK:
    case GS_CONDITION_DOES_NOT_FIT:
        return TROUBLE;
    default:
        return 0;
    }
}

static void put_heading(struct top *top)
{
    if (COLS >= WIDE)
        put_line(top, HEAD, " %8s %-15s %-12s %-*s %9s %9s %9s %11s %11s %6s %6s %8s", "PID",
                 "NAME", "STATE", BAR_WIDTH + 2, "[#card +pinned -host]", "CARD", "HOST",
                 "PINNED", "OUT", "IN", "GPU", "TURNS", "LONGEST");
    else
        put_line(top, HEAD, " %7s %-12s %-12s %-*s %9s %9s %6s %5s", "PID", "NAME", "STATE",
                 BAR_SMALL + 2, "[#card -host", "OUT/s", "IN/s", "GPU", "TURNS");
}

static void put_client(struct top *top, const struct line *line,
                       const struct gs_wire_device *device)
{
    const struct gs_wire_client *client = line->client;
    const bool wide = COLS >= WIDE;
    char bytes[5][24], memory[BAR_WIDTH + 3], wait[24], name[80];

    draw_bar(client->resident, client->pinned, client->on_host, device->total,
             wide ? BAR_WIDTH : BAR_SMALL, memory);
    lockd_text_fit(client->name, wide ? 15 : 12, name, sizeof name);
    gs_size_format((uint64_t)line->rate.out, bytes[0], sizeof bytes[0]);
    gs_size_format((uint64_t)line->rate.in, bytes[1], sizeof bytes[1]);
    if (wide)
        put_line(top, colour_of(client),
                 " %8d %s %-12s %s %9s %9s %9s %9s/s %9s/s %5.1f%% %6llu %8s", client->pid,
                 name, ctl_condition_name(client->condition), memory,
                 gs_size_format(client->resident, bytes[2], sizeof bytes[2]),
                 gs_size_format(client->on_host, bytes[3], sizeof bytes[3]),
                 gs_size_format(client->pinned, bytes[4], sizeof bytes[4]), bytes[0], bytes[1],
                 line->rate.gpu * 100, (unsigned long long)client->turns,
                 ctl_duration(client->wait_longest_ns, wait, sizeof wait));
    else
        put_line(top, colour_of(client), " %7d %s %-12s %s %9s %9s %5.1f%% %5llu", client->pid,
                 name, ctl_condition_name(client->condition), memory, bytes[0], bytes[1],
                 line->rate.gpu * 100, (unsigned long long)client->turns);
}

static double key_of(const struct line *line, enum order order)
{
    switch (order) {
    case BY_MEMORY:
        return -(double)line->client->demand;
    case BY_MOVED:
        return -(line->rate.out + line->rate.in);
    case BY_GPU:
        return -line->rate.gpu;
    default:
        return line->client->pid;
    }
}

static void sort_lines(struct line *lines, size_t count, enum order order)
{
    for (size_t i = 1; i < count; i++) { /* they keep their places among equals */
        const struct line line = lines[i];
        size_t at = i;

        for (; at > 0 && key_of(&lines[at - 1], order) > key_of(&line, order); at--)
            lines[at] = lines[at - 1];
        lines[at] = line;
    }
}

static void put_device(struct top *top, const struct gs_wire_device *device, struct line *lines)
{
    char uuid[CTL_UUID_SIZE], bytes[4][24], memory[BAR_WIDTH + 3], time[24];
    size_t count = 0;

    for (size_t i = 0; i < top->now.client_count; i++) {
        const struct gs_wire_client *client = &top->now.clients[i];

        if (client->condition == GS_CONDITION_NO_DEVICE ||
            memcmp(client->uuid, device->uuid, sizeof device->uuid) != 0)
            continue;
        lines[count++] =
            (struct line){client, ctl_rate_of(&top->before, &top->now, i, top->elapsed)};
    }
    sort_lines(lines, count, top->order);
    put_line(top, 0, "%s", "");
    put_line(top, 0, "%s  %s", device->name, ctl_uuid(device->uuid, uuid));
    put_line(top, 0, "  %s %s of %s on the card, %s wanted",
             draw_bar(device->resident, device->pinned, 0, device->total, BAR_WIDTH, memory),
             gs_size_format(device->resident, bytes[0], sizeof bytes[0]),
             gs_size_format(device->total, bytes[1], sizeof bytes[1]),
             gs_size_format(device->demand, bytes[2], sizeof bytes[2]));
    put_line(top, 0, "  %s used by other programs; %s, quantum %s, %llu waiting, %llu switches",
             gs_size_format(device->external, bytes[3], sizeof bytes[3]),
             device->exclusive != 0 ? "exclusive"
             : device->leases != 0  ? "leases"
                                    : "open",
             ctl_duration(device->quantum_ns, time, sizeof time),
             (unsigned long long)device->waiting, (unsigned long long)device->switches);
    put_heading(top);
    for (size_t i = 0; i < count; i++)
        put_client(top, &lines[i], device);
}

static void draw_screen(struct top *top)
{
    struct line *lines = calloc(top->now.client_count + 1, sizeof *lines);
    size_t without = 0;
    char time[24];

    erase();
    if (top->skip > 0 && top->skip >= top->row) /* there are fewer lines than there were */
        top->skip = top->row > 0 ? top->row - 1 : 0;
    top->row = 0;
    put_line(top, 0, "gpushare-lockd %s (process %d), up %s, %llu programs, policy %s",
             top->now.daemon.version, top->now.daemon.pid,
             ctl_duration(top->now.daemon.uptime_ns, time, sizeof time),
             (unsigned long long)top->now.daemon.programs,
             ctl_policy_name(top->now.daemon.policy));
    for (size_t i = 0; lines != NULL && i < top->now.device_count; i++)
        put_device(top, &top->now.devices[i], lines);
    for (size_t i = 0; i < top->now.client_count; i++)
        without += top->now.clients[i].condition == GS_CONDITION_NO_DEVICE;
    if (without != 0)
        put_line(top, 0, "%zu programs have not used a device", without);
    free(lines);
    attron(A_REVERSE);
    mvprintw(LINES - 1, 0, " q quit  o order (%s)  arrows scroll  %.100s",
             order_names[top->order], top->message);
    attroff(A_REVERSE);
    refresh();
}

static bool take_key(struct top *top, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case 'o':
        top->order = (top->order + 1) % ORDERS;
        break;
    case KEY_DOWN:
        top->skip += top->skip < top->row - 1;
        break;
    case KEY_UP:
        top->skip -= top->skip > 0;
        break;
    default: /* a resize, or nothing */
        break;
    }
    return true;
}

static void start_screen(void)
{
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    start_color();
    use_default_colors();
    init_pair(RUNS, COLOR_GREEN, -1);
    init_pair(WAITS, COLOR_YELLOW, -1);
    init_pair(MOVES, COLOR_CYAN, -1);
    init_pair(TROUBLE, COLOR_RED, -1);
    init_pair(HEAD, COLOR_BLUE, -1);
}

/* The terminal was closed, and whoever started us ignores SIGHUP. */
static bool hung_up(void)
{
    struct pollfd ends[] = {{.fd = STDIN_FILENO}, {.fd = STDOUT_FILENO}};

    return poll(ends, 2, 0) > 0 && ((ends[0].revents | ends[1].revents) & ~POLLNVAL) != 0;
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
    start_screen();
    top->ctl->patience_s = LOOK_S;
    for (next = ctl_now() + interval_ns; on;) {
        const uint64_t now = ctl_now();

        draw_screen(top);
        timeout(now >= next ? 0 : (int)((next - now) / 1000000) + 1);
        on = take_key(top, getch()) && !hung_up();
        if (!on || ctl_now() < next)
            continue;
        next = ctl_now() + interval_ns;
        snprintf(top->message, sizeof top->message, "%.150s",
                 take_look(top) != 0 ? top->ctl->err.text : "");
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
        nanosleep(&pause, NULL);
        if (take_look(top) != 0)
            return ctl_fail(top->ctl);
        if (ctl_json_top(top->ctl, &top->now, &top->before, top->elapsed) != 0 ||
            ctl_done(CTL_OK) != CTL_OK)
            return CTL_FAILED;
    }
    return CTL_OK;
}

static enum ctl_exit top_run(struct ctl *ctl, int argc, char **argv)
{
    uint64_t interval_ns = 1000000000u, count = UINT64_MAX;
    struct top top = {.ctl = ctl};
    bool json = false;
    const struct lockd_option table[] = {
        {"interval", "SECONDS", LOCKD_OPTION_SECONDS, &interval_ns, 50000000u, 3600000000000u,
         NULL, NULL, 0},
        {"count", "N", LOCKD_OPTION_COUNT, &count, 1, 1000000000, NULL, NULL, 0},
        {.name = "json", .kind = LOCKD_OPTION_FLAG, .value = &json},
        {0},
    };
    enum ctl_exit code;
    int index = 1;

    if (lockd_options_parse(table, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_top, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_top, "takes options only, no arguments");
    if (!json && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
        gs_err_set(&ctl->err, -ENOTTY,
                   "top needs a terminal; for a pipe or a log use: "
                   "gpusharectl status, or top --json");
        return ctl_fail(ctl);
    }
    if (take_look(&top) != 0)
        return ctl_fail(ctl);
    code = json ? print_json(&top, interval_ns, count) : show_screen(&top, interval_ns);
    ctl_answer_deinit(&top.now);
    ctl_answer_deinit(&top.before);
    return code;
}

const struct ctl_command ctl_top = {
    "top", "[--interval SECONDS] [--json [--count N]]",
    "show memory, moved bytes and waiting programs as they change", top_run, NULL};
