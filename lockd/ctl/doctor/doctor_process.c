/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_process.c: checks a running program, through /proc/PID. No state. A part that may not be
 * read (of another user's process) is reported, not guessed.
 */
#include "common/fd.h"
#include "common/same.h"
#include "lockd/ctl/doctor/doctor_process.h"
#include "lockd/ctl/doctor/doctor_system.h"

#include <fcntl.h>

#define STRINGS_MAX (1u << 20)

static const char *proc_path(const struct doctor *doctor, const char *what, char *buffer,
                             size_t size)
{
    snprintf(buffer, size, "/proc/%d/%s", (int)doctor->pid, what);
    return buffer;
}

static void may_not(struct doctor *doctor, const char *path)
{
    doctor_add(doctor, "process.read", DOCTOR_WARN,
               errno == EACCES || errno == EPERM ? "run doctor as the program's user or as root"
                                                 : NULL,
               "%s: %s", path, strerror(errno));
    doctor_command(doctor, "sudo gpusharectl doctor %d", (int)doctor->pid);
}

/* The end of a path in /proc whose file was replaced or removed. */
static bool is_deleted(const char *path)
{
    const size_t length = strlen(path);

    return length > 10 && strcmp(path + length - 10, " (deleted)") == 0;
}

/* Reads one of the process's files that hold strings, each ended by a zero byte, into fresh
 * memory. NULL, with errno, if it may not be read; *size includes one zero byte more. */
static char *read_strings(const struct doctor *doctor, const char *what, size_t *size)
{
    char path[64];
    GS_CLOSE_FD int fd = open(proc_path(doctor, what, path, sizeof path), O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : malloc(STRINGS_MAX);
    ssize_t got;

    *size = 0;
    while (text != NULL && *size < STRINGS_MAX - 1 &&
           (got = read(fd, text + *size, STRINGS_MAX - 1 - *size)) > 0)
        *size += (size_t)got;
    if (text != NULL)
        text[(*size)++] = '\0';
    return text;
}

/* The path by which the process was started, if known: for a Python environment's program it
 * leads to the environment, while the file may be elsewhere. "": unknown. */
static void find_start(const struct doctor *doctor, char path[4096])
{
    size_t size, environment_size;
    GS_FREE char *name = read_strings(doctor, "cmdline", &size);
    GS_FREE char *environment = read_strings(doctor, "environ", &environment_size);
    const char *active = environment == NULL
                             ? NULL
                             : doctor_variable(environment, environment_size, "VIRTUAL_ENV");
    int n = -1;

    if (name != NULL && *name == '/')
        n = snprintf(path, 4096, "%s", name);
    else if (name != NULL && strchr(name, '/') != NULL)
        n = snprintf(path, 4096, "/proc/%d/cwd/%s", (int)doctor->pid, name);
    else if (name != NULL && *name != '\0' && active != NULL && *active == '/')
        n = snprintf(path, 4096, "%s/bin/%s", active, name);
    if (n < 0 || n >= 4096)
        *path = '\0';
}

static void look_at_exe(struct doctor *doctor)
{
    char link[64], exe[4096], start[4096];
    ssize_t length;

    proc_path(doctor, "exe", link, sizeof link);
    length = readlink(link, exe, sizeof exe - 1);
    if (length < 0) {
        may_not(doctor, link);
        return;
    }
    exe[length] = '\0';
    if (is_deleted(exe)) {
        doctor_add(doctor, "process.exe", DOCTOR_FAIL, "start it again",
                   "%s: the file was replaced after the program started (patched in the "
                   "meantime?)",
                   exe);
        doctor_command(doctor, "kill %d", (int)doctor->pid);
    } else {
        doctor_add(doctor, "process.exe", DOCTOR_INFO, NULL, "process %d runs %s",
                   (int)doctor->pid, exe);
    }
    find_start(doctor, start);
    doctor_file(doctor, gs_same_file(start, link) ? start : link, exe);
}

struct maps {
    bool ours, ours_deleted, cudart, door;
    char ours_path[256];
    char cuda_path[256], second_cuda[256]; /* "": none */
};

static void take_line(struct maps *maps, char *line)
{
    const char *path = strchr(line, '/');
    const char *name;

    line[strcspn(line, "\n")] = '\0';
    if (path == NULL)
        return;
    name = strrchr(path, '/') + 1;
    if (strncmp(name, "libgpushare.so", 14) == 0) {
        maps->ours = true;
        maps->ours_deleted |= is_deleted(path);
        snprintf(maps->ours_path, sizeof maps->ours_path, "%.255s", path);
    }
    maps->door |= strcmp(name, GS_DOOR_REAL) == 0;
    if (strncmp(name, "libcuda.so", 10) == 0 &&
        strncmp(path, maps->cuda_path, sizeof maps->cuda_path - 1) != 0)
        snprintf(maps->cuda_path[0] == '\0' ? maps->cuda_path : maps->second_cuda,
                 sizeof maps->cuda_path, "%.255s", path);
    maps->cudart |= strncmp(name, "libcudart.so", 12) == 0;
}

static void say_driver(struct doctor *doctor, const struct maps *maps)
{
    const int pid = (int)doctor->pid;

    if (maps->cuda_path[0] == '\0') {
        doctor_add(doctor, "process.cuda", DOCTOR_FAIL,
                   "nothing, if it has not used CUDA yet; otherwise look at its child "
                   "processes",
                   "it has not loaded libcuda%s: it does not use CUDA (yet)",
                   maps->cudart ? " (but libcudart)" : "");
        doctor_command(doctor, "pgrep -aP %d", pid);
    } else if (maps->second_cuda[0] != '\0') {
        doctor_add(doctor, "process.cuda", DOCTOR_WARN,
                   "remove one of them from its LD_LIBRARY_PATH or RUNPATH: only calls to "
                   "one of them are controlled",
                   "it has loaded two driver libraries, %s and %s", maps->cuda_path,
                   maps->second_cuda);
        doctor_command(doctor, "tr '\\0' '\\n' </proc/%d/environ | grep LD_LIBRARY_PATH", pid);
    } else if (doctor_is_stub(maps->cuda_path)) {
        doctor_add(doctor, "process.cuda", DOCTOR_FAIL, DOCTOR_STUB_ADVICE,
                   "it has loaded %s, the toolkit's stub for linking, in which no call works",
                   maps->cuda_path);
        doctor_command(doctor, "%s", DOCTOR_STUB_COMMAND);
    } else {
        doctor_add(doctor, "process.cuda", DOCTOR_OK, NULL, "it has loaded %s",
                   maps->cuda_path);
    }
}

/* Reports how gpushare is in the process, if it is. */
static void say_library(struct doctor *doctor, const struct maps *maps)
{
    const int pid = (int)doctor->pid;

    if (maps->door) {
        doctor_add(doctor, "process.door", DOCTOR_OK, NULL,
                   "gpushare is in the driver's place in process %d (the door)", pid);
    } else if (!maps->ours && doctor_is_contained(doctor)) {
        doctor_add(doctor, "process.library", DOCTOR_FAIL,
                   "start the container with the device gpushare.dev/gpu (docs/containers.md), "
                   "or prepare the file in the image",
                   "process %d runs in a container, and neither the door nor libgpushare.so is "
                   "in it",
                   pid);
        doctor_command(doctor, "sudo gpusharectl cdi generate --output /etc/cdi/gpushare.json");
    } else if (!maps->ours) {
        doctor_add(doctor, "process.library", DOCTOR_FAIL,
                   "prepare the file that runs, then start it again",
                   "libgpushare.so is not loaded in process %d", pid);
        doctor_command(doctor, "gpushare-patch --any \"$(readlink /proc/%d/exe)\"", pid);
    } else if (maps->ours_deleted) {
        doctor_add(doctor, "process.library", DOCTOR_WARN, "restart the program",
                   "%s was replaced (an upgrade?): the program still uses the old one",
                   maps->ours_path);
        doctor_command(doctor, "kill %d", pid);
    } else {
        doctor_add(doctor, "process.library", DOCTOR_OK, NULL, "it has loaded %s",
                   maps->ours_path);
    }
}

static void look_at_maps(struct doctor *doctor)
{
    char path[64], line[4608];
    struct maps maps = {0};
    GS_CLOSE_FILE FILE *file = fopen(proc_path(doctor, "maps", path, sizeof path), "re");

    if (file == NULL) {
        may_not(doctor, path);
        return;
    }
    while (fgets(line, sizeof line, file) != NULL)
        take_line(&maps, line);
    say_library(doctor, &maps);
    say_driver(doctor, &maps);
}

/* The number behind "KEY:" in /proc/PID/status, or the first letter of the text there; 0: not
 * known. */
static int read_status(const struct doctor *doctor, const char *key)
{
    char path[64], line[256];
    GS_CLOSE_FILE FILE *file = fopen(proc_path(doctor, "status", path, sizeof path), "re");
    const size_t length = strlen(key);
    int found = 0;

    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL) {
        const char *text = line + length + 1;

        if (strncmp(line, key, length) != 0 || line[length] != ':')
            continue;
        text += strspn(text, " \t");
        found = *text >= '0' && *text <= '9' ? (int)strtol(text, NULL, 10) : *text;
    }
    return found;
}

/* A process that a signal or a debugger has stopped cannot give its memory up. */
static void look_at_stop(struct doctor *doctor)
{
    const int state = read_status(doctor, "State"), tracer = read_status(doctor, "TracerPid");
    const int pid = (int)doctor->pid;

    if (state == 'T') {
        doctor_add(doctor, "process.stopped", DOCTOR_FAIL,
                   "let it go on; until then it neither runs nor gives up memory",
                   "process %d is stopped by a signal", pid);
        doctor_command(doctor, "kill -CONT %d", pid);
    } else if (tracer != 0) {
        doctor_add(doctor, "process.traced", state == 't' ? DOCTOR_FAIL : DOCTOR_INFO,
                   "let it go on in the debugger, or leave the debugger",
                   "process %d is %s by process %d (a debugger, strace)", pid,
                   state == 't' ? "stopped" : "watched", tracer);
        doctor_command(doctor, "ps -o pid,user,args -p %d", tracer);
    }
}

void doctor_process(struct doctor *doctor)
{
    GS_FREE char *environment = NULL;
    char path[64];
    size_t size;

    if (access(proc_path(doctor, "", path, sizeof path), F_OK) != 0) {
        doctor_add(doctor, "process.there", DOCTOR_FAIL, NULL, "process %d does not exist",
                   (int)doctor->pid);
        doctor_command(doctor, "gpusharectl status");
        return;
    }
    look_at_stop(doctor);
    look_at_exe(doctor);
    look_at_maps(doctor);
    environment = read_strings(doctor, "environ", &size);
    if (environment != NULL)
        doctor_environment(doctor, environment, size, "the process (at its start)");
    else
        may_not(doctor, proc_path(doctor, "environ", path, sizeof path));
    doctor_namespaces(doctor);
}
