/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.c: makes a copy of the door for a folder. The door names the driver's library by an
 * absolute path of a fixed length (cmake/GpushareDoor.cmake), and the copy gets its own folder
 * there. Files are made under another name and renamed, except the empty file, which somebody may
 * have mounted on.
 */
#include "wrap/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

#define DOOR_MOST (64u << 20) /* bytes; it is below 2 MiB */

static int write_all(int fd, const char *bytes, size_t size)
{
    while (size != 0) {
        const ssize_t done = write(fd, bytes, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

static int read_door(const char *path, char **bytes, size_t *size, struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t got;

    if (fd < 0 || fstat(fd, &st) != 0)
        return gs_err_errno(err, -errno, "%.300s", path);
    if (st.st_size <= 0 || st.st_size > DOOR_MOST)
        return gs_err_set(err, -EINVAL, "%.300s is no door of gpushare", path);
    *size = (size_t)st.st_size;
    *bytes = malloc(*size);
    if (*bytes == NULL)
        return gs_err_set(err, -ENOMEM, "out of memory");
    got = gs_fd_read(fd, *bytes, *size);
    return got == st.st_size ? 0 : gs_err_errno(err, got < 0 ? (int)got : -EIO, "%.300s", path);
}

/* Writes the folder into the path by which the door loads the driver's library. */
static int name_folder(char *bytes, size_t size, const char *folder, struct gs_err *err)
{
    static const char tail[] = "/" GS_DOOR_REAL; /* with its 0 */
    const size_t room = GS_DOOR_PATH_LENGTH - (sizeof tail - 1), length = strlen(folder);
    char *found;

    if (length > room)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: its path may have %zu characters",
                          folder, room);
    found = memmem(bytes, size, tail, sizeof tail);
    if (found == NULL || (size_t)(found - bytes) < room || found[-(ptrdiff_t)room] != '/')
        return gs_err_set(err, -EINVAL, "the door does not name " GS_DOOR_REAL);
    memset(found - room, '/', room);
    for (size_t i = 0; i < length; i++) /* with no 0 behind it */
        (found - room)[i] = folder[i];
    return 0;
}

/* Opens a file with another name in the same folder for writing. */
static int open_beside(const char *path, char *beside, struct gs_err *err)
{
    int fd;

    if (snprintf(beside, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", path);
    fd = mkostemp(beside, O_CLOEXEC);
    return fd >= 0 ? fd : gs_err_errno(err, -errno, "%.300s", beside);
}

static int finish_beside(int fd, const char *beside, const char *path, int code,
                         struct gs_err *err)
{
    if (code == 0 && (fchmod(fd, 0755) != 0 || rename(beside, path) != 0))
        code = -errno;
    if (code != 0)
        unlink(beside);
    return code == 0 ? 0 : gs_err_errno(err, code, "%.300s", path);
}

static int put_door(const struct gs_stage *stage, const char *door, struct gs_err *err)
{
    GS_FREE char *bytes = NULL;
    GS_CLOSE_FD int fd = -1;
    char beside[PATH_MAX];
    size_t size = 0;
    int code = read_door(door, &bytes, &size, err);

    code = code ?: name_folder(bytes, size, stage->folder, err);
    if (code != 0)
        return code;
    fd = open_beside(stage->door, beside, err);
    return fd < 0 ? fd
                  : finish_beside(fd, beside, stage->door, write_all(fd, bytes, size), err);
}

/* With a link: without it, programs that ask for libcuda.so would find the driver's elsewhere. */
static int put_driver(const struct gs_stage *stage, const char *driver, struct gs_err *err)
{
    GS_CLOSE_FD int from = open(driver, O_RDONLY | O_CLOEXEC);
    GS_CLOSE_FD int to = -1;
    char beside[PATH_MAX], link[PATH_MAX];
    ssize_t done;
    int code;

    if (from < 0)
        return gs_err_errno(err, -errno, "%.300s", driver);
    to = open_beside(stage->real, beside, err);
    if (to < 0)
        return to;
    while ((done = sendfile(to, from, NULL, DOOR_MOST)) > 0 || (done < 0 && errno == EINTR))
        ;
    code = finish_beside(to, beside, stage->real, done == 0 ? 0 : -errno, err);
    if (code != 0)
        return code;
    if (snprintf(link, sizeof link, "%s/libcuda.so", stage->folder) >= (int)sizeof link)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", stage->folder);
    if (symlink(GS_DOOR_NAME, link) != 0 && errno != EEXIST)
        return gs_err_errno(err, -errno, "%.300s", link);
    return 0;
}

/* The empty file, to be mounted on. */
static int put_empty(const struct gs_stage *stage, struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(stage->real, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);

    /* a driver that was mounted there is in use, which is as good */
    return fd < 0 && errno != ETXTBSY && errno != EACCES && errno != EROFS
               ? gs_err_errno(err, -errno, "%.300s", stage->real)
               : 0;
}

int gs_stage_make(struct gs_stage *stage, const char *folder, const char *door,
                  const char *driver, struct gs_err *err)
{
    int code;

    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return gs_err_errno(err, -errno, "%.300s", folder);
    if (realpath(folder, stage->folder) == NULL)
        return gs_err_errno(err, -errno, "%.300s", folder);
    if (snprintf(stage->door, PATH_MAX, "%s/" GS_DOOR_NAME, stage->folder) >= PATH_MAX ||
        snprintf(stage->real, PATH_MAX, "%s/" GS_DOOR_REAL, stage->folder) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", folder);
    code = put_door(stage, door, err);
    return code ?: (driver == NULL ? put_empty(stage, err) : put_driver(stage, driver, err));
}

/* Whether it is this user's own, and no other user can put anything into it. */
static bool is_own_folder(const char *folder)
{
    struct stat st;

    return folder != NULL && *folder == '/' && lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

int gs_stage_place(char *folder, struct gs_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (geteuid() == 0 && is_own_folder("/run"))
        snprintf(folder, PATH_MAX, "/run/gpushare-door");
    else if (is_own_folder(runtime))
        snprintf(folder, PATH_MAX, "%s/gpushare-door", runtime);
    else
        snprintf(folder, PATH_MAX, "/tmp/gpushare-door-%u", (unsigned)geteuid());
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return gs_err_errno(err, -errno, "%.300s", folder);
    if (!is_own_folder(folder))
        return gs_err_set(err, -EPERM,
                          "%.300s is not a folder that user %u alone can write: remove it",
                          folder, (unsigned)geteuid());
    return 0;
}
