/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_environment.c: checks variables of a program that prevent or change sharing. No state.
 */
#include "lockd/ctl/doctor/doctor_config.h"
#include "lockd/ctl/doctor/doctor_environment.h"
#include "lockd/ctl/doctor/findings.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *doctor_variable(const char *environment, size_t size, const char *name)
{
    const size_t length = strlen(name);

    for (size_t at = 0; at < size;) {
        const size_t rest = strnlen(environment + at, size - at);

        if (rest > length && at + rest < size && environment[at + length] == '=' &&
            strncmp(environment + at, name, length) == 0)
            return environment + at + length + 1;
        at += rest + 1;
    }
    return NULL;
}

static void look_at_devices(struct doctor *doctor, const char *visible, const char *whose)
{
    if (visible == NULL)
        return;
    if (visible[0] == '\0' || strncmp(visible, "-1", 2) == 0) {
        doctor_add(doctor, "environment.devices", DOCTOR_FAIL, "unset CUDA_VISIBLE_DEVICES",
                   "CUDA_VISIBLE_DEVICES=%.40s in %s hides every device", visible, whose);
        doctor_command(doctor, "unset CUDA_VISIBLE_DEVICES");
    } else
        doctor_add(doctor, "environment.devices", DOCTOR_INFO, NULL,
                   "CUDA_VISIBLE_DEVICES=%.80s: only programs that see the same device share "
                   "it%s",
                   visible,
                   strstr(visible, "MIG") != NULL ? "; each MIG instance is shared separately"
                                                  : "");
}

static void look_at_mps(struct doctor *doctor, const char *folder)
{
    char control[256];

    snprintf(control, sizeof control, "%.200s/control",
             folder != NULL ? folder : "/tmp/nvidia-mps");
    if (access(control, F_OK) == 0) {
        doctor_add(doctor, "environment.mps", DOCTOR_WARN,
                   "under MPS a GPU fault of one program ends the others too; gpushare does "
                   "not need MPS",
                   "NVIDIA's MPS daemon is running (%s)", control);
        doctor_command(doctor, "echo quit | nvidia-cuda-mps-control");
    } else if (folder != NULL)
        doctor_add(doctor, "environment.mps", DOCTOR_INFO, NULL,
                   "CUDA_MPS_PIPE_DIRECTORY=%.100s is set, but no MPS daemon runs there",
                   folder);
}

void doctor_environment(struct doctor *doctor, const char *environment, size_t size,
                        const char *whose)
{
    const char *value = doctor_variable(environment, size, "GPUSHARE_DISABLE");
    char quoted[DOCTOR_QUOTED];

    if (value != NULL && strcmp(value, "1") == 0) {
        doctor_add(doctor, "environment.disable", DOCTOR_FAIL, "unset GPUSHARE_DISABLE",
                   "GPUSHARE_DISABLE=1 in %s: gpushare is disabled", whose);
        doctor_command(doctor, "unset GPUSHARE_DISABLE");
    }
    value = doctor_variable(environment, size, "GPUSHARE_SOCKET");
    if (value != NULL && value[0] != '\0' && strcmp(value, doctor->ctl->path) != 0) {
        doctor_add(doctor, "environment.socket", DOCTOR_FAIL,
                   "use the same GPUSHARE_SOCKET for gpusharectl and all programs",
                   "GPUSHARE_SOCKET=%.150s in %s is not this daemon's socket, %s", value, whose,
                   doctor->ctl->path);
        doctor_command(doctor, "export GPUSHARE_SOCKET=%s",
                       doctor_quote(doctor->ctl->path, quoted));
    }
    value = doctor_variable(environment, size, "GPUSHARE_LOCKD");
    if (value != NULL && value[0] != '\0' && access(value, X_OK) != 0) {
        doctor_add(doctor, "environment.lockd", DOCTOR_FAIL, "unset GPUSHARE_LOCKD",
                   "GPUSHARE_LOCKD=%.150s in %s is not a program", value, whose);
        doctor_command(doctor, "unset GPUSHARE_LOCKD");
    }
    value = doctor_variable(environment, size, "GPUSHARE_MEMORY");
    if (value != NULL && strcmp(value, "native") == 0) {
        doctor_add(doctor, "environment.memory", DOCTOR_WARN, "unset GPUSHARE_MEMORY",
                   "GPUSHARE_MEMORY=native in %s: its memory is never moved", whose);
        doctor_command(doctor, "unset GPUSHARE_MEMORY");
    }
    value = doctor_variable(environment, size, "GPUSHARE_DEVICE_LIMIT");
    if (value != NULL && value[0] != '\0')
        doctor_add(doctor, "environment.limit", DOCTOR_INFO, NULL,
                   "GPUSHARE_DEVICE_LIMIT=%.40s in %s: it treats the device as that small",
                   value, whose);
    value = doctor_variable(environment, size, "LD_PRELOAD");
    if (value != NULL && value[0] != '\0') {
        doctor_add(doctor, "environment.preload", DOCTOR_WARN, "try without it",
                   "LD_PRELOAD=%.150s in %s comes before gpushare's library", value, whose);
        doctor_command(doctor, "unset LD_PRELOAD");
    }
    doctor_class(doctor, doctor_variable(environment, size, "GPUSHARE_CLASS"), whose);
    look_at_devices(doctor, doctor_variable(environment, size, "CUDA_VISIBLE_DEVICES"), whose);
    look_at_mps(doctor, doctor_variable(environment, size, "CUDA_MPS_PIPE_DIRECTORY"));
}
