/* SPDX-License-Identifier: Apache-2.0
 *
 * location.c: finds the runtime library that patched files will load.
 *
 * The path goes into programs, so it must be absolute: a relative one would be looked up from
 * wherever the program starts. No state, any thread.
 */
#include "rewriter/job/location.h"
#include "rewriter/elf/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libgpushare.so.1"

/* Resolves the folder of path and keeps the last part: libgpushare.so.1 stays a link that
 * upgrades may move. */
static int resolve(char out[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".", real[PATH_MAX];
    int n;

    if (slash != NULL) {
        size_t length = slash > path ? (size_t)(slash - path) : 1;

        if (length >= sizeof folder)
            return -ENAMETOOLONG;
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    if (realpath(folder, real) == NULL)
        return -errno;
    n = snprintf(out, PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real,
                 slash != NULL ? slash + 1 : path);
    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int beside_tool(char out[PATH_MAX])
{
    static const char *const places[] = {"../runtime/" LIBRARY, "../" GS_LIBDIR "/" LIBRARY,
                                         "../lib/" LIBRARY, "../lib64/" LIBRARY};
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n <= 0)
        return -ENOENT;
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL)
        return -ENOENT;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", self, places[i]);
        if (access(path, F_OK) == 0)
            return resolve(out, path);
    }
    return -ENOENT;
}

int elf_location_find(char path[PATH_MAX], const char *wanted, bool force, struct gs_err *err)
{
    int ret;

    if (wanted != NULL) {
        ret = resolve(path, wanted);
        if (ret != 0)
            return gs_err_errno(err, ret, "%s: no such runtime library", wanted);
    } else if (beside_tool(path) != 0) {
        snprintf(path, PATH_MAX, "%s", GS_FULL_LIBDIR "/" LIBRARY);
    }
    if (strchr(path, '\n') != NULL || strchr(path, '$') != NULL || strchr(path, ':') != NULL)
        return gs_err_set(
            err, -EINVAL,
            "%s: the loader would misread this path; use one without $ and :", path);
    if (!force && access(path, R_OK) != 0)
        return gs_err_set(
            err, -ENOENT,
            "%s: the runtime library is not there, and what is patched for it would not "
            "start; give --runtime PATH (or --force if it will be there)",
            path);
    return 0;
}

int elf_location_check(const char *path, const char *name, unsigned machine, struct gs_err *err)
{
    Elf64_Ehdr header;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n;

    if (fd < 0)
        return gs_err_errno(err, -errno, "%s: the runtime library cannot be opened", path);
    n = pread(fd, &header, sizeof header, 0);
    close(fd);
    if (n != (ssize_t)sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64)
        return gs_err_set(
            err, -ENOENT,
            "%s: is no library; give --runtime PATH of the runtime library (" LIBRARY ")",
            path);
    if (header.e_machine == machine)
        return 0;
    return gs_err_set(
        err, -ENOENT,
        "%s: is for %s, but the runtime library %s is not; give --runtime PATH of "
        "one that is",
        name, elf_machine_name(machine), path);
}
