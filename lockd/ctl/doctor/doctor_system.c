/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system.c: checks the machine: NVIDIA's driver, MIG, host memory, gpushare's library. No
 * state.
 */
#include "common/fd.h"
#include "common/size.h"
#include "lockd/base/hostmem.h"
#include "lockd/ctl/doctor/doctor_system.h"
#include "lockd/ctl/doctor/findings.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
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
