/* SPDX-License-Identifier: Apache-2.0
 *
 * program.c: `gpusharectl pause|resume|evict|suspend PID`, `set`, `get`, `reload`, `move` and
 * `account`; also the function by which all commands request a change and print its outcome.
 */
#include "lockd/ctl/program.h"
#include "lockd/ctl/json.h"
#include "common/size.h"
#include "lockd/protocol/setting_table.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/words.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ctl_pid(const char *text, int32_t *pid)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value <= 0 || value > INT32_MAX)
        return -EINVAL;
    *pid = (int32_t)value;
    return 0;
}

int ctl_control(struct ctl *ctl, const struct ctl_act *act, struct gs_wire_end *end)
{
    struct gs_wire_control control = {.op = act->op, .pid = act->pid, .value = act->value};
    struct ctl_answer answer;
    int code;

    lockd_wire_header(&control.header, GS_WIRE_CONTROL);
    code = ctl_ask(ctl, &control, sizeof control, &answer);
    if (code != 0)
        return code;
    *end = answer.end;
    ctl_answer_deinit(&answer);
    return 0;
}

/* Prints the outcome of a request: the error in ctl->err (code is not 0), or the daemon's refusal;
 * as JSON success, too. Returns the exit code. */
static enum ctl_exit ctl_outcome(struct ctl *ctl, int code, const struct gs_wire_end *end,
                                 bool json)
{
    const int error = code != 0 ? code : end->code;

    if (json)
        ctl_json_put(
            json_pack("{s:b, s:I, s:i, s:o*}", "ok", error == 0, "programs",
                      (json_int_t)(code != 0 ? 0 : end->count), "errno", -error, "error",
                      error != 0 ? ctl_json_text(code != 0 ? ctl->err.text : end->text) : NULL),
            JSON_INDENT(2));
    return code != 0 ? ctl_fail(ctl) : end->code != 0 ? ctl_refused(end) : ctl_done(CTL_OK);
}

/* Carries out one control operation and prints the outcome ("paused", for example, and the number
 * of programs) or the error, as text or as JSON. */
static enum ctl_exit ctl_act(struct ctl *ctl, const struct ctl_act *act)
{
    struct gs_wire_end end = {0};
    const int code = ctl_control(ctl, act, &end);

    if (code == 0 && end.code == 0 && act->done != NULL && !act->json)
        printf("%s %u %s\n", act->done, end.count, end.count == 1 ? "program" : "programs");
    return ctl_outcome(ctl, code, &end, act->json);
}

/* The same, and prints an error in the command line. */
static int ctl_pid_operand(struct ctl *ctl, const char *text, int32_t *pid)
{
    const int code = ctl_pid(text, pid);

    if (code != 0)
        ctl_usage(ctl, "'%s' is not a process id", text);
    return code;
}

/* A command that consists of one control operation. */
static enum ctl_exit operate_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    static const struct operation {
        const struct ctl_command *command;
        uint32_t op;
        const char *done;
    } operations[] = {{&ctl_pause, GS_CONTROL_PAUSE, "paused"},
                      {&ctl_resume, GS_CONTROL_RESUME, "resumed"},
                      {&ctl_evict, GS_CONTROL_EVICT, "evicting"},
                      {&ctl_suspend, GS_CONTROL_SUSPEND, "suspended"},
                      {&ctl_reload, GS_CONTROL_RELOAD, NULL}};
    const bool all = strstr(ctl->command->arguments, "all") != NULL;
    const struct operation *operation = operations;
    struct ctl_act act = {.json = *(const bool *)words};

    while (operation->command != ctl->command)
        operation++;
    act.op = operation->op;
    act.done = operation->done;
    if (ctl->command->arguments[0] != '\0') {
        if (count != 1)
            return ctl_usage(ctl, all ? "give one process id, or all" : "give one process id");
        if ((!all || strcmp(operands[0], "all") != 0) &&
            ctl_pid_operand(ctl, operands[0], &act.pid) != 0)
            return CTL_USAGE;
    }
    return ctl_act(ctl, &act);
}

const struct ctl_command ctl_pause = {
    "pause",
    "PID|all",
    "keep a program from running on GPUs; its memory stays until others need it",
    operate_run,
    NULL,
    ctl_json_option};
const struct ctl_command ctl_resume = {
    "resume",    "PID|all", "let a paused or suspended program run again",
    operate_run, NULL,      ctl_json_option};
const struct ctl_command ctl_evict = {
    "evict",     "PID|all", "move the memory of a program to the host until its next turn",
    operate_run, NULL,      ctl_json_option};
const struct ctl_command ctl_suspend = {
    "suspend",   "PID", "pause a program and move all its memory to the host",
    operate_run, NULL,  ctl_json_option};
const struct ctl_command ctl_reload = {
    "reload",    "",   "make the daemon read its configuration files again",
    operate_run, NULL, ctl_json_option};

/* `gpusharectl set NAME [PID] VALUE`: changes settings of the running daemon, until it ends
 * or reads its configuration again, or of one program, until it ends. `gpusharectl reload`:
 * makes the daemon read its configuration again. */

static void list_settings(void)
{
    puts("\nsettings");
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        char left[80];

        if (at->op == 0)
            continue;
        snprintf(left, sizeof left, "  %s %s%s", at->name,
                 at->scope == LOCKD_SCOPE_PROGRAM ? "PID " : "", at->argument);
        gs_help_row(stdout, left, 35, at->help, NULL);
    }
}

/* Says it where a program has more than the limit that was just set: a limit takes nothing
 * away. */
static void look_below(struct ctl *ctl, const struct ctl_act *act)
{
    struct ctl_answer answer;
    char demand[24], limit[24];

    if (ctl_ask_status(ctl, &answer) != 0)
        return;
    gs_each (client, answer.clients, answer.client_count) {
        const uint64_t has = client->demand + client->pinned;

        if (client->pid == act->pid && has > act->value)
            fprintf(
                stderr,
                "gpusharectl: process %d has %s now, more than the limit of %s: it keeps that, "
                "and gets no more until it has less\n",
                act->pid, gs_size_format(has, demand, sizeof demand),
                gs_size_format(act->value, limit, sizeof limit));
    }
    ctl_answer_deinit(&answer);
}

/* NULL: there is no such setting, which is printed. */
static const struct lockd_setting *need_setting(const struct ctl *ctl, const char *name,
                                                const char *list)
{
    const struct lockd_setting *setting = lockd_setting_find(name);
    char hint[64];

    if (setting == NULL)
        ctl_usage(ctl, "there is no setting '%s' (%s lists them)%s", name, list,
                  lockd_setting_hint(name, hint, sizeof hint));
    return setting;
}

static enum ctl_exit set_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    struct ctl_act act = {.json = *(const bool *)words};
    const struct lockd_setting *setting;
    struct gs_option option;
    enum ctl_exit code;
    bool of_program;

    if (count == 0)
        return ctl_usage(ctl, "give a name and a value (set --help lists them)");
    setting = need_setting(ctl, operands[0], "set --help");
    if (setting == NULL)
        return CTL_USAGE;
    if (setting->op == 0)
        return ctl_usage(
            ctl,
            "%s can only be set in the daemon's configuration file: change it there, "
            "then run gpusharectl reload",
            setting->name);
    act.op = setting->op;
    of_program = setting->scope == LOCKD_SCOPE_PROGRAM;
    if (count != (of_program ? 3 : 2))
        return ctl_usage(ctl, "%s is set like this: %s %s%s", setting->name, setting->name,
                         of_program ? "PID " : "", setting->argument);
    if (of_program && ctl_pid_operand(ctl, operands[1], &act.pid) != 0)
        return CTL_USAGE;
    option = lockd_setting_option(setting, &act.value);
    if (gs_option_value(&option, operands[count - 1], &ctl->err) != 0)
        return ctl_usage(ctl, "%s", ctl->err.text);
    code = ctl_act(ctl, &act);
    if (code == CTL_OK && strcmp(setting->name, "limit") == 0)
        look_below(ctl, &act);
    return code;
}

const struct ctl_command ctl_set = {
    "set",   "NAME [PID] VALUE", "change a setting (set --help lists them)",
    set_run, list_settings,      ctl_json_option};

#define VALUE_SIZE 72

/* The value in the form that `gpusharectl set` takes. A row that only another release knows
 * is a plain number. */
static const char *format_value(const struct gs_wire_setting *setting, uint64_t value,
                                bool with_unit, char *buffer)
{
    const struct lockd_setting *row = lockd_setting_find(setting->name);

    if (row == NULL)
        snprintf(buffer, VALUE_SIZE, "%" PRIu64, value);
    else if (row->kind == GS_OPTION_NAME)
        snprintf(buffer, VALUE_SIZE, "%s", setting->text);
    else
        lockd_setting_format(row, value, with_unit, buffer, VALUE_SIZE);
    return buffer;
}

static json_t *value_json(const struct gs_wire_setting *setting, uint64_t value)
{
    const struct lockd_setting *row = lockd_setting_find(setting->name);
    char text[VALUE_SIZE];

    switch (row != NULL ? row->kind : GS_OPTION_COUNT) {
    case GS_OPTION_CHOICE:
    case GS_OPTION_NAME:
        return ctl_json_text(format_value(setting, value, false, text));
    case GS_OPTION_YES:
        return json_boolean(value == 1);
    case GS_OPTION_SIGNED:
        return json_integer((json_int_t)value);
    default:
        return value == UINT64_MAX ? json_null() : json_integer((json_int_t)value);
    }
}

static json_t *setting_json(const struct gs_wire_setting *setting)
{
    const struct lockd_setting *row = lockd_setting_find(setting->name);
    json_t *object = json_pack(
        "{s:o, s:o, s:o, s:s, s:s}", "name", ctl_json_text(setting->name), "value",
        value_json(setting, setting->value), "in_force", value_json(setting, setting->in_force),
        "unit", row != NULL ? lockd_setting_unit(row) : "", "help",
        row != NULL ? row->help : "");

    if (setting->pid != 0) {
        json_object_set_new(object, "pid", json_integer(setting->pid));
        json_object_set_new(object, "program", ctl_json_text(setting->program));
    }
    return object;
}

static void print_row(const struct gs_wire_setting *setting)
{
    const struct lockd_setting *row = lockd_setting_find(setting->name);
    char value[VALUE_SIZE], in_force[VALUE_SIZE], both[2 * VALUE_SIZE + 4];

    format_value(setting, setting->value, true, value);
    format_value(setting, setting->in_force, true, in_force);
    if (row != NULL && row->kind == GS_OPTION_SIZE && setting->in_force != UINT64_MAX &&
        setting->in_force != setting->value) /* measured, so rarely a round number */
        gs_size_format(setting->in_force, in_force, sizeof in_force);
    if (strcmp(value, in_force) == 0)
        snprintf(both, sizeof both, "%s", value);
    else
        snprintf(both, sizeof both, "%s (%s)", value, in_force);
    printf("%-16s %-18s %s\n", setting->name, both, row != NULL ? row->help : "");
}

/* name: NULL for all of them. */
static enum ctl_exit print_settings(const struct ctl_answer *answer, const char *name,
                                    bool json)
{
    json_t *array = json ? json_array() : NULL;
    int code = 0;

    gs_each (setting, answer->settings, answer->setting_count) {
        char value[VALUE_SIZE];

        if (name != NULL && strcmp(name, setting->name) != 0)
            continue;
        if (json)
            json_array_append_new(array, setting_json(setting));
        else if (name == NULL)
            print_row(setting);
        else
            puts(format_value(setting, setting->value, false, value));
    }
    if (json)
        code = ctl_json_put(json_pack("{s:o}", "settings", array), JSON_INDENT(2));
    return ctl_done(code == 0 ? CTL_OK : CTL_FAILED);
}

static enum ctl_exit get_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const char *name = count != 0 ? operands[0] : NULL;
    const struct lockd_setting *setting = name != NULL ? need_setting(ctl, name, "get") : NULL;
    const bool of_program = setting != NULL && setting->scope == LOCKD_SCOPE_PROGRAM;
    struct gs_wire_get get = {.pid = 0};
    struct ctl_answer answer;
    enum ctl_exit code;

    if (name != NULL && setting == NULL)
        return CTL_USAGE;
    if (name != NULL && count != (of_program ? 2 : 1))
        return ctl_usage(ctl,
                         of_program ? "%s is a setting of a program: give a process id"
                                    : "%s is a setting of the daemon: it takes no process id",
                         name);
    if (of_program && ctl_pid_operand(ctl, operands[1], &get.pid) != 0)
        return CTL_USAGE;
    lockd_wire_header(&get.header, GS_WIRE_GET);
    if (ctl_ask(ctl, &get, sizeof get, &answer) != 0)
        return ctl_fail(ctl);
    code = answer.end.code != 0 ? ctl_refused(&answer.end)
                                : print_settings(&answer, name, *(const bool *)words);
    ctl_answer_deinit(&answer);
    return code;
}

const struct ctl_command ctl_get = {"get",   "[NAME [PID]]", "show the current settings",
                                    get_run, NULL,           ctl_json_option};

/* time for its work to finish, its memory to leave, and the driver to move it */
#define PATIENCE_S 180
#define UUID_BYTES 16

/* The UUID of a GPU by its number, as nvidia-smi counts. */
static int find_index(struct ctl *ctl, const char *text, uint8_t uuid[UUID_BYTES])
{
    struct ctl_answer answer = {0};
    const struct nvml_gpu *gpu;
    bool found;

    if (*text == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 3)
        return gs_err_set(&ctl->err, -ENODEV, "GPU %s: give its number or its UUID", text);
    ctl_gpus_look_once(&answer);
    gpu = nvml_gpu_number(&answer.gpus, (unsigned)strtoul(text, NULL, 10));
    found = gpu != NULL && lockd_uuid_read(gpu->uuid, uuid);
    ctl_answer_deinit(&answer);
    if (found)
        return 0;
    return gs_err_set(&ctl->err, -ENODEV, "GPU %s is not known to NVML: give its UUID", text);
}

static enum ctl_exit move_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    struct gs_wire_relocate relocate = {.pid = 0};
    struct gs_wire_end end = {.code = 0};
    struct ctl_answer answer;
    const bool json = *(const bool *)words;
    int code;

    if (count != 2)
        return ctl_usage(ctl, "give one process id and one GPU");
    if (ctl_pid_operand(ctl, operands[0], &relocate.pid) != 0)
        return CTL_USAGE;
    /* without a daemon the error is that, not that a GPU is not known */
    code = ctl_connect(ctl);
    if (code >= 0) {
        close(code);
        code = 0;
    }
    if (code == 0 && !lockd_uuid_read(operands[1], relocate.uuid)) {
        memset(relocate.uuid, 0, UUID_BYTES);
        code = find_index(ctl, operands[1], relocate.uuid);
    }
    if (code != 0)
        return ctl_outcome(ctl, code, &end, json);
    ctl->patience_s = PATIENCE_S;
    lockd_wire_header(&relocate.header, GS_WIRE_RELOCATE);
    code = ctl_ask(ctl, &relocate, sizeof relocate, &answer);
    if (code == 0) {
        end = answer.end;
        ctl_answer_deinit(&answer);
    } else if (code == -EPIPE || code == -ETIMEDOUT) {
        /* the daemon has ended, or is slow: the move may have begun */
        const struct gs_err why = ctl->err;

        ctl->err = (struct gs_err){0};
        gs_err_set(&ctl->err, code,
                   "%s; the move may continue without it: `gpusharectl status` shows where the "
                   "program is",
                   why.text);
    }
    if (code == 0 && end.code == 0 && !json)
        printf("moved process %d %s\n", (int)relocate.pid, end.text);
    return ctl_outcome(ctl, code, &end, json);
}

static void move_details(void)
{
    puts("\nGPU: the number of a GPU as nvidia-smi counts, or its UUID.");
}

const struct ctl_command ctl_move = {
    "move",   "PID GPU",    "move a running program to another GPU of the same model",
    move_run, move_details, ctl_json_option};

/* `gpusharectl account GROUP`: prints the sums of what the programs of a group used, for
 * batch systems that record them when a job's step has ended. */

#define FIGURE(kind, field, words)                                                             \
    {                                                                                          \
        .unit = LOCKD_FIGURE_##kind, .json = #field, .help = words,                            \
        .offset = offsetof(struct gs_wire_account, field)                                      \
    }

/* In the order in which they are printed. */
static const struct lockd_figure figures[] = {
    FIGURE(BYTES, moved_out, "moved out"),
    FIGURE(BYTES, moved_in, "moved in"),
    FIGURE(NS, gpu_ns, "ran for"),
    FIGURE(NS, wait_ns, "waited for"),
    FIGURE(NS, wait_longest_ns, "longest wait"),
};

#define FIGURE_COUNT (sizeof figures / sizeof *figures)

/* 0 or -ENOMEM. */
static int print_account(const struct gs_wire_account *account, bool json)
{
    json_t *root = NULL;

    if (json)
        root = json_pack("{s:o, s:i, s:i}", "group", ctl_json_text(account->group), "programs",
                         (int)account->programs, "connected", (int)account->connected);
    else
        printf("%u %s, %u connected", account->programs,
               account->programs == 1 ? "program" : "programs", account->connected);
    for (size_t i = 0; i < FIGURE_COUNT; i++) {
        const uint64_t value = lockd_figure_value(&figures[i], account);
        char text[32];

        if (json)
            json_object_set_new(root, figures[i].json, json_integer((json_int_t)value));
        else
            printf(", %s %s", figures[i].help,
                   ctl_figure_text(&figures[i], value, text, sizeof text));
    }
    if (json)
        return ctl_json_put(root, JSON_COMPACT);
    putchar('\n');
    return 0;
}

static enum ctl_exit account_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    struct gs_wire_account question = {0};
    struct ctl_answer answer;
    int code;

    if (count != 1 || operands[0][0] == '\0')
        return ctl_usage(ctl, "give one group");
    if (strlen(operands[0]) >= sizeof question.group)
        return ctl_usage(ctl, "a group has at most %zu characters", sizeof question.group - 1);
    lockd_wire_header(&question.header, GS_WIRE_ACCOUNT);
    snprintf(question.group, sizeof question.group, "%s", operands[0]);
    if (ctl_ask(ctl, &question, sizeof question, &answer) != 0)
        return ctl_fail(ctl);
    code = answer.end.code;
    if (code != 0)
        ctl_refused(&answer.end);
    else
        code = print_account(&answer.account, *(const bool *)words);
    ctl_answer_deinit(&answer);
    return ctl_done(code == 0 ? CTL_OK : CTL_FAILED);
}

const struct ctl_command ctl_account = {
    "account",   "GROUP", "show sums over a group's programs, ended ones included",
    account_run, NULL,    ctl_json_option};
