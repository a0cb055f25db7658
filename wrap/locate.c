/* SPDX-License-Identifier: Apache-2.0
 *
 * locate.c: finds the files that gpushare-cc needs. Reads the environment and the file system;
 * changes and keeps nothing.
 */
#include "wrap/locate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

#define RUNTIME_NAME "libgpushare.so.1"
#define LIST_NAME    "wrap.rsp"

static const struct {
    const char *variable, *program, *what;
} compilers[] = {
    [GS_COMPILER_CC] = {"GPUSHARE_CC", "cc", "C compiler"},
    [GS_COMPILER_CXX] = {"GPUSHARE_CXX", "c++", "C++ compiler"},
    [GS_COMPILER_NVCC] = {"GPUSHARE_NVCC", "nvcc", "CUDA compiler"},
};

/* The folder of this program's file, symbolic links resolved. */
static int own_folder(char *folder, size_t size, struct gs_err *err)
{
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    char *slash;

    if (length < 0)
        return gs_err_errno(err, -errno, "/proc/self/exe");
    folder[length] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL)
        return gs_err_set(err, -ENOENT, "/proc/self/exe is %s, which is not an absolute path",
                          folder);
    slash[slash == folder ? 1 : 0] = '\0';
    return 0;
}

/* Writes the resolved path of folder/tail if such a file can be read. */
static bool try_file(const char *folder, const char *tail, char *path)
{
    char joined[PATH_MAX];
    GS_FREE char *resolved_folder = NULL;
    char *slash;

    if (snprintf(joined, sizeof joined, "%s/%s", folder, tail) >= (int)sizeof joined)
        return false;
    if (access(joined, R_OK) != 0)
        return false;
    slash = strrchr(joined, '/');
    *slash =
        '\0'; /* resolve the folder only: libgpushare.so.1 may be a link to the full version */
    resolved_folder = realpath(joined, NULL);
    return resolved_folder != NULL &&
           snprintf(path, PATH_MAX, "%s/%s", resolved_folder, slash + 1) < PATH_MAX;
}

int gs_locate_runtime(const char *library, struct gs_runtime_files *files, struct gs_err *err)
{
    char folder[PATH_MAX];
    char *slash;
    int r = own_folder(folder, sizeof folder, err);

    if (r != 0)
        return r;
    if (library != NULL) {
        if (!try_file(*library == '/' ? "" : ".", library, files->library))
            return gs_err_set(
                err, -ENOENT,
                "there is no library %s; --gpushare-runtime needs the path of " RUNTIME_NAME,
                library);
    } else if (!try_file(folder, "../runtime/" RUNTIME_NAME, files->library) &&
               !try_file(folder, GS_LIBDIR_FROM_BINDIR "/" RUNTIME_NAME, files->library)) {
        return gs_err_set(
            err, -ENOENT,
            "no " RUNTIME_NAME " in %s/" GS_LIBDIR_FROM_BINDIR
            "; install gpushare completely, or name it with --gpushare-runtime=PATH",
            folder);
    }
    if (!try_file(folder, LIST_NAME, files->list) &&
        !try_file(folder, GS_LIBDIR_FROM_BINDIR "/gpushare/" LIST_NAME, files->list))
        return gs_err_set(err, -ENOENT,
                          "no " LIST_NAME " in %s/" GS_LIBDIR_FROM_BINDIR
                          "/gpushare; install gpushare completely",
                          folder);
    memcpy(files->folder, files->library, sizeof files->folder);
    slash = strrchr(files->folder, '/');
    slash[slash == files->folder ? 1 : 0] = '\0';
    return 0;
}

static bool is_ourselves(const char *path)
{
    struct stat theirs, ours;

    return stat("/proc/self/exe", &ours) == 0 && stat(path, &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Finds the path of a name as exec would, except for this program itself. */
static bool search_path(const char *name, char *found)
{
    const char *path = getenv("PATH");

    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    for (;;) {
        size_t length = strcspn(path, ":");

        if (snprintf(found, PATH_MAX, "%.*s/%s", length != 0 ? (int)length : 1,
                     length != 0 ? path : ".", name) < PATH_MAX &&
            is_program(found) && !is_ourselves(found))
            return true;
        if (path[length] == '\0')
            return false;
        path += length + 1;
    }
}

/* nvcc is seldom on PATH: looks in the toolkit's usual places. */
static bool search_toolkit(char *found)
{
    const char *home = getenv("CUDA_HOME");
    const char *const folders[] = {home, "/usr/local/cuda", "/opt/cuda"};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (folders[i] != NULL &&
            snprintf(found, PATH_MAX, "%s/bin/nvcc", folders[i]) < PATH_MAX &&
            is_program(found) && !is_ourselves(found))
            return true;
    }
    return false;
}

/* Finds the first word of a command; the later words (ccache's compiler) must not be this
 * program either. */
static int resolve_command(enum gs_compiler compiler, bool by_default, struct gs_args *command,
                           struct gs_err *err)
{
    const char *name = command->item[0];
    char found[PATH_MAX];
    char *copy;

    for (size_t i = 0; i < command->count; i++)
        if (strchr(command->item[i], '/') != NULL && is_ourselves(command->item[i]))
            return gs_err_set(err, -ELOOP, "%s is gpushare-cc itself; set %s to the real %s",
                              command->item[i], compilers[compiler].variable,
                              compilers[compiler].what);
    if (strchr(name, '/') != NULL) {
        if (!is_program(name))
            return gs_err_set(err, -ENOENT, "%s is not an executable program; set %s to a %s",
                              name, compilers[compiler].variable, compilers[compiler].what);
        return 0;
    }
    if (!search_path(name, found) &&
        !(by_default && compiler == GS_COMPILER_NVCC && search_toolkit(found)))
        return gs_err_set(err, -ENOENT,
                          "there is no %s '%s' on PATH; install one or set %s to its path",
                          compilers[compiler].what, name, compilers[compiler].variable);
    copy = strdup(found);
    if (copy == NULL)
        return -ENOMEM;
    free(command->item[0]);
    command->item[0] = copy;
    return 0;
}

int gs_locate_compiler(enum gs_compiler compiler, const char *asked, struct gs_args *command,
                       struct gs_err *err)
{
    const char *text = asked != NULL ? asked : getenv(compilers[compiler].variable);
    bool by_default = text == NULL || text[strspn(text, " \t")] == '\0';
    int r = 0;

    /* a path with a blank in it is taken as a whole if there is such a file */
    if (by_default)
        r = gs_args_push(command, "%s", compilers[compiler].program);
    else if (strchr(text, '/') != NULL && is_program(text))
        r = gs_args_push(command, "%s", text);
    else
        r = gs_args_split(command, text);
    if (r == 0)
        r = resolve_command(compiler, by_default, command, err);
    return r == -ENOMEM ? gs_err_set(err, r, "out of memory") : r;
}
