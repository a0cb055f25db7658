/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_container.c: checks the conditions for containers: the door, the specification (CDI) by
 * which their runtime provides it, and the daemon's socket inside. No state.
 */
#include "common/fd.h"
#include "lockd/ctl/doctor/doctor_container.h"
#include "lockd/ctl/doctor/findings.h"

#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
