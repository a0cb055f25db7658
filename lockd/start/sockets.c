/* SPDX-License-Identifier: Apache-2.0
 *
 * sockets.c: makes sure that exactly one daemon serves a user, at all the places where programs
 * look for it (common/place.h).
 *
 * The daemon that holds the flock on <socket>.lock serves. Every other one finds that the socket
 * answers, and ends; so does a holder of the lock that finds systemd's socket there. A daemon that
 * finds another daemon at any of its places leaves them all. The lock file is never removed. systemd's
 * sockets (LISTEN_FDS) are taken without its library, because that takes few steps.
 */
#include "lockd/start/sockets.h"
#include "common/fd.h"
#include "lockd/base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#define LISTEN_FD    3 /* SD_LISTEN_FDS_START */
#define BACKLOG      512
#define TAKE_TRIES   100 /* of 20 ms: another daemon is starting or ending */
#define LEAVE_TRIES  10  /* a killed daemon loses its lock before its socket is closed */
#define TAKE_WAIT_NS 20000000

static bool is_served(const char *path)
{
    GS_CLOSE_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int code = fd >= 0 ? gs_place_connect(fd, path, NULL) : -errno;

    return code == 0 || code == -EAGAIN; /* it lives, and its queue of callers is full */
}

static int read_socket_option(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;

    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

/* 1 with a socket from systemd in *fd, 0 without a socket, -errno if it is a wrong socket. */
static int take_activated(int *fd, struct gs_err *err)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

    if (pid == NULL || count == NULL || strtol(pid, NULL, 10) != (long)getpid() ||
        strcmp(count, "0") == 0)
        return 0;
    if (strcmp(count, "1") != 0)
        return gs_err_set(err, -EINVAL, "LISTEN_FDS is %s: one socket is expected", count);
    if (read_socket_option(LISTEN_FD, SO_DOMAIN) != AF_UNIX ||
        read_socket_option(LISTEN_FD, SO_TYPE) != SOCK_SEQPACKET ||
        read_socket_option(LISTEN_FD, SO_ACCEPTCONN) != 1)
        return gs_err_set(
            err, -EINVAL,
            "descriptor 3 is not a listening SOCK_SEQPACKET socket: the socket unit "
            "needs ListenSequentialPacket=");
    *fd = LISTEN_FD;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (fcntl(*fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(*fd, F_SETFL, O_NONBLOCK) != 0)
        return gs_err_errno(err, -errno, "fcntl on descriptor 3");
    return 1;
}

static void wait_a_moment(void)
{
    const struct timespec pause = {0, TAKE_WAIT_NS};

    nanosleep(&pause, NULL);
}

/* Takes the lock file; waits a moment while its holder neither serves nor leaves. 0,
 * LOCKD_ALREADY or -errno. */
static int take_lock(struct lockd_spot *spot, struct gs_err *err)
{
    char path[sizeof spot->path + 8];

    snprintf(path, sizeof path, "%s.lock", spot->path);
    spot->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (spot->lock_fd < 0)
        return gs_err_errno(err, -errno, "%s: cannot open the lock file", path);
    for (int i = 0; i < TAKE_TRIES; i++) {
        if (flock(spot->lock_fd, LOCK_EX | LOCK_NB) == 0) {
            /* a daemon may serve without the lock, as a daemon with systemd's socket does */
            for (int j = 0; j < LEAVE_TRIES; j++) {
                if (!is_served(spot->path))
                    return 0;
                wait_a_moment();
            }
            return LOCKD_ALREADY;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            return gs_err_errno(err, -errno, "%s: cannot lock it", path);
        if (is_served(spot->path))
            return LOCKD_ALREADY;
        wait_a_moment();
    }
    return gs_err_set(err, -EBUSY,
                      "%s is locked, but no daemon answers at %s: another gpushare-lockd "
                      "hangs, or its socket was removed; end that process",
                      path, spot->path);
}

/* The group that may connect besides the owner and root: the group that can reach the socket's
 * folder. */
static gid_t find_socket_group(const char *socket_path)
{
    char folder[GS_PATH_SIZE];
    struct stat st;
    char *slash;

    snprintf(folder, sizeof folder, "%s", socket_path);
    slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return (gid_t)-1;
    *slash = '\0';
    return stat(folder, &st) != 0 || (st.st_mode & S_IXGRP) == 0 ? (gid_t)-1 : st.st_gid;
}

/* The same for systemd's socket: the group that it was made for (SocketGroup=). */
static void take_activated_group(struct lockd_sockets *sockets)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address - 1; /* a NUL stays behind the path */
    struct stat st;

    if (getsockname(sockets->spot[0].listener, (struct sockaddr *)&address, &size) == 0 &&
        address.sun_path[0] == '/' && stat(address.sun_path, &st) == 0 &&
        (st.st_mode & S_IWGRP) != 0)
        sockets->group = st.st_gid;
}

static int bind_socket(struct lockd_spot *spot, gid_t group, struct gs_err *err)
{
    const mode_t mode = group == (gid_t)-1 ? 0600 : 0660;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    mode_t mask;
    int bound;

    if (lstat(spot->path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return gs_err_set(
            err, -EEXIST,
            "%s exists and is not a socket: remove it, or choose another path with "
            "--socket",
            spot->path);
    if (unlink(spot->path) != 0 && errno != ENOENT) /* stale: the lock is ours */
        return gs_err_errno(err, -errno, "%s: cannot remove the old socket", spot->path);
    spot->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (spot->listener < 0)
        return gs_err_errno(err, -errno, "socket");
    snprintf(address.sun_path, sizeof address.sun_path, "%s", spot->path);
    mask = umask(0777 & ~mode);
    bound = bind(spot->listener, (struct sockaddr *)&address, sizeof address);
    umask(mask);
    if (bound != 0)
        return gs_err_errno(err, -errno, "%s: cannot create the socket", spot->path);
    if (group != (gid_t)-1 && chown(spot->path, (uid_t)-1, group) != 0)
        lockd_log(LOCKD_LOG_WARNING, "%s: cannot give it to group %u: %s", spot->path,
                  (unsigned)group, strerror(errno));
    if (listen(spot->listener, BACKLOG) != 0)
        return gs_err_errno(err, -errno, "%s: cannot listen", spot->path);
    if (lstat(spot->path, &st) != 0)
        return gs_err_errno(err, -errno, "%s: it was removed immediately", spot->path);
    spot->inode = st.st_ino;
    return 0;
}

static void leave_spot(struct lockd_spot *spot)
{
    struct stat st;

    if (spot->inode != 0 && lstat(spot->path, &st) == 0 && st.st_ino == spot->inode)
        unlink(spot->path);
    if (spot->lock_fd >= 0)
        close(spot->lock_fd);
    spot->lock_fd = -1;
}

static void drop_spot(struct lockd_spot *spot)
{
    leave_spot(spot);
    if (spot->listener >= 0)
        close(spot->listener);
    spot->listener = -1;
}

/* Continues without one of several places: programs connect at the others. 0 or -errno. */
static int skip_place(const struct gs_places *places, int code, const struct gs_err *why,
                      struct gs_err *err)
{
    lockd_log(LOCKD_LOG_DEBUG, "not using this place: %s", why->text);
    *err = *why; /* all users share the last place: its error helps most */
    return places->named ? code : 0;
}

/* Takes the locks of all places that this user can have before it makes a socket, so that a
 * daemon that finds another daemon has not misled any program. All daemons use the same
 * order, so no two wait for each other. 0, LOCKD_ALREADY or -errno. */
static int take_locks(struct lockd_sockets *sockets, const struct gs_places *places,
                      struct gs_err *err)
{
    for (unsigned i = 0; i < places->count; i++) {
        struct lockd_spot *spot = &sockets->spot[sockets->count];
        struct gs_err why = {0};
        int code;

        *spot = (struct lockd_spot){.listener = -1, .lock_fd = -1};
        memcpy(spot->path, places->path[i], sizeof spot->path);
        code = gs_place_look(spot->path, true, &why);
        code = code != 0 ? code : take_lock(spot, &why);
        if (code == 0) {
            sockets->count++;
            continue;
        }
        drop_spot(spot);
        if (code == LOCKD_ALREADY || is_served(places->path[i])) {
            memcpy(sockets->served, places->path[i], sizeof sockets->served);
            return LOCKD_ALREADY;
        }
        code = skip_place(places, code, &why, err);
        if (code != 0)
            return code;
    }
    return sockets->count != 0 ? 0 : err->code;
}

static int bind_sockets(struct lockd_sockets *sockets, const struct gs_places *places,
                        struct gs_err *err)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < sockets->count; i++) {
        struct lockd_spot *spot = &sockets->spot[i];
        const gid_t group = find_socket_group(spot->path);
        struct gs_err why = {0};
        int code = bind_socket(spot, group, &why);

        if (code == 0) {
            if (sockets->group == (gid_t)-1)
                sockets->group = group;
            sockets->spot[kept++] = *spot;
            continue;
        }
        drop_spot(spot);
        code = skip_place(places, code, &why, err);
        if (code != 0)
            return code;
    }
    sockets->count = kept;
    return kept != 0 ? 0 : err->code;
}

int lockd_sockets_take(struct lockd_sockets *sockets, const struct gs_places *places,
                       struct gs_err *err)
{
    struct gs_err why = {0};
    int code, listener = -1;

    *sockets =
        (struct lockd_sockets){.group = (gid_t)-1, .named = places->named, .wanted = *places};
    code = take_activated(&listener, err);
    if (code < 0)
        return code;
    sockets->activated = code == 1;
    if (sockets->activated) {
        sockets->count = 1;
        sockets->spot[0] = (struct lockd_spot){.listener = listener, .lock_fd = -1};
        memcpy(sockets->spot[0].path, places->path[0], sizeof sockets->spot[0].path);
        take_activated_group(sockets);
        return 0;
    }
    code = take_locks(sockets, places, &why);
    code = code != 0 ? code : bind_sockets(sockets, places, &why);
    if (code == 0)
        return 0;
    for (unsigned i = 0; i < sockets->count; i++)
        drop_spot(&sockets->spot[i]);
    sockets->count = 0;
    return code == LOCKD_ALREADY ? code : gs_err_set(err, code, "%s", why.text);
}

bool lockd_sockets_is_served(const struct lockd_sockets *sockets)
{
    for (unsigned i = 0; i < sockets->wanted.count; i++)
        if (is_served(sockets->wanted.path[i]))
            return true;
    return false;
}

void lockd_sockets_leave(struct lockd_sockets *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++)
        leave_spot(&sockets->spot[i]);
    sockets->count = 0;
}

bool lockd_sockets_is_superseded(const struct lockd_sockets *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++)
        if (strcmp(sockets->spot[i].path, GS_SYSTEM_SOCKET) == 0)
            return false;
    return !sockets->named && access(GS_SYSTEM_SOCKET, W_OK) == 0 &&
           is_served(GS_SYSTEM_SOCKET);
}

/* Resets the attributes that exec(2) keeps, takes a process into the background, and tells
 * systemd its state. No state. A step that is not permitted is left out without a message: the
 * daemon then serves as well as it can. The cgroup stays as it is. An ordinary user's process
 * cannot leave it, and on systemd's machines root's must not (only the manager moves processes
 * that it did not delegate). */

#define OOM_STEP   50
#define PROCESSORS 8192
#define WHO        1 /* IOPRIO_WHO_PROCESS */

void lockd_inherited_signals(void)
{
    struct sigaction action;
    sigset_t none;

    for (int number = 1; number < NSIG; number++) /* exec(2) keeps only ignored signals */
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* most: the limit for root; other users cannot exceed the limit that they were given. */
static void raise_limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) != 0)
        return;
    if (limit.rlim_max < most) {
        const struct rlimit higher = {most, most};

        if (setrlimit(resource, &higher) == 0)
            return;
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
}

static void reset_scheduling(void)
{
    const struct sched_param none = {0};
    static cpu_set_t all[PROCESSORS / CPU_SETSIZE];

    sched_setscheduler(0, SCHED_OTHER, &none);
    setpriority(PRIO_PROCESS, 0, 0);
    memset(all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, all); /* those of the cpuset */
    syscall(SYS_ioprio_set, WHO, 0, 0);
}

/* A process without privileges can lower it to the least value that a privileged process
 * has set. */
static void reset_oom_score(void)
{
    GS_CLOSE_FD int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";
    long now;

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return;
    now = strtol(text, NULL, 10);
    for (long value = 0; value < now || (value == 0 && now < 0); value += OOM_STEP) {
        const int length = snprintf(text, sizeof text, "%ld", value);

        if (pwrite(fd, text, (size_t)length, 0) == length)
            return;
    }
}

void lockd_inherited_drop(void)
{
    /* The folder of root's daemon belongs to root's group, and not to that of a user whose program
     * became root. Other users cannot leave their groups. */
    if (geteuid() == 0 && setgroups(0, NULL) == 0 && setresgid(0, 0, 0) != 0)
        lockd_log(LOCKD_LOG_DEBUG, "root's group cannot be taken: %s", strerror(errno));
    umask(022);
    raise_limit(RLIMIT_NOFILE, LOCKD_DESCRIPTORS_MAX);
    raise_limit(RLIMIT_AS, RLIM_INFINITY);
    raise_limit(RLIMIT_DATA, RLIM_INFINITY);
    raise_limit(RLIMIT_CPU, RLIM_INFINITY);
    raise_limit(RLIMIT_FSIZE, RLIM_INFINITY);
    raise_limit(RLIMIT_NPROC, RLIM_INFINITY); /* threads (server/users.h) and guards */
    reset_scheduling();
    reset_oom_score();
}

static void close_inherited(const struct lockd_sockets *sockets)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;

    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL) {
        const int fd = (int)strtol(entry->d_name, NULL, 10);
        bool kept = fd <= STDERR_FILENO || fd == dirfd(folder) || entry->d_name[0] == '.';

        for (unsigned i = 0; i < sockets->count; i++)
            kept |= fd == sockets->spot[i].listener || fd == sockets->spot[i].lock_fd;
        if (!kept)
            close(fd);
    }
    closedir(folder);
}

int lockd_detach(const struct lockd_sockets *sockets, struct gs_err *err)
{
    const pid_t pid = fork();
    int null;

    if (pid < 0)
        return gs_err_errno(err, -errno, "fork");
    if (pid > 0)
        _exit(0);
    if (setsid() < 0 || chdir("/") != 0)
        return gs_err_errno(err, -errno, "setsid, chdir");
    close_inherited(sockets);
    unsetenv("NOTIFY_SOCKET"); /* of the service that started this process, perhaps: not ours */
    unsetenv("WATCHDOG_USEC");
    null = open("/dev/null", O_RDWR);
    if (null < 0)
        return gs_err_errno(err, -errno, "/dev/null");
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (null != fd && dup2(null, fd) < 0)
            return gs_err_errno(err, -errno, "dup2");
    }
    if (null > STDERR_FILENO)
        close(null);
    return 0;
}

/* sd_notify(3) without systemd's library */
void lockd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    GS_CLOSE_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length;

    if (fd < 0 || path == NULL || (path[0] != '/' && path[0] != '@'))
        return;
    length = strlen(path);
    if (length >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
               (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        lockd_log(LOCKD_LOG_WARNING, "NOTIFY_SOCKET %s: %s was lost: %s", path, state,
                  errno == EAGAIN ? "nobody reads it" : strerror(errno));
}
