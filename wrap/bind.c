/* SPDX-License-Identifier: Apache-2.0
 *
 * bind.c: bind mounts in a private mount namespace. Nothing on the disk is changed, and the
 * mounts end with the last process of the namespace.
 */
#include "wrap/bind.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/fd.h"

static int write_file(const char *path, const char *text)
{
    GS_CLOSE_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

/* Makes a user namespace in which this user is the same as outside, and no other user is known. */
static int unshare_as_user(void)
{
    const unsigned uid = geteuid(), gid = getegid();
    char map[64];
    int code;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return -errno;
    code = write_file("/proc/self/setgroups", "deny");
    if (code != 0 && code != -ENOENT)
        return code;
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    code = write_file("/proc/self/gid_map", map);
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    return code == 0 ? write_file("/proc/self/uid_map", map) : code;
}

int gs_bind_unshare(struct gs_err *err)
{
    int code = unshare(CLONE_NEWNS) == 0 ? 0 : -errno;

    if (code == -EPERM)
        code = unshare_as_user();
    if (code != 0)
        return gs_err_errno(err, code,
                            "no mount namespace of its own (user namespaces may be disabled "
                            "here; --stage and LD_LIBRARY_PATH need none)");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return gs_err_errno(err, -errno, "making mounts private%s",
                            errno == EINVAL ? ": the root folder of this chroot is no mount "
                                              "point (--stage and LD_LIBRARY_PATH need none)"
                                            : "");
    return 0;
}

int gs_bind_check(struct gs_err *err)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    bool shared = false;

    if (file == NULL)
        return gs_err_errno(err, -errno, "/proc/self/mountinfo");
    while (fgets(line, sizeof line, file) != NULL)
        shared |= strstr(line, " shared:") != NULL;
    fclose(file);
    return shared ? gs_err_set(err, -EPERM,
                               "processes elsewhere share mounts with this one, and would get "
                               "the door as well: begin with `unshare -m`")
                  : 0;
}

static int protect_file(const char *from, const char *to, struct gs_err *err)
{
    struct statvfs st;
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY;

    /* a user namespace may not drop these */
    if (statvfs(to, &st) == 0)
        flags |= ((st.f_flag & ST_NOSUID) != 0 ? MS_NOSUID : 0) |
                 ((st.f_flag & ST_NODEV) != 0 ? MS_NODEV : 0) |
                 ((st.f_flag & ST_NOATIME) != 0 ? MS_NOATIME : 0) |
                 ((st.f_flag & ST_NODIRATIME) != 0 ? MS_NODIRATIME : 0) |
                 ((st.f_flag & ST_RELATIME) != 0 ? MS_RELATIME : 0);
    if (mount(NULL, to, NULL, flags, NULL) != 0 &&
        !(errno == EPERM && mount(NULL, to, NULL, flags | MS_NOEXEC, NULL) == 0))
        return gs_err_errno(err, -errno, "making %.300s read-only", to);
    /* true for a folder on a file system without programs (noexec), from which no library can be
     * loaded */
    return statvfs(to, &st) == 0 && (st.f_flag & ST_NOEXEC) != 0
               ? gs_err_set(err, -EPERM, "%.300s: its file system allows no programs (noexec)",
                            from)
               : 0;
}

static int bind_file(const char *from, const char *to, struct gs_err *err)
{
    int code;

    if (mount(from, to, NULL, MS_BIND, NULL) != 0)
        return gs_err_errno(err, -errno, "mounting %.200s on %.200s", from, to);
    code = protect_file(from, to, err);
    if (code != 0)
        umount2(to, MNT_DETACH);
    return code;
}

int gs_bind_mount(const struct gs_stage *stage, const struct gs_drivers *drivers,
                  struct gs_err *err)
{
    int code = bind_file(drivers->path[0], stage->real, err);
    size_t done = 0;

    if (code != 0)
        return code;
    while (done < drivers->count && code == 0) {
        code = bind_file(stage->door, drivers->path[done], err);
        done += code == 0;
    }
    if (code == 0)
        return 0;
    while (done > 0) /* with some of the mounts only, the namespace would have no driver */
        umount2(drivers->path[--done], MNT_DETACH);
    umount2(stage->real, MNT_DETACH);
    return code;
}
