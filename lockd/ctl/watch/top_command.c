/* SPDX-License-Identifier: Apache-2.0
 *
 * top_command.c: `gpusharectl top`: shows the status on a terminal as it changes (top_table.c).
 * With --json it prints one object for each look, including rates.
 */
#include "lockd/ctl/json.h"
#include "common/size.h"
#include "lockd/base/text.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/watch/top_table.h"
#include "lockd/ctl/words.h"

#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The history of a device; NULL: there are too many devices. */
static struct top_history *find_history(struct top *top, const uint8_t *uuid)
{
    struct top_history *history;

    for (size_t i = 0; i < top->history_count; i++) {
        if (memcmp(top->history[i].uuid, uuid, sizeof top->history[i].uuid) == 0)
            return &top->history[i];
    }
    if (top->history_count == TOP_DEVICES)
        return NULL;
    history = &top->history[top->history_count++];
    memcpy(history->uuid, uuid, sizeof history->uuid);
    return history;
}

static void add_sample(struct top *top, size_t index)
{
    const struct gs_wire_device *device = &top->now.devices[index];
    struct top_history *history = find_history(top, device->uuid);
    struct top_sample sample = {.busy = ctl_device_busy(&top->now, index)};
    double allowed = 0;

    if (history == NULL)
        return;
    for (size_t i = 0; i < top->now.client_count; i++) {
        const struct gs_wire_client *client = &top->now.clients[i];
        struct ctl_rate rate;

        if (client->condition == GS_CONDITION_NO_DEVICE ||
            memcmp(client->uuid, device->uuid, sizeof device->uuid) != 0)
            continue;
        rate = ctl_rate_of(&top->before, &top->now, i, top->elapsed);
        sample.moved += rate.out + rate.in;
        allowed += rate.gpu;
    }
    sample.allowed = allowed > 1 ? 100 : (int)(allowed * 100 + 0.5);
    history->samples[history->count++ % TOP_SAMPLES] = sample;
}

/* Takes the next look. 0; or -errno with ctl->err, then the last answer stays. */
static int top_look_take(struct top *top)
{
    struct ctl_answer answer;
    const uint64_t now = lockd_now();
    int code;

    top->ctl->err = (struct gs_err){0};
    code = ctl_ask_status(top->ctl, &answer);
    if (code != 0)
        return code;
    ctl_gpus_look(top->nvml, &answer);
    ctl_pods_look(&answer);
    ctl_answer_deinit(&top->before);
    top->before = top->now;
    top->now = answer;
    top->line_count = 0; /* their indices belong to the answer before */
    top->elapsed = top->at != 0 ? now - top->at : 0;
    top->at = now;
    for (size_t i = 0; top->elapsed != 0 && i < answer.device_count; i++)
        add_sample(top, i);
    return 0;
}

/* Draws the screen: for each device its holder and the waiting programs, for each program
 * the place of its memory and the bytes that move. The last line shows the keys, or a
 * question. */

#define BAR_WIDTH   20
#define FOOTER      2 /* lines: the chosen program, the keys */
#define GRAPH_LABEL 10
#define GRAPH_VALUE 14

/* Sets up the colours, if they are wanted and the terminal has them. */
static void top_draw_colours(struct top *top)
{
    top->colour = ctl_colour_wanted() && has_colors();
    if (!top->colour)
        return;
    start_color();
    use_default_colors();
    init_pair(CTL_RUNS, COLOR_GREEN, -1);
    init_pair(CTL_WAITS, COLOR_YELLOW, -1);
    init_pair(CTL_MOVES, COLOR_CYAN, -1);
    init_pair(CTL_TROUBLE, COLOR_RED, -1);
    init_pair(CTL_HEAD, -1, -1); /* bold text is read on any background; dark blue is not */
    init_pair(CTL_GREY, COLORS >= 256 ? CTL_GREY_NUMBER : -1, -1);
}

/* attributes: of ncurses, in addition to the colour. */
__attribute__((format(printf, 4, 5))) static void
put_text(struct top *top, enum ctl_colour colour, attr_t attributes, const char *format, ...)
{
    const int y = top->row++ - top->skip;
    char text[1024], line[2048];
    va_list ap;

    if (y < 0 || y >= LINES - FOOTER)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (colour != CTL_PLAIN && top->colour)
        attributes |= (attr_t)COLOR_PAIR(colour);
    attron(attributes);
    mvaddstr(y, 0, lockd_text_cut(text, (size_t)COLS, line, sizeof line));
    attroff(attributes);
}

/* A row of the table, or its headings. */
static void put_row(struct top *top, size_t row, enum ctl_colour colour, attr_t attributes)
{
    char line[2048];

    put_text(top, colour, attributes, "%s",
             ctl_table_line(&top->table, row, CTL_TABLE_COLUMNS, "", "", line, sizeof line));
}

static void put_outsiders(struct top *top, const struct ctl_place *place)
{
    bool headed = place->device != NULL;

    for (size_t i = 0; i < top->now.outsider_count; i++) {
        const struct ctl_outsider *outsider = &top->now.outsiders[i];

        if (!ctl_outsider_there(&top->now, outsider, place) ||
            (top->view.filtered && outsider->uid != top->view.uid))
            continue;
        if (!headed)
            put_row(top, CTL_TABLE_HEADING, CTL_HEAD, A_BOLD);
        headed = true;
        put_row(top, top->line_count + i, CTL_GREY, COLORS >= 256 ? A_NORMAL : A_DIM);
    }
}

enum graph { GRAPH_BUSY, GRAPH_ALLOWED, GRAPH_MOVED };

static double value_of(const struct top_sample *sample, enum graph which)
{
    return which == GRAPH_MOVED     ? sample->moved
           : which == GRAPH_ALLOWED ? sample->allowed
                                    : sample->busy;
}

/* The newest sample at the right end. full: what the highest mark means. */
static void put_graph(struct top *top, const struct top_history *history, enum graph which,
                      const char *label)
{
    const int room = COLS - GRAPH_LABEL - GRAPH_VALUE;
    const unsigned columns = room < 1 ? 0 : room < TOP_SAMPLES ? (unsigned)room : TOP_SAMPLES;
    const struct top_sample *last = &history->samples[(history->count - 1) % TOP_SAMPLES];
    double values[TOP_SAMPLES], full = which == GRAPH_MOVED ? 0 : 100;
    char line[3 * TOP_SAMPLES + 1], value[40];

    for (unsigned i = 0; i < columns; i++) {
        const unsigned back = columns - i; /* 1: the newest */

        values[i] =
            back > history->count
                ? -1
                : value_of(&history->samples[(history->count - back) % TOP_SAMPLES], which);
        if (which == GRAPH_MOVED && values[i] > full)
            full = values[i];
    }
    for (unsigned i = 0; i < columns; i++)
        values[i] = values[i] < 0 || full == 0 ? (values[i] < 0 ? -1 : 0) : values[i] / full;
    if (which == GRAPH_MOVED)
        top_table_rate(last->moved, value, sizeof value);
    else
        ctl_percent((int)value_of(last, which), value, sizeof value);
    put_text(top, CTL_PLAIN, A_NORMAL, "  %-*s%s %*s", GRAPH_LABEL - 2, label,
             top_graph_line(values, columns, line, sizeof line), GRAPH_VALUE - 1, value);
}

static void put_history(struct top *top, const struct gs_wire_device *device)
{
    const struct top_history *history = find_history(top, device->uuid);

    if (top->view.without_graph || history == NULL || history->count == 0)
        return;
    if (history->samples[(history->count - 1) % TOP_SAMPLES].busy != CTL_BUSY_UNKNOWN)
        put_graph(top, history, GRAPH_BUSY, "busy");
    put_graph(top, history, GRAPH_ALLOWED, "allowed");
    put_graph(top, history, GRAPH_MOVED, "moved");
}

/* "GPU 0  NAME  41 C, 92 of 400 W  UUID" */
static void put_gpu(struct top *top, const struct nvml_gpu *gpu, const char *name,
                    const char *uuid)
{
    char number[24] = "", heat[CTL_HEAT_SIZE];

    if (gpu != NULL)
        snprintf(number, sizeof number, "GPU %u  ", gpu->index);
    ctl_heat_text(gpu, heat);
    put_text(top, CTL_PLAIN, A_NORMAL, "%s", "");
    put_text(top, CTL_PLAIN, A_BOLD, "%s%s  %s%s%s", number, name, heat,
             heat[0] != '\0' ? "  " : "", uuid);
}

static void put_device(struct top *top, const struct gs_wire_device *device)
{
    char bytes[4][24], memory[BAR_WIDTH + 3], time[24];

    put_text(
        top, CTL_PLAIN, A_NORMAL, "  %s %s of %s on the card, %s wanted",
        top_graph_bar(device->resident, device->pinned, 0, device->total, BAR_WIDTH, memory),
        gs_size_format(device->resident, bytes[0], sizeof bytes[0]),
        gs_size_format(device->total, bytes[1], sizeof bytes[1]),
        gs_size_format(device->demand, bytes[2], sizeof bytes[2]));
    put_text(top, CTL_PLAIN, A_NORMAL,
             "  %s external; %s, quantum %s, %llu waiting, %llu switches",
             gs_size_format(device->external, bytes[3], sizeof bytes[3]), ctl_mode_name(device),
             ctl_duration(device->quantum_ns, time, sizeof time),
             (unsigned long long)device->waiting, (unsigned long long)device->switches);
    put_history(top, device);
}

static void put_unused(struct top *top, const struct nvml_gpu *gpu)
{
    char bytes[2][24], busy[16];

    if (gpu->used != NVML_BYTES_UNKNOWN)
        put_text(top, CTL_PLAIN, A_NORMAL, "  no programs; %s of %s used, busy %s",
                 gs_size_format(gpu->used, bytes[0], sizeof bytes[0]),
                 gs_size_format(gpu->total, bytes[1], sizeof bytes[1]),
                 ctl_percent(gpu->busy, busy, sizeof busy));
    else
        put_text(top, CTL_PLAIN, A_NORMAL, "  no programs");
}

static void put_place(struct top *top, const struct ctl_place *place)
{
    const struct gs_wire_device *device = place->device;
    char uuid[LOCKD_UUID_SIZE];

    if (device != NULL) {
        put_gpu(top, place->gpu, device->name, lockd_uuid_text(device->uuid, uuid));
        put_device(top, device);
    } else {
        put_gpu(top, place->gpu, place->gpu->name, place->gpu->uuid);
        put_unused(top, place->gpu);
    }
    if (device != NULL)
        put_row(top, CTL_TABLE_HEADING, CTL_HEAD, A_BOLD);
    for (size_t i = 0; device != NULL && i < top->line_count; i++) {
        const struct gs_wire_client *client = &top->now.clients[top->lines[i].index];
        const bool chosen = &top->lines[i] == top_lines_chosen(top);

        if (memcmp(client->uuid, device->uuid, sizeof device->uuid) != 0)
            continue;
        if (chosen)
            top->chosen_row = top->row;
        /* a colour may be hard to read in reverse */
        put_row(top, i, chosen ? CTL_PLAIN : ctl_condition_colour(client->condition),
                chosen ? A_REVERSE : A_NORMAL);
    }
    put_outsiders(top, place);
}

static void put_all(struct top *top)
{
    struct ctl_place place;
    size_t without = 0;
    char time[24], user[64];

    top->row = top->chosen_row = 0;
    put_text(top, CTL_PLAIN, A_NORMAL,
             "gpushare-lockd %s (process %d), up %s, %llu programs, policy %s",
             top->now.daemon.version, top->now.daemon.pid,
             ctl_duration(top->now.daemon.uptime_ns, time, sizeof time),
             (unsigned long long)top->now.daemon.programs,
             ctl_policy_name(top->now.daemon.policy));
    if (top->view.filtered)
        put_text(top, CTL_HEAD, A_NORMAL, "only programs of %s (u: another user, or all)",
                 ctl_user_name(top->view.uid, user, sizeof user));
    for (size_t i = 0; ctl_place_at(&top->now, i, &place); i++)
        put_place(top, &place);
    for (size_t i = 0; i < top->now.client_count; i++)
        without += top->now.clients[i].condition == GS_CONDITION_NO_DEVICE;
    if (without != 0)
        put_text(top, CTL_PLAIN, A_NORMAL, "%zu programs have not used a device", without);
}

/* The whole name of the chosen program, and its notes. */
static void put_chosen(const struct top *top)
{
    const struct top_line *chosen = top->mode == TOP_HELP ? NULL : top_lines_chosen(top);
    char text[1280], notes[1024], user[64], line[2048];

    if (chosen == NULL)
        return;
    ctl_program_notes(&top->now, chosen->index, notes, sizeof notes);
    snprintf(text, sizeof text, " %s (process %d of %s)%s%s",
             top->now.clients[chosen->index].name, top->now.clients[chosen->index].pid,
             ctl_user_name(top->now.clients[chosen->index].uid, user, sizeof user),
             notes[0] != '\0' ? ": " : "", notes);
    mvaddstr(LINES - 2, 0, lockd_text_cut(text, (size_t)COLS, line, sizeof line));
}

static void put_footer(const struct top *top)
{
    char text[512], line[1024];
    const char *key;
    int at;

    switch (top->mode) {
    case TOP_CONFIRM:
        snprintf(text, sizeof text, " %s (y: yes, other keys: no)", top->pending.question);
        break;
    case TOP_INPUT:
        snprintf(text, sizeof text, " user, by name or number (none: all): %s_", top->input);
        break;
    case TOP_HELP:
        snprintf(text, sizeof text, " any key: back%s",
                 top_keys_help((size_t)(top->help + LINES - 1), line, sizeof line) != NULL
                     ? "  ?: more"
                     : "");
        break;
    default:
        if (top->message[0] != '\0') { /* the question needs the line */
            snprintf(text, sizeof text, " ? help  %.150s", top->message);
            break;
        }
        at = snprintf(text, sizeof text, " q quit  ? help  o order (%s%s)",
                      top_lines_order(top->view.order), top->view.reverse ? ", reversed" : "");
        for (size_t i = 0; (key = top_keys_footer(i)) != NULL; i++) {
            if (at + 2 + (int)strlen(key) <= COLS) /* as many as there is room for */
                at += snprintf(text + at, sizeof text - (size_t)at, "  %s", key);
        }
    }
    attron(A_REVERSE);
    mvaddstr(LINES - 1, 0, lockd_text_cut(text, (size_t)COLS, line, sizeof line));
    attroff(A_REVERSE);
}

/* Scrolls so that the chosen line is visible. False: it already was. */
static bool follow_chosen(struct top *top)
{
    const int before = top->skip, last = LINES - FOOTER - 1;

    if (top->chosen_row <= last) /* on the first screen, which shows the totals too */
        top->skip = 0;
    else if (top->chosen_row - top->skip > last)
        top->skip = top->chosen_row - last;
    else if (top->chosen_row < top->skip)
        top->skip = top->chosen_row;
    return top->skip != before;
}

/* Draws everything anew, scrolled so that the chosen line is on the screen. */
static void top_draw(struct top *top)
{
    char buffer[160], line[512];
    const char *text;

    erase();
    if (top->mode == TOP_HELP) {
        for (int i = 0; i < LINES - 1 && (text = top_keys_help((size_t)top->help + (size_t)i,
                                                               buffer, sizeof buffer)) != NULL;
             i++)
            mvaddstr(i, 0, lockd_text_cut(text, (size_t)COLS, line, sizeof line));
    } else if (top_lines_fill(top) && top_table_fill(top, COLS)) {
        put_all(top);
        if (follow_chosen(top)) {
            erase();
            put_all(top);
        }
    }
    put_chosen(top);
    put_footer(top);
    refresh();
}

#define LOOK_S 2 /* time for which a daemon that hangs may delay the keys */

/* Shows a fault of NVML once, if there is no other message. */
static void show_remark(struct top *top)
{
    const char *remark = top->message[0] == '\0' ? nvml_remark(top->nvml) : NULL;

    if (remark != NULL)
        snprintf(top->message, sizeof top->message, "%s", remark);
}

static enum ctl_exit show_screen(struct top *top, uint64_t interval_ns)
{
    struct pollfd ends[] = {{.fd = STDIN_FILENO}, {.fd = STDOUT_FILENO}};
    const char *terminal = getenv("TERM");
    SCREEN *screen;
    uint64_t next;
    bool on = true, lost;

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
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    top_draw_colours(top);
    show_remark(top);
    top->ctl->patience_s = LOOK_S;
    for (next = lockd_now() + interval_ns; on;) {
        const uint64_t now = lockd_now();

        top_draw(top);
        timeout(now >= next ? 0 : (int)((next - now) / 1000000) + 1);
        on = top_keys_take(top, getch());
        /* the terminal may be closed, and our starter may ignore SIGHUP */
        if (poll(ends, 2, 0) > 0 && ((ends[0].revents | ends[1].revents) & ~POLLNVAL) != 0)
            on = false;
        if (!on || lockd_now() < next)
            continue;
        next = lockd_now() + interval_ns;
        lost = top->lost;
        top->lost = top_look_take(top) != 0;
        if (top->lost) /* while the daemon does not answer, the screen stays and shows the reason */
            snprintf(top->message, sizeof top->message, "%.150s", top->ctl->err.text);
        else if (lost)
            top->message[0] = '\0';
        show_remark(top);
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
_Static_assert(sizeof(struct top_words) <= CTL_WORDS_SIZE, "the words of a command");

static const struct gs_option top_options[] = {
    {"interval", "SECONDS", GS_OPTION_SECONDS, NULL, 50000000u, 3600000000000u,
     "time between two updates (default: 1)", NULL, 0, offsetof(struct top_words, interval_ns)},
    {"count", "N", GS_OPTION_COUNT, NULL, 1, 1000000000, "end after N updates", NULL, 0,
     offsetof(struct top_words, count)},
    {"json", NULL, GS_OPTION_FLAG, NULL, 0, 0, "print a JSON object for each update", NULL, 0,
     offsetof(struct top_words, json)},
    {0},
};

static enum ctl_exit top_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct top_words *given = words;
    const uint64_t interval_ns = given->interval_ns != 0 ? given->interval_ns : 1000000000u;
    struct top *top;
    enum ctl_exit code;

    (void)count, (void)operands;
    if (!given->json && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
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
        code = given->json
                   ? print_json(top, interval_ns, given->count != 0 ? given->count : UINT64_MAX)
                   : show_screen(top, interval_ns);
    ctl_answer_deinit(&top->now);
    ctl_answer_deinit(&top->before);
    ctl_table_clear(&top->table);
    free(top->lines);
    nvml_close(top->nvml);
    free(top);
    return code;
}

const struct ctl_command ctl_top = {
    "top",   "",   "show memory, moved bytes and waiting programs as they change",
    top_run, NULL, top_options};
