/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system.c: checks the machine (driver, MIG, host memory, gpushare's library), containers, the
 * configuration, variables of a program, and Python environments. No state.
 */
#include "lockd/ctl/doctor/doctor_system.h"
#include "common/fd.h"
#include "common/same.h"
#include "common/size.h"
#include "lockd/base/hostmem.h"
#include "lockd/protocol/setting_table.h"

#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <jansson.h>
#include <link.h>

#define LOW_HOST (4ull << 30)

bool doctor_is_stub(const char *path)
{
    return strstr(path, "/stubs/") != NULL;
}

static void look_at_driver(struct doctor *doctor)
{
    GS_CLOSE_FILE FILE *file = fopen("/proc/driver/nvidia/version", "re");
    char line[256] = "";
    void *libcuda;
    struct link_map *map = NULL, *behind;

    if (file != NULL) {
        if (fgets(line, sizeof line, file) != NULL)
            line[strcspn(line, "\n")] = '\0';
        doctor_add(doctor, "driver.kernel", DOCTOR_OK, NULL, "%.200s", line);
    } else {
        doctor_add(
            doctor, "driver.kernel", DOCTOR_WARN,
            "on a machine with a card: install NVIDIA's driver; in a container: start it "
            "with --gpus",
            "NVIDIA's kernel driver is not loaded (/proc/driver/nvidia/version)");
        doctor_command(doctor, "nvidia-smi");
    }
    /* opening it does not start CUDA, which begins with cuInit */
    libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (libcuda == NULL) {
        doctor_add(doctor, "driver.library", DOCTOR_WARN,
                   "it belongs to NVIDIA's driver; LD_LIBRARY_PATH or ldconfig must find it",
                   "libcuda.so.1 was not found");
        doctor_command(doctor, "ldconfig -p | grep libcuda");
        return;
    }
    if (dlinfo(libcuda, RTLD_DI_LINKMAP, &map) != 0)
        map = NULL;
    behind = map; /* a door has loaded the driver under its other name */
    while (behind != NULL && strcmp(basename(behind->l_name), GS_DOOR_REAL) != 0)
        behind = behind->l_next;
    if (map != NULL && doctor_is_stub(map->l_name)) {
        doctor_add(doctor, "driver.library", DOCTOR_WARN, DOCTOR_STUB_ADVICE,
                   "libcuda.so.1 is %s, the toolkit's stub for linking, in which no call "
                   "works",
                   map->l_name);
        doctor_command(doctor, "%s", DOCTOR_STUB_COMMAND);
    } else if (behind != NULL) {
        doctor_add(doctor, "driver.door", DOCTOR_OK, NULL,
                   "libcuda.so.1 is gpushare's door, %s: programs share here without being "
                   "prepared",
                   map->l_name);
    } else if (map != NULL) {
        doctor_add(doctor, "driver.library", DOCTOR_OK, NULL, "libcuda.so.1 is %s",
                   map->l_name);
    }
    dlclose(libcuda);
}

static void look_at_host_memory(struct doctor *doctor)
{
    const uint64_t available = lockd_host_own();
    uint64_t demand = 0, resident = 0, missing;
    char have[24], need[24];

    if (available == UINT64_MAX)
        return;
    for (size_t i = 0; i < doctor->answer.device_count; i++) {
        demand += doctor->answer.devices[i].demand;
        resident += doctor->answer.devices[i].resident;
    }
    missing = demand > resident ? demand - resident : 0;
    gs_size_format(available, have, sizeof have);
    if (available < LOW_HOST) {
        doctor_add(doctor, "host.memory", DOCTOR_WARN,
                   "memory that does not fit on the card is kept in host RAM: end some "
                   "programs, or add host memory",
                   "%s of host memory are available", have);
        doctor_command(doctor, "ps -eo pid,user,rss,args --sort=-rss | head");
    } else {
        doctor_add(doctor, "host.memory", DOCTOR_OK, NULL,
                   "%s of host memory are available; %s of programs' memory is there now", have,
                   gs_size_format(missing, need, sizeof need));
    }
}

/* The places of the library: beside this program (installed or in the build tree), or the usual
 * places of installation. */
static void look_at_library(struct doctor *doctor)
{
    static const char *const beside[] = {"../lib/", "../lib/x86_64-linux-gnu/", "../lib64/",
                                         "../lib/aarch64-linux-gnu/", "../runtime/"};
    char self[PATH_MAX], path[PATH_MAX + 64];

    gs_own_path(self, 1);
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(path, sizeof path, "%s/%slibgpushare.so.1", self, beside[i]);
        if (access(path, R_OK) == 0) {
            doctor_add(doctor, "library.installed", DOCTOR_OK, NULL, "the library is %s", path);
            return;
        }
    }
    doctor_add(doctor, "library.installed", DOCTOR_WARN,
               "install gpushare; programs name the library by its full path",
               "libgpushare.so.1 was not found in the usual places beside %s/gpusharectl",
               self);
    doctor_command(doctor, "find / -name libgpushare.so.1 -not -path '/proc/*' 2>/dev/null");
}

void doctor_system(struct doctor *doctor)
{
    glob_t instances = {0};

    look_at_driver(doctor);
    if (glob("/proc/driver/nvidia/capabilities/gpu*/mig/gi*", 0, NULL, &instances) == 0)
        doctor_add(doctor, "driver.mig", DOCTOR_INFO,
                   "programs share a GPU only if they use the same instance",
                   "there are %zu MIG instances; each is a separate device",
                   instances.gl_pathc);
    globfree(&instances);
    look_at_library(doctor);
    look_at_host_memory(doctor);
}

/* Checks the conditions for containers: the door, the specification (CDI) by which their
 * runtime provides it, and the daemon's socket inside. */

/* The first path of the host in these edits that does not exist; NULL: all exist. */
static const char *find_gone(const json_t *edits)
{
    static const char *const lists[][2] = {{"mounts", "hostPath"}, {"deviceNodes", "path"}};

    for (size_t i = 0; i < 2; i++) {
        const json_t *list = json_object_get(edits, lists[i][0]), *each;
        size_t at;

        json_array_foreach(list, at, each)
        {
            const char *path = json_string_value(json_object_get(each, lists[i][1]));

            if (path != NULL && path[0] == '/' && access(path, F_OK) != 0)
                return path;
        }
    }
    return NULL;
}

static void look_at_spec(struct doctor *doctor, const char *file)
{
    json_t *spec = json_load_file(file, 0, NULL);
    const char *kind = json_string_value(json_object_get(spec, "kind")), *gone;
    const json_t *devices = json_object_get(spec, "devices"), *device;
    char quoted[DOCTOR_QUOTED];
    size_t at;

    if (kind == NULL || strcmp(kind, "gpushare.dev/gpu") != 0) {
        json_decref(spec);
        return;
    }
    gone = find_gone(json_object_get(spec, "containerEdits"));
    json_array_foreach(devices, at, device)
    {
        gone = gone != NULL ? gone : find_gone(json_object_get(device, "containerEdits"));
    }
    if (gone == NULL) {
        doctor_add(doctor, "container.specification", DOCTOR_OK, NULL,
                   "%s gives containers the device gpushare.dev/gpu", file);
    } else {
        doctor_add(doctor, "container.specification", DOCTOR_FAIL,
                   "write it again after each upgrade of the driver or of gpushare",
                   "%s names %.200s, which does not exist: containers with the device "
                   "gpushare.dev/gpu do not start",
                   file, gone);
        doctor_command(doctor, "sudo gpusharectl cdi generate --output %s",
                       doctor_quote(file, quoted));
    }
    json_decref(spec);
}

void doctor_containers(struct doctor *doctor)
{
    static const char *const patterns[] = {"/etc/cdi/*.json", "/var/run/cdi/*.json"};

    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        glob_t found = {0};

        if (glob(patterns[i], 0, NULL, &found) == 0) {
            for (size_t at = 0; at < found.gl_pathc; at++)
                look_at_spec(doctor, found.gl_pathv[at]);
        }
        globfree(&found);
    }
}

/* --- a process --- */

bool doctor_is_contained(const struct doctor *doctor)
{
    char path[64], theirs[64], ours[64];
    ssize_t a, b;

    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)doctor->pid);
    a = readlink(path, theirs, sizeof theirs - 1);
    b = readlink("/proc/self/ns/mnt", ours, sizeof ours - 1);
    return a >= 0 && b >= 0 && (a != b || memcmp(theirs, ours, (size_t)a) != 0);
}

/* Checks a process in a container, where the socket's folder must be mounted. */
void doctor_namespaces(struct doctor *doctor)
{
    const char *path = doctor->ctl->path, *slash = strrchr(path, '/');
    const int folder = slash != NULL && slash > path ? (int)(slash - path) : 1;
    char socket[256];
    struct stat here, there;

    if (!doctor_is_contained(doctor))
        return;
    snprintf(socket, sizeof socket, "/proc/%d/root%s", (int)doctor->pid, path);
    if (access(socket, F_OK) != 0)
        doctor_add(doctor, "process.container", DOCTOR_FAIL,
                   "mount the socket's folder into it, or give it the device gpushare.dev/gpu",
                   "it runs in a container that does not see %s", path);
    else if (stat(socket, &there) == 0 && stat(path, &here) == 0 &&
             (here.st_dev != there.st_dev || here.st_ino != there.st_ino))
        doctor_add(doctor, "process.container", DOCTOR_FAIL,
                   "mount the socket's folder into it (not the socket itself, which each "
                   "daemon creates again), then restart the program",
                   "it runs in a container, where %s is another daemon's socket", path);
    else {
        doctor_add(doctor, "process.container", DOCTOR_OK, NULL,
                   "it runs in another mount namespace (a container) and sees the socket at %s",
                   path);
        return;
    }
    doctor_command(
        doctor, "docker run -v %.*s:%.*s --group-add \"$(stat -c %%g %.*s)\" --gpus all IMAGE",
        folder, path, folder, path, folder, path);
}

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

/* GPUSHARE_CLASS; value may be NULL. whose: for the messages. */
static void doctor_class(struct doctor *doctor, const char *value, const char *whose)
{
    const struct lockd_setting *row = lockd_setting_find("class");
    uint64_t place = 0;
    struct gs_option option;
    struct gs_err err = {0};

    if (value == NULL || value[0] == '\0' || row == NULL)
        return;
    option = lockd_setting_option(row, &place);
    if (gs_option_value(&option, value, &err) == 0) {
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

void doctor_wheel(struct doctor *doctor)
{
    char folder[PATH_MAX], python[PATH_MAX + 16], package[PATH_MAX + 64];
    char quoted[DOCTOR_QUOTED];
    enum doctor_patched patched;
    glob_t found = {0};

    if (!gs_own_environment(folder))
        return;
    snprintf(python, sizeof python, "%s/bin/python3", folder);
    snprintf(package, sizeof package,
             "%s/lib/python3*/site-packages/gpushare_patch/__init__.py", folder);
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
    } else if (glob(package, 0, NULL, &found) == 0) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_WARN,
                   "enable it once, then restart programs that are already running",
                   "gpushare is installed in the Python environment %s, but not enabled there",
                   folder);
        doctor_command(doctor, "%s -m gpushare_patch enable", doctor_quote(python, quoted));
    }
    globfree(&found);
}
