/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system.c: checks the machine (driver, MIG, host memory, gpushare's library) and containers. No state.
 */
#include "lockd/ctl/doctor/doctor_system.h"
#include "common/fd.h"
#include "common/size.h"
#include "lockd/base/hostmem.h"
#include "lockd/ctl/doctor/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOW_HOST (4ull << 30)

bool doctor_is_stub(const char *path)
{
    return strstr(path, "/stubs/") != NULL;
}

/* Whether the opened library has loaded the driver under its other name. */
static bool is_door(const struct link_map *map)
{
    for (; map != NULL; map = map->l_next) {
        const char *slash = strrchr(map->l_name, '/');

        if (slash != NULL && strcmp(slash + 1, GS_DOOR_REAL) == 0)
            return true;
    }
    return false;
}

static void look_at_driver(struct doctor *doctor)
{
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    char line[256] = "";
    void *libcuda;
    struct link_map *map = NULL;

    if (file != NULL) {
        if (fgets(line, sizeof line, file) != NULL)
            line[strcspn(line, "\n")] = '\0';
        fclose(file);
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
    if (dlinfo(libcuda, RTLD_DI_LINKMAP, &map) == 0 && doctor_is_stub(map->l_name)) {
        doctor_add(doctor, "driver.library", DOCTOR_WARN, DOCTOR_STUB_ADVICE,
                   "libcuda.so.1 is %s, the toolkit's stub for linking, in which no call "
                   "works",
                   map->l_name);
        doctor_command(doctor, "%s", DOCTOR_STUB_COMMAND);
    } else if (map != NULL && is_door(map)) {
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

static void look_at_mig(struct doctor *doctor)
{
    glob_t found = {0};

    if (glob("/proc/driver/nvidia/capabilities/gpu*/mig/gi*", 0, NULL, &found) == 0)
        doctor_add(doctor, "driver.mig", DOCTOR_INFO,
                   "programs share a GPU only if they use the same instance",
                   "there are %zu MIG instances; each is a separate device", found.gl_pathc);
    globfree(&found);
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
    char self[512], path[1024];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    self[length > 0 ? length : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash != NULL)
        slash[1] = '\0';
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(path, sizeof path, "%s%slibgpushare.so.1", self, beside[i]);
        if (access(path, R_OK) == 0) {
            doctor_add(doctor, "library.installed", DOCTOR_OK, NULL, "the library is %s", path);
            return;
        }
    }
    doctor_add(doctor, "library.installed", DOCTOR_WARN,
               "install gpushare; programs name the library by its full path",
               "libgpushare.so.1 was not found in the usual places beside %sgpusharectl", self);
    doctor_command(doctor, "find / -name libgpushare.so.1 -not -path '/proc/*' 2>/dev/null");
}

void doctor_system(struct doctor *doctor)
{
    look_at_driver(doctor);
    look_at_mig(doctor);
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
