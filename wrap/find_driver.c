/* SPDX-License-Identifier: Apache-2.0
 *
 * find_driver.c: asks the loader for the driver's library, and looks into the folders in which
 * packages put other copies. Keeps nothing.
 */
#include "wrap/find_driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#error "neither x86-64 nor aarch64"
#endif

static bool is_ours(const char *path)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr header;

    return fd >= 0 && read(fd, &header, sizeof header) == (ssize_t)sizeof header &&
           memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == OUR_MACHINE;
}

static void add_driver(struct gs_drivers *drivers, const char *path)
{
    GS_FREE char *real = realpath(path, NULL);

    if (real == NULL || drivers->count == GS_DRIVERS_MOST || strlen(real) >= PATH_MAX ||
        !is_ours(real))
        return;
    for (size_t i = 0; i < drivers->count; i++)
        if (strcmp(drivers->path[i], real) == 0)
            return;
    snprintf(drivers->path[drivers->count++], PATH_MAX, "%s", real);
}

static void add_copies(struct gs_drivers *drivers)
{
    static const char *const patterns[] = {
        "/usr/lib/*-linux-gnu/" GS_DOOR_NAME,
        "/usr/lib64/" GS_DOOR_NAME,
        "/usr/lib/" GS_DOOR_NAME,
        "/usr/lib/wsl/lib/" GS_DOOR_NAME,
        "/usr/local/nvidia/lib*/" GS_DOOR_NAME,
        "/usr/local/cuda*/compat/" GS_DOOR_NAME,
    };

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found = {0};

        if (glob(patterns[i], GLOB_NOSORT, NULL, &found) == 0)
            for (size_t k = 0; k < found.gl_pathc; k++)
                add_driver(drivers, found.gl_pathv[k]);
        globfree(&found);
    }
}

int gs_find_drivers(struct gs_drivers *drivers, struct gs_err *err)
{
    void *handle = dlopen(GS_DOOR_NAME, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *object = NULL;

    drivers->count = 0;
    drivers->bound = false;
    if (handle == NULL)
        return gs_err_set(err, -ENOENT, "the driver is not installed here: %.400s", dlerror());
    if (dlinfo(handle, RTLD_DI_LINKMAP, &object) == 0 && object != NULL)
        add_driver(drivers, object->l_name);
    drivers->bound = dlsym(handle, "gpushare_door_driver") != NULL;
    if (drivers->count == 0)
        return gs_err_set(err, -ENOENT, "the file of " GS_DOOR_NAME " cannot be read");
    add_copies(drivers);
    return 0;
}

int gs_find_door(char *path, struct gs_err *err)
{
    static const char *const tails[] = {"../runtime/door/" GS_DOOR_NAME,
                                        GS_LIBDIR_FROM_BINDIR "/gpushare/door/" GS_DOOR_NAME};
    char folder[PATH_MAX], joined[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash;

    if (length < 0)
        return gs_err_errno(err, -errno, "/proc/self/exe");
    folder[length] = '\0';
    slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (snprintf(joined, sizeof joined, "%s/%s", folder, tails[i]) < (int)sizeof joined &&
            access(joined, R_OK) == 0 && realpath(joined, path) != NULL)
            return 0;
    }
    return gs_err_set(err, -ENOENT,
                      "no door in %.300s/" GS_LIBDIR_FROM_BINDIR
                      "/gpushare/door; install gpushare completely",
                      folder);
}
