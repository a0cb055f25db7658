/* SPDX-License-Identifier: Apache-2.0
 *
 * place.c: checks whom a program connects to (place.h). No state, no allocation, any thread.
 *
 * Everything is checked by descriptor, so that nobody can replace it between the check and the
 * use. The process may not be ours: a program may close any descriptor and use the number itself,
 * so each is checked once more before it is closed.
 */
#include "common/place.h"
#include "common/fd.h"
#include "common/same.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

#define OVERFLOW_UID 65534 /* how a user namespace shows users that it does not have */
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

struct seen {
    int fd; /* O_PATH */
    struct stat st;
};

static int see_file(int folder, const char *name, int flags, struct seen *seen)
{
    seen->fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC | flags);
    if (seen->fd < 0)
        return -errno;
    if (fstat(seen->fd, &seen->st) == 0)
        return 0;
    return -errno; /* the program has closed it meanwhile */
}

static void forget_file(const struct seen *seen)
{
    struct stat now;

    if (seen->fd >= 0 && fstat(seen->fd, &now) == 0 && gs_same_inode(&now, &seen->st))
        close(seen->fd);
}

/* Splits a full path; the folder of "/name" is "/". */
static int split_path(const char *path, char *folder, size_t size, const char **name)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);

    if (slash == NULL || path[0] != '/')
        return -EINVAL;
    if (length >= size)
        return -ENAMETOOLONG;
    memcpy(folder, path, length);
    folder[length] = '\0';
    *name = slash + 1;
    return 0;
}

static bool is_overflow(uid_t uid)
{
    char text[16] = "";
    GS_CLOSE_FD int fd = open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    return uid == (got > 0 ? (uid_t)strtoul(text, NULL, 10) : OVERFLOW_UID);
}

/* True if only root can make or replace an entry of that folder. In a user namespace the folder
 * may be its owner's (of a sandbox, for example), or show the overflow user for root. */
static bool is_roots_alone(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & OTHERS_WRITE) == 0 &&
           (st.st_uid == 0 || st.st_uid == geteuid() || is_overflow(st.st_uid));
}

/* True if the folder's owner may serve all users: root made the folder for that. */
static bool is_services(const char *folder, const struct stat *st)
{
    return strcmp(folder, GS_SYSTEM_FOLDER) == 0 && (st->st_mode & OTHERS_WRITE) == 0 &&
           is_roots_alone("/run") && is_roots_alone("/");
}

static bool is_ours(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

static int check_folder(const char *folder, const struct stat *st, struct gs_err *err)
{
    if (!is_ours(st->st_uid) && !is_services(folder, st))
        return gs_err_set(err, -EPERM,
                          "%s belongs to user %u: a gpushare-lockd there is not trusted",
                          folder, (unsigned)st->st_uid);
    if ((st->st_mode & S_IWOTH) != 0 && (st->st_mode & S_ISVTX) == 0)
        return gs_err_set(
            err, -EPERM,
            "%s may be written by everybody: a gpushare-lockd there is not trusted", folder);
    return 0;
}

/* Opens and checks the folder; seen->fd is to be forgotten in any case. */
static int see_folder(const char *folder, struct seen *seen, struct gs_err *err)
{
    struct stat st;
    const int code = see_file(AT_FDCWD, folder, O_DIRECTORY, seen);

    if (code == 0)
        return check_folder(folder, &seen->st, err);
    if ((code == -ENOTDIR || code == -ELOOP) && lstat(folder, &st) == 0 && S_ISLNK(st.st_mode))
        return gs_err_set(err, -EPERM,
                          "%s is a symbolic link: a gpushare-lockd behind it is not trusted; "
                          "name the folder itself",
                          folder);
    return gs_err_errno(err, code, "%s", folder);
}

int gs_place_look(const char *socket_path, bool make, struct gs_err *err)
{
    struct seen seen = {.fd = -1};
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *name;
    int code = split_path(socket_path, folder, sizeof folder, &name);

    if (code != 0)
        return gs_err_errno(err, code, "%s", socket_path);
    if (make && mkdir(folder, strcmp(folder, GS_SYSTEM_FOLDER) == 0 ? 0755 : 0700) != 0 &&
        errno != EEXIST)
        return gs_err_errno(err, -errno, "%s: cannot create this folder", folder);
    code = see_folder(folder, &seen, err);
    forget_file(&seen);
    return code;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)   ? "folder"
           : S_ISREG(mode) ? "file"
           : S_ISLNK(mode) ? "symbolic link"
                           : "device or pipe";
}

static int connect_to(int socket, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect(socket, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : -errno;
}

/* Connects to the very file that was checked; by its name if /proc is not there. */
static int connect_to_seen(int socket, const struct seen *file, const char *path)
{
    char by_number[32];
    struct stat st;

    snprintf(by_number, sizeof by_number, "/proc/self/fd/%d", file->fd);
    if (stat(by_number, &st) != 0 || !gs_same_inode(&st, &file->st))
        return connect_to(socket, path);
    return connect_to(socket, by_number);
}

static int check_daemon(int socket, const char *path, const char *folder, const struct stat *st,
                        struct gs_err *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return gs_err_errno(err, -errno, "%s: SO_PEERCRED", path);
    if (is_ours(peer.uid) || (peer.uid == st->st_uid && is_services(folder, st)))
        return 0;
    return gs_err_set(err, -EPERM,
                      "the gpushare-lockd at %s is process %d of user %u, which is not trusted "
                      "with this user's memory",
                      path, (int)peer.pid, (unsigned)peer.uid);
}

int gs_place_connect(int socket, const char *socket_path, struct gs_err *err)
{
    struct seen place = {.fd = -1}, file = {.fd = -1};
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *name;
    int code = split_path(socket_path, folder, sizeof folder, &name);

    if (code != 0)
        return gs_err_errno(err, code, "%s", socket_path);
    code = see_folder(folder, &place, err);
    if (code == 0) {
        code = see_file(place.fd, name, 0, &file);
        if (code == 0 && !S_ISSOCK(file.st.st_mode))
            code = gs_err_set(err, -ENOTSOCK, "%s is a %s, not the socket of a gpushare-lockd",
                              socket_path, kind_of(file.st.st_mode));
        code = code ?: connect_to_seen(socket, &file, socket_path);
        code = code ?: check_daemon(socket, socket_path, folder, &place.st, err);
        if (code != 0)
            gs_err_errno(err, code, "%s", socket_path); /* if no better message was set */
    }
    forget_file(&file);
    forget_file(&place);
    return code;
}

bool gs_place_is_empty(int code)
{
    return code == -ENOENT || code == -ECONNREFUSED;
}

int gs_places_try(const struct gs_places *places, gs_place_caller *call, void *context,
                  unsigned *which, struct gs_err *err)
{
    struct gs_err best = {0};
    int result = 0;

    for (unsigned i = 0; i < places->count; i++) {
        struct gs_err why = {0};
        const int code = call(context, places->path[i], &why);
        const bool there = code == 0 || code == -EAGAIN;

        if (i == 0 || there || !gs_place_is_empty(result)) {
            result = code;
            best = why;
            *which = i;
        }
        if (there)
            break;
    }
    if (result != 0 && err != NULL && err->code == 0)
        *err = best;
    return result;
}

/* A path that is too long for a socket is left out. */
__attribute__((format(printf, 2, 3))) static void add(struct gs_places *places,
                                                      const char *format, ...)
{
    va_list ap;
    int length;

    va_start(ap, format);
    length = vsnprintf(places->path[places->count], GS_PATH_SIZE, format, ap);
    va_end(ap);
    places->count += length > 0 && length < GS_PATH_SIZE;
}

/* True for a folder as the specification of XDG_RUNTIME_DIR wants it: this user's, and no
 * other's. su and sudo may leave that of another user in the variable. */
static bool is_runtime_folder(const char *path)
{
    struct stat st;

    return path != NULL && path[0] == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int gs_places_name(struct gs_places *places, const char *path)
{
    *places = (struct gs_places){.named = true};
    if (path[0] != '/')
        return -EINVAL;
    add(places, "%s", path);
    return places->count == 1 ? 0 : -ENAMETOOLONG;
}

int gs_places_find(struct gs_places *places)
{
    const char *named = secure_getenv("GPUSHARE_SOCKET");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    const unsigned user = (unsigned)geteuid();
    char usual[32];

    if (named != NULL && named[0] != '\0')
        return gs_places_name(places, named);
    *places = (struct gs_places){.count = 0};
    add(places, "%s", GS_SYSTEM_SOCKET);
    snprintf(usual, sizeof usual, "/run/user/%u", user);
    if (!is_runtime_folder(runtime))
        runtime = is_runtime_folder(usual) ? usual : NULL;
    if (runtime != NULL)
        add(places, "%s/gpushare/" GS_SOCKET_NAME, runtime);
    add(places, "/tmp/gpushare-%u/" GS_SOCKET_NAME, user);
    return 0;
}
