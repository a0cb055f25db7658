/* SPDX-License-Identifier: Apache-2.0
 *
 * inherited.c: resets the attributes that exec(2) keeps, takes a process into the background, and
 * tells systemd its state. No state. A step that is not permitted is left out without a message:
 * the daemon then serves as well as it can.
 *
 * The cgroup stays as it is. An ordinary user's process cannot leave it, and on systemd's
 * machines root's must not (only the manager moves processes that it did not delegate).
 */
#include "lockd/start/inherited.h"
#include "common/fd.h"
#include "lockd/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

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
    raise_limit(RLIMIT_NPROC, RLIM_INFINITY); /* threads (closer.h) and guards */
    reset_scheduling();
    reset_oom_score();
}

uint64_t lockd_inherited_descriptors(int32_t pid)
{
    struct rlimit limit;

    return pid > 0 && prlimit(pid, RLIMIT_NOFILE, NULL, &limit) == 0 ? limit.rlim_max : 0;
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
