/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_host.c: finds the driver's device nodes, libraries and UUIDs on this host, for hosts without
 * nvidia-ctk. Reads /dev, /proc/driver/nvidia and the folder of libcuda.so.1.
 */
#include "lockd/ctl/cdi_host.h"
#include "common/fd.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define GS_MACHINE_FOLDER "/usr/lib/x86_64-linux-gnu"
#else
#define GS_MACHINE_FOLDER "/usr/lib/aarch64-linux-gnu"
#endif

static json_t *node_json(const char *path)
{
    return json_pack("{s:s}", "path", path);
}

json_t *cdi_mount_json(const char *host, const char *container)
{
    return json_pack("{s:s, s:s, s:[s, s, s, s]}", "hostPath", host, "containerPath", container,
                     "options", "ro", "nosuid", "nodev", "bind");
}

/* "/dev/nvidia3": 3; -1: another node. */
static int minor_of(const char *path)
{
    static const char start[] = "/dev/nvidia";
    const char *digits = path + sizeof start - 1;

    if (strncmp(path, start, sizeof start - 1) != 0 || *digits == '\0' ||
        digits[strspn(digits, "0123456789")] != '\0' || strlen(digits) > 6)
        return -1;
    return (int)strtol(digits, NULL, 10);
}

static void add_device(json_t *devices, const char *name, json_t *nodes)
{
    json_array_append_new(devices, json_pack("{s:s, s:{s:O}}", "name", name, "containerEdits",
                                             "deviceNodes", nodes));
}

static void list_devices(json_t *devices, const char *root)
{
    const size_t skip = strlen(root);
    char pattern[PATH_MAX];
    glob_t found = {0};
    json_t *all = json_array();

    snprintf(pattern, sizeof pattern, "%s/dev/nvidia[0-9]*", root);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const int minor = minor_of(found.gl_pathv[i] + skip);
            json_t *nodes = json_array();
            char name[16];

            snprintf(name, sizeof name, "%d", minor);
            json_array_append_new(nodes, node_json(found.gl_pathv[i] + skip));
            json_array_extend(all, nodes);
            if (minor >= 0)
                add_device(devices, name, nodes);
            json_decref(nodes);
        }
    }
    globfree(&found);
    if (json_array_size(all) != 0)
        add_device(devices, "all", all);
    json_decref(all);
}

/* Resolves a path of the host into found (PATH_MAX bytes), again a path of the host: links are
 * followed inside the root (openat2(2)). */
static bool resolve_path(const char *root, const char *path, char *found)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    const size_t skip = strlen(root);
    GS_CLOSE_FD int top = -1;
    GS_CLOSE_FD int file = -1;
    char link[64];
    ssize_t length;

    if (root[0] == '\0')
        return realpath(path, found) != NULL;
    top = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    file = top >= 0 ? (int)syscall(__NR_openat2, top, path, &how, sizeof how) : -1;
    if (file < 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, found, PATH_MAX - 1);
    if (length < (ssize_t)skip || strncmp(found, root, skip) != 0)
        return false;
    found[length] = '\0';
    memmove(found, found + skip, (size_t)length - skip + 1);
    return true;
}

/* Mounts each library of the driver under all its names, so that the container needs no links. */
static void list_libraries(json_t *mounts, const char *root, const char *folder,
                           const char *version)
{
    static const char *const patterns[] = {"libcuda.so.*", "libcuda.so", "libcudadebugger.so.*",
                                           "libnvidia-*.so.*"};
    char pattern[2 * PATH_MAX + 32];

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found = {0};

        snprintf(pattern, sizeof pattern, "%s%s/%s", root, folder, patterns[i]);
        if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc; k++) {
                const char *name = found.gl_pathv[k] + strlen(root);
                char file[PATH_MAX];
                const bool whole = resolve_path(root, name, file);
                const char *tail = whole ? strstr(file, ".so.") : NULL;

                if (tail != NULL && strcmp(tail + 4, version) == 0)
                    json_array_append_new(mounts, cdi_mount_json(file, name));
            }
        }
        globfree(&found);
    }
    snprintf(pattern, sizeof pattern, "%s/usr/bin/nvidia-smi", root);
    if (access(pattern, X_OK) == 0)
        json_array_append_new(mounts,
                              cdi_mount_json("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"));
}

/* "/usr/lib/libcuda.so.580.159.04": the part behind ".so." */
static bool take_version(const char *file, char *version, size_t size)
{
    const char *tail = file != NULL ? strstr(file, ".so.") : NULL;

    return tail != NULL && snprintf(version, size, "%s", tail + 4) < (int)size;
}

/* As find_driver(), for a host whose files are below a root. */
static bool find_driver_in(const char *root, char *folder, char *version, size_t size)
{
    static const char *const folders[] = {GS_MACHINE_FOLDER, "/usr/lib64", "/usr/lib",
                                          "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[PATH_MAX], file[PATH_MAX];

        snprintf(path, sizeof path, "%s/libcuda.so.1", folders[i]);
        if (resolve_path(root, path, file) && take_version(file, version, size))
            return snprintf(folder, PATH_MAX, "%s", folders[i]) < PATH_MAX;
    }
    return false;
}

/* The folder and the version ("580.159.04") of the libcuda that the loader finds. */
static bool find_driver(char *folder, char *version, size_t size)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    GS_FREE char *file = NULL;
    struct link_map *object = NULL;
    char *slash;

    if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 ||
        snprintf(folder, PATH_MAX, "%s", object->l_name) >= PATH_MAX)
        return false;
    slash = strrchr(folder, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    file = realpath(object->l_name, NULL);
    return take_version(file, version, size);
}

json_t *cdi_host_read(const char *root, struct gs_err *err)
{
    static const char *const names[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                        "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};
    json_t *devices = json_array(), *nodes = json_array(), *mounts = json_array();
    char path[PATH_MAX], folder[PATH_MAX], version[64];

    list_devices(devices, root);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", root, names[i]);
        if (access(path, F_OK) == 0)
            json_array_append_new(nodes, node_json(names[i]));
    }
    if (json_array_size(devices) == 0)
        gs_err_set(err, -ENODEV, "there is no /dev/nvidia0: is the driver loaded?");
    else if (root[0] != '\0' ? !find_driver_in(root, folder, version, sizeof version)
                             : !find_driver(folder, version, sizeof version))
        gs_err_set(err, -ENOENT, "the driver's library libcuda.so.1 is not installed %s%.200s",
                   root[0] != '\0' ? "in " : "here", root);
    if (err->code != 0) {
        json_decref(devices);
        json_decref(nodes);
        json_decref(mounts);
        return NULL;
    }
    list_libraries(mounts, root, folder, version);
    return json_pack("{s:s, s:o, s:{s:o, s:o}}", "kind", "nvidia.com/gpu", "devices", devices,
                     "containerEdits", "deviceNodes", nodes, "mounts", mounts);
}

/* --- UUIDs --- */

/* Reads a value of /proc/driver/nvidia/gpus/<bus>/information, such as "GPU UUID: GPU-...". */
static bool read_information(const char *path, char *uuid, size_t size, int *minor)
{
    GS_CLOSE_FILE FILE *file = fopen(path, "re");
    char line[256], word[64];
    bool found = false;

    *minor = -1;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "GPU UUID: %63s", word) == 1 && strncmp(word, "GPU-", 4) == 0)
            found = snprintf(uuid, size, "%s", word) < (int)size;
        else if (sscanf(line, "Device Minor: %63s", word) == 1)
            *minor = (int)strtol(word, NULL, 10);
    }
    return found && *minor >= 0;
}

static bool has_device(const json_t *devices, const char *name)
{
    size_t i;
    json_t *device;

    json_array_foreach(devices, i, device)
    {
        const char *other = json_string_value(json_object_get(device, "name"));

        if (other != NULL && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

/* The device that has this node and no node of another card. */
static json_t *device_of_minor(json_t *devices, int minor)
{
    size_t i, k;
    json_t *device, *node;

    json_array_foreach(devices, i, device)
    {
        const json_t *edits = json_object_get(device, "containerEdits");
        int count = 0;
        bool here = false;

        json_array_foreach(json_object_get(edits, "deviceNodes"), k, node)
        {
            const char *path = json_string_value(json_object_get(node, "path"));
            const int its = path != NULL ? minor_of(path) : -1;

            count += its >= 0;
            here |= its == minor;
        }
        if (here && count == 1)
            return device;
    }
    return NULL;
}

void cdi_host_name_devices(json_t *spec)
{
    json_t *devices = json_object_get(spec, "devices");
    glob_t found = {0};

    if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char uuid[64];
            int minor;
            json_t *device = read_information(found.gl_pathv[i], uuid, sizeof uuid, &minor)
                                 ? device_of_minor(devices, minor)
                                 : NULL;

            if (device != NULL && !has_device(devices, uuid))
                json_array_append_new(devices,
                                      json_pack("{s:s, s:O}", "name", uuid, "containerEdits",
                                                json_object_get(device, "containerEdits")));
        }
    }
    globfree(&found);
}
