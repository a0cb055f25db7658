/* SPDX-License-Identifier: Apache-2.0
 *
 * move_command.c: `gpusharectl move PID GPU`: moves a program to another GPU while it runs.
 */
#include "common/fd.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/ctl.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATIENCE_S                                                                             \
    180 /* time for its work to finish, its memory to leave, and the driver to move it */
#define UUID_BYTES 16

/* The UUID of a GPU by its number, as nvidia-smi counts. */
static int find_index(struct ctl *ctl, const char *text, uint8_t uuid[UUID_BYTES])
{
    struct ctl_answer answer = {0};
    const struct nvml_gpu *gpu;
    bool found;

    ctl_gpus_look_once(&answer);
    gpu = nvml_gpu_number(&answer.gpus, (unsigned)strtoul(text, NULL, 10));
    found = gpu != NULL && lockd_uuid_read(gpu->uuid, uuid);
    ctl_answer_deinit(&answer);
    if (found)
        return 0;
    return gs_err_set(&ctl->err, -ENODEV, "GPU %s is not known to NVML: give its UUID", text);
}

/* The UUID of the only GPU known to the daemon that begins with the text. */
static int find_beginning(struct ctl *ctl, const char *text, uint8_t uuid[UUID_BYTES])
{
    struct ctl_answer answer;
    unsigned found = 0;
    int code = ctl_ask_status(ctl, &answer);

    if (code != 0)
        return code;
    for (size_t i = 0; i < answer.device_count; i++) {
        char name[LOCKD_UUID_SIZE];

        if (strncasecmp(lockd_uuid_text(answer.devices[i].uuid, name), text, strlen(text)) != 0)
            continue;
        memcpy(uuid, answer.devices[i].uuid, UUID_BYTES);
        found++;
    }
    ctl_answer_deinit(&answer);
    if (found == 1)
        return 0;
    return gs_err_set(&ctl->err, -ENODEV, "%s GPU's UUID begins with %s",
                      found == 0 ? "no known" : "more than one", text);
}

/* Without a daemon the error is that, not that NVML does not know a GPU. */
static int find_daemon(struct ctl *ctl)
{
    GS_CLOSE_FD int fd = ctl_connect(ctl);

    return fd < 0 ? fd : 0;
}

static int find_gpu(struct ctl *ctl, const char *text, uint8_t uuid[UUID_BYTES])
{
    if (lockd_uuid_read(text, uuid))
        return 0;
    memset(uuid, 0, UUID_BYTES);
    if (*text != '\0' && strspn(text, "0123456789") == strlen(text) && strlen(text) < 4)
        return find_index(ctl, text, uuid);
    return find_beginning(ctl, text, uuid);
}

/* The daemon has ended, or is slow: the outcome of the move, which may have begun, is unknown. */
static void explain_silence(struct ctl *ctl, int code)
{
    const struct gs_err why = ctl->err;

    if (code != -EPIPE && code != -ETIMEDOUT)
        return;
    ctl->err = (struct gs_err){0};
    gs_err_set(&ctl->err, code,
               "%s; the move may continue without it: `gpusharectl status` shows where the "
               "program is",
               why.text);
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
    code = find_daemon(ctl);
    if (code == 0)
        code = find_gpu(ctl, operands[1], relocate.uuid);
    if (code != 0)
        return ctl_outcome(ctl, code, &end, json);
    ctl->patience_s = PATIENCE_S;
    lockd_wire_header(&relocate.header, GS_WIRE_RELOCATE);
    code = ctl_ask(ctl, &relocate, sizeof relocate, &answer);
    if (code == 0) {
        end = answer.end;
        ctl_answer_deinit(&answer);
    } else {
        explain_silence(ctl, code);
    }
    if (code == 0 && end.code == 0 && !json)
        printf("moved process %d %s\n", (int)relocate.pid, end.text);
    return ctl_outcome(ctl, code, &end, json);
}

static void move_details(void)
{
    puts("\nGPU: the number of a GPU as nvidia-smi counts, its UUID, or the beginning of a "
         "UUID that "
         "`gpusharectl status --json` shows.");
}

const struct ctl_command ctl_move = {
    "move",   "PID GPU",    "move a running program to another GPU of the same model",
    move_run, move_details, ctl_json_option};
