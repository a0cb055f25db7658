/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_command.c: `gpusharectl doctor [PID|FILE]`: finds out why a program does not share. Checks
 * the machine and the daemon, and a program if it is named; prints its findings with advice.
 */
#include "lockd/ctl/doctor/doctor_process.h"
#include "lockd/ctl/doctor/doctor_system.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/program.h"
#include "common/size.h"
#include "lockd/ctl/words.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOCTOR_GROUP_COMMAND "sudo usermod -aG gpushare \"$USER\""

#define HOST_LOW_PART 20 /* host memory counts as used up with less than this part of it left */

/* only: there is no other place. */
static void look_at_folder(struct doctor *doctor, const char *path, bool only)
{
    const char *slash = strrchr(path, '/');
    const int length = slash > path ? (int)(slash - path) : 1;
    struct gs_err err = {0};
    const int code = gs_place_look(path, false, &err);

    if (code == 0)
        doctor_add(doctor, "socket.folder", DOCTOR_OK, NULL, "%.*s: owner and mode are right",
                   length, path);
    else if (code == -ENOENT && only)
        doctor_add(doctor, "socket.folder", DOCTOR_INFO, NULL,
                   "%.*s: does not exist yet; the first daemon creates it", length, path);
    else if (code != -ENOENT)
        doctor_add(
            doctor, "socket.folder", only ? DOCTOR_FAIL : DOCTOR_WARN,
            code == -EPERM
                ? "correct owner and mode of that folder, or set GPUSHARE_SOCKET to a path "
                  "in a folder of yours or root's"
                : "ask the folder's owner for permission to enter it",
            "%s", err.text);
    if (code != 0 && code != -ENOENT)
        doctor_command(doctor, "%s",
                       code == -EPERM ? "mkdir -p -m 700 ~/.gpushare && export "
                                        "GPUSHARE_SOCKET=~/.gpushare/lockd.sock"
                                      : DOCTOR_GROUP_COMMAND);
}

static void look_at_places(struct doctor *doctor)
{
    const struct gs_places *places = &doctor->ctl->places;

    for (unsigned i = 0; i < places->count; i++) {
        doctor_add(doctor, "socket.path", DOCTOR_INFO, NULL, "%s is %s%s",
                   i == 0 ? "the socket" : "or else it", places->path[i],
                   doctor->ctl->path_by_user ? " (--socket)"
                   : places->named           ? " (GPUSHARE_SOCKET)"
                                             : "");
        look_at_folder(doctor, places->path[i], places->count == 1);
    }
}

static void look_at_versions(struct doctor *doctor)
{
    const struct gs_wire_daemon *daemon = &doctor->answer.daemon;

    if (strcmp(daemon->version, GS_VERSION) != 0) {
        doctor_add(doctor, "daemon.version", DOCTOR_WARN,
                   "restart gpushare-lockd after an upgrade (programs keep their memory)",
                   "gpushare-lockd is %s, gpusharectl %s", daemon->version, GS_VERSION);
        if (strcmp(doctor->ctl->path, GS_SYSTEM_SOCKET) == 0)
            doctor_command(doctor, "sudo systemctl restart gpushare-lockd");
        else
            doctor_command(doctor, "kill %d", daemon->pid);
    }
    gs_each (client, doctor->answer.clients, doctor->answer.client_count) {
        if (strcmp(client->version, daemon->version) != 0)
            doctor_add(doctor, "program.version", DOCTOR_INFO,
                       "restart the program at a convenient time",
                       "process %d (%s) runs with gpushare %s, the daemon with %s", client->pid,
                       client->name, client->version, daemon->version);
        if (doctor->count > DOCTOR_FINDINGS / 2)
            return;
    }
}

static void look_at_remarks(struct doctor *doctor)
{
    gs_each (remark, doctor->answer.remarks, doctor->answer.remark_count) {
        if (doctor->pid != 0 && remark->pid != doctor->pid)
            continue;
        doctor_add(doctor, "program.remark",
                   remark->kind == GS_NOTE_UNROUTED && doctor->pid != 0 ? DOCTOR_FAIL
                                                                        : DOCTOR_WARN,
                   remark->kind == GS_NOTE_UNROUTED
                       ? "usually the file that runs is not the one that was patched"
                       : NULL,
                   "process %d (%s%s) reported: %s", remark->pid, remark->name,
                   remark->ended != 0 ? ", ended" : "", remark->text);
        if (remark->kind == GS_NOTE_UNROUTED && remark->ended == 0)
            doctor_command(doctor, "gpushare-patch --check \"$(readlink -f /proc/%d/exe)\"",
                           remark->pid);
        else
            doctor_command(doctor, "gpusharectl status");
    }
}

/* Why a program that has work may wait long: its class, or host memory that is used up. */
static void look_at_wait(struct doctor *doctor, const struct gs_wire_client *client)
{
    const struct gs_wire_daemon *daemon = &doctor->answer.daemon;
    const uint64_t most =
        client->host_budget < daemon->host_total ? client->host_budget : daemon->host_total;
    const bool own = most == client->host_budget;
    const uint64_t used = own ? client->host_used : daemon->host_used;
    char text[24], whole[24];

    if (client->class == GS_CLASS_BACKGROUND) {
        doctor_add(
            doctor, "program.background",
            client->condition == GS_CONDITION_WAITS ? DOCTOR_WARN : DOCTOR_INFO,
            "give it another class if it is to have its turns",
            "its class is background: it runs only while no other program wants the device");
        doctor_command(doctor, "gpusharectl set class %d auto", client->pid);
    }
    if (most != UINT64_MAX && used >= most - most / HOST_LOW_PART) {
        doctor_add(
            doctor, "program.host", DOCTOR_WARN,
            "raise the setting host, add host memory or a spill file (GPUSHARE_SPILL), or end "
            "a program; until then programs stay on the card and others wait",
            "host memory for moved-out memory is used up: %s of %s%s",
            gs_size_format(used, text, sizeof text), gs_size_format(most, whole, sizeof whole),
            own ? " for this program" : "");
        doctor_command(doctor, "gpusharectl get host");
    }
}

static void look_at_client(struct doctor *doctor)
{
    const struct gs_wire_client *client = NULL;
    char demand[24], capacity[24], why[CTL_WHY_SIZE];

    if (doctor->pid == 0)
        return;
    for (size_t i = 0; i < doctor->answer.client_count && client == NULL; i++) {
        if (doctor->answer.clients[i].pid == doctor->pid)
            client = &doctor->answer.clients[i];
    }
    if (client == NULL) {
        doctor_add(doctor, "program.connected", DOCTOR_FAIL, NULL,
                   "process %d is not connected to this daemon (a program connects when it "
                   "creates its first CUDA context)",
                   (int)doctor->pid);
        doctor_command(doctor, "pgrep -aP %d", (int)doctor->pid);
        return;
    }
    doctor_add(doctor, "program.connected", DOCTOR_OK, NULL, "process %d is connected: it %s%s",
               (int)doctor->pid, client->condition == GS_CONDITION_NO_DEVICE ? "has " : "",
               ctl_condition_name(client->condition));
    if (ctl_why_text(&doctor->answer, client, why)[0] != '\0')
        doctor_add(doctor, "program.waits", DOCTOR_INFO, NULL, "process %d %s",
                   (int)doctor->pid, why);
    if ((client->flags & GS_CLIENT_PAUSED) != 0) {
        doctor_add(doctor, "program.paused", DOCTOR_FAIL, "let it run again", "it is paused");
        doctor_command(doctor, "gpusharectl resume %d", client->pid);
    }
    if ((client->flags & GS_CLIENT_PARTIAL) != 0) {
        doctor_add(doctor, "program.partial", DOCTOR_WARN,
                   "its remarks in gpusharectl status tell which calls",
                   "some of its work on the GPU is not controlled by gpushare");
        doctor_command(doctor, "gpusharectl status");
    }
    look_at_wait(doctor, client);
    if (client->condition == GS_CONDITION_STUCK) {
        doctor_add(doctor, "program.stuck", DOCTOR_FAIL,
                   "check what it computes; programs that fit beside it keep running",
                   "it was asked to stop, but its work on the GPU does not end");
        doctor_command(doctor, "gpusharectl trace --seconds 10 --output stuck.json");
    }
    gs_each (device, doctor->answer.devices, doctor->answer.device_count) {
        if (memcmp(device->uuid, client->uuid, sizeof device->uuid) != 0 ||
            client->demand <= device->capacity)
            continue;
        doctor_add(doctor, "program.fits", DOCTOR_WARN,
                   "it can only run alone; see `external` in gpusharectl status --json for "
                   "memory used by other programs",
                   "it needs %s, but the device has only %s",
                   gs_size_format(client->demand, demand, sizeof demand),
                   gs_size_format(device->capacity, capacity, sizeof capacity));
        doctor_command(doctor, "gpusharectl status --json");
    }
}

/* The socket, its folder, the daemon, and the process as the daemon knows it. */
static void doctor_daemon(struct doctor *doctor)
{
    struct ctl *ctl = doctor->ctl;
    int code;

    look_at_places(doctor);
    ctl->patience_s = 3;
    code = ctl_ask_status(ctl, &doctor->answer);
    if (ctl->kept_out) {
        doctor_add(
            doctor, "socket.service", DOCTOR_WARN,
            "to share with other users' programs, ask an administrator to add you to its "
            "group, then log in again",
            "a service runs at " GS_SYSTEM_SOCKET
            ", but user %u may not connect: this user's programs use a daemon of "
            "their own",
            (unsigned)geteuid());
        doctor_command(doctor, DOCTOR_GROUP_COMMAND);
    }
    if (code == -ENOENT) {
        doctor_add(doctor, "daemon.reachable", doctor->pid != 0 ? DOCTOR_FAIL : DOCTOR_INFO,
                   doctor->pid != 0
                       ? "the program has not used CUDA yet, uses another socket, or is not "
                         "prepared"
                       : NULL,
                   "no gpushare-lockd is running; the first prepared program starts one");
        if (doctor->pid != 0)
            doctor_command(doctor, "pgrep -aP %d", (int)doctor->pid);
        return;
    }
    if (code != 0) {
        doctor_add(
            doctor, "daemon.reachable", DOCTOR_FAIL,
            code == -EACCES ? "ask an administrator to add you to its group, then "
                              "log in again"
            : code == -ETIMEDOUT
                ? "it may be stopped or hanging: kill -CONT it, or end it; programs then "
                  "start another one"
                : NULL,
            "%s", ctl->err.text);
        doctor_command(doctor, "%s",
                       code == -EACCES ? DOCTOR_GROUP_COMMAND
                       : code == -ETIMEDOUT
                           ? "pkill -CONT -x gpushare-lockd"
                           : "gpushare-lockd --version; gpusharectl --version");
        return;
    }
    doctor_add(doctor, "daemon.reachable", DOCTOR_OK, NULL,
               "gpushare-lockd %s (process %d) answers; %llu programs",
               doctor->answer.daemon.version, doctor->answer.daemon.pid,
               (unsigned long long)doctor->answer.daemon.programs);
    look_at_versions(doctor);
    if (doctor->answer.daemon.hand_over != 0)
        doctor_add(doctor, "daemon.hand-over", DOCTOR_INFO,
                   "before taking checkpoints (cuda-checkpoint, CRIU): set hand-over = no "
                   "in lockd.conf, then restart the programs",
                   "programs of one user hand memory over to each other; the driver cannot "
                   "checkpoint a program that holds such memory");
    else
        doctor_add(doctor, "daemon.hand-over", DOCTOR_INFO, NULL,
                   "memory is released between programs (hand-over is off)");
    look_at_client(doctor);
    look_at_remarks(doctor);
}

extern char **environ;

static const char *const level_names[] = {"ok", "info", "warn", "fail"};

static enum doctor_level worst_level(const struct doctor *doctor)
{
    enum doctor_level level = DOCTOR_OK;

    for (size_t i = 0; i < doctor->count; i++) {
        if (doctor->findings[i].level > level)
            level = doctor->findings[i].level;
    }
    return level;
}

static void print_text(const struct doctor *doctor)
{
    gs_each (finding, doctor->findings, doctor->count) {
        printf("%-5s %s\n", level_names[finding->level],
               finding->text != NULL ? finding->text : "");
        if (finding->advice[0] != '\0')
            printf("      -> %s\n", finding->advice);
        if (finding->command != NULL)
            printf("      $ %s\n", finding->command);
    }
    switch (worst_level(doctor)) {
    case DOCTOR_FAIL:
        puts("\nThe lines that begin with `fail` tell why it does not share.");
        break;
    case DOCTOR_WARN:
        puts("\nNothing certainly prevents sharing; the lines that begin with `warn` "
             "may matter.");
        break;
    default:
        puts("\nNothing was found that prevents sharing.");
    }
}

static int print_json(const struct doctor *doctor)
{
    json_t *findings = json_array();

    gs_each (finding, doctor->findings, doctor->count) {
        json_array_append_new(
            findings, json_pack("{s:s, s:s, s:o, s:s?, s:s?}", "check", finding->check, "level",
                                level_names[finding->level], "text",
                                ctl_json_text(finding->text != NULL ? finding->text : ""),
                                "advice", finding->advice[0] != '\0' ? finding->advice : NULL,
                                "command", finding->command));
    }
    return ctl_json_put(json_pack("{s:s, s:o?, s:o?, s:o}", "verdict",
                                  level_names[worst_level(doctor)], "pid",
                                  doctor->pid != 0 ? json_integer(doctor->pid) : NULL, "file",
                                  doctor->file != NULL ? ctl_json_text(doctor->file) : NULL,
                                  "findings", findings),
                        JSON_INDENT(2));
}

/* Our own environment, in the form of /proc/PID/environ. */
static void look_at_own_environment(struct doctor *doctor)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    for (char **each = environ; out != NULL && *each != NULL; each++)
        fwrite(*each, 1, strlen(*each) + 1, out);
    if (out != NULL && fclose(out) == 0)
        doctor_environment(doctor, text, size, "this shell");
    free(text);
}

static enum ctl_exit doctor_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    struct doctor *doctor;
    int code = 0;
    enum doctor_level level;

    if (count > 1)
        return ctl_usage(ctl, "give at most one process id or file");
    doctor = calloc(1, sizeof *doctor);
    if (doctor == NULL)
        return CTL_FAILED;
    doctor->ctl = ctl;
    if (count == 1 && ctl_pid(operands[0], &doctor->pid) != 0)
        doctor->file = operands[0];
    doctor_daemon(doctor);
    doctor_system(doctor);
    doctor_config(doctor);
    doctor_containers(doctor);
    if (doctor->pid != 0)
        doctor_process(doctor);
    else
        look_at_own_environment(doctor);
    doctor_wheel(doctor);
    if (doctor->file != NULL) {
        doctor_file(doctor, doctor->file, doctor->file);
        doctor_libraries(doctor, doctor->file);
    }
    if (*(const bool *)words)
        code = print_json(doctor);
    else
        print_text(doctor);
    level = worst_level(doctor);
    for (size_t i = 0; i < doctor->count; i++) {
        free(doctor->findings[i].text);
        free(doctor->findings[i].command);
    }
    ctl_answer_deinit(&doctor->answer);
    free(doctor);
    return ctl_done(code != 0 || level == DOCTOR_FAIL ? CTL_FAILED : CTL_OK);
}

const struct ctl_command ctl_doctor = {
    "doctor",   "[PID|FILE]", "find out why a program does not share",
    doctor_run, NULL,         ctl_json_option};
