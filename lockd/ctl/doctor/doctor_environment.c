/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_environment.c: checks variables of a program that prevent or change sharing. No state.
 */
#include "lockd/ctl/doctor/doctor_environment.h"
#include "lockd/ctl/doctor/doctor.h"
#include "common/place.h"
#include "lockd/protocol/setting_table.h"
#include "lockd/ctl/doctor/doctor_file.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Checks the configuration files, by running the daemon, and the class that a program's
 * environment names. */

#define USAGE 2 /* gpushare-lockd's exit code for an error in its files */

void doctor_config(struct doctor *doctor)
{
    char tool[600], check[] = "--check", said[512];
    char *argv[] = {tool, check, NULL};
    char *text = said;

    doctor_tool_find("gpushare-lockd", tool, sizeof tool);
    switch (doctor_tool_run(argv, STDERR_FILENO, said, sizeof said)) {
    case 0:
        doctor_add(doctor, "config.check", DOCTOR_OK, NULL,
                   "the configuration files have no error");
        break;
    case USAGE:
        text[strcspn(text, "\n")] = '\0';
        if (strncmp(text, "gpushare-lockd: ", 16) == 0)
            text += 16;
        doctor_add(doctor, "config.check", DOCTOR_FAIL,
                   "correct that line: with it no daemon starts, and a running one keeps its "
                   "old settings",
                   "%.300s", text);
        doctor_command(doctor, "sudo \"${EDITOR:-vi}\" %.*s", (int)strcspn(text, ":"), text);
        break;
    default:
        doctor_add(doctor, "config.check", DOCTOR_WARN,
                   "gpushare is not installed completely: no program can start the daemon",
                   "gpushare-lockd was not found beside gpusharectl or on the PATH");
        doctor_command(doctor, "command -v gpushare-lockd gpusharectl gpushare-patch");
    }
}

void doctor_class(struct doctor *doctor, const char *value, const char *whose)
{
    const struct lockd_setting *row = lockd_setting_find("class");
    uint64_t place = 0;
    struct lockd_option option;
    struct gs_err err = {0};

    if (value == NULL || value[0] == '\0' || row == NULL)
        return;
    option = lockd_setting_option(row, &place);
    if (lockd_option_value(&option, value, &err) == 0) {
        doctor_add(doctor, "environment.class", DOCTOR_INFO, NULL, "GPUSHARE_CLASS=%.40s in %s",
                   value, whose);
        return;
    }
    doctor_add(doctor, "environment.class", DOCTOR_WARN,
               "until a class is set, the program's behaviour decides it",
               "GPUSHARE_CLASS=%.40s in %s is ignored: it is not one of %s", value, whose,
               row->argument);
    if (doctor->pid != 0)
        doctor_command(doctor, "gpusharectl set class %d interactive", (int)doctor->pid);
    else
        doctor_command(doctor, "unset GPUSHARE_CLASS");
}

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

/* Checks a Python environment in which pip has installed gpushare. The package alone
 * changes nothing: the interpreter must be prepared as well, and must be restored before
 * the package is removed. */

/* The environment in which this program is installed, else the active environment. False:
 * there is none. */
static bool find_environment(char folder[PATH_MAX])
{
    const char *active = getenv("VIRTUAL_ENV");
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char config[PATH_MAX + 16], *slash;

    folder[length > 0 ? length : 0] = '\0';
    while ((slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        snprintf(config, sizeof config, "%s/pyvenv.cfg", folder);
        if (access(config, F_OK) == 0)
            return true;
    }
    return active != NULL && active[0] == '/' &&
           snprintf(folder, PATH_MAX, "%s", active) < PATH_MAX;
}

static bool has_package(const char *folder)
{
    char pattern[PATH_MAX + 64];
    glob_t found = {0};
    bool has;

    snprintf(pattern, sizeof pattern,
             "%s/lib/python3*/site-packages/gpushare_patch/__init__.py", folder);
    has = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc != 0;
    globfree(&found);
    return has;
}

void doctor_wheel(struct doctor *doctor)
{
    char folder[PATH_MAX], python[PATH_MAX + 16], quoted[DOCTOR_QUOTED];
    enum doctor_patched patched;

    if (!find_environment(folder))
        return;
    snprintf(python, sizeof python, "%s/bin/python3", folder);
    patched = doctor_patched(python);
    if (patched == DOCTOR_PATCHED) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_OK, NULL,
                   "the Python environment %s is prepared", folder);
    } else if (patched == DOCTOR_ORPHANED) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_FAIL,
                   "restore it, or install gpushare again",
                   "the Python environment %s is prepared, but its gpushare was removed: its "
                   "interpreter does not start",
                   folder);
        doctor_command(doctor, "gpushare-patch --restore %s", doctor_quote(python, quoted));
    } else if (has_package(folder)) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_WARN,
                   "enable it once, then restart programs that are already running",
                   "gpushare is installed in the Python environment %s, but not enabled there",
                   folder);
        doctor_command(doctor, "%s -m gpushare_patch enable", doctor_quote(python, quoted));
    }
}
