/* SPDX-License-Identifier: Apache-2.0
 *
 * inherited.c: resets the attributes that exec(2) keeps. No state. A step that is not permitted is
 * left out without a message: the daemon then serves as well as it can.
 *
 * The cgroup stays as it is. An ordinary user's process cannot leave it, and on systemd's
 * machines root's must not (only the manager moves processes that it did not delegate).
 */
#include "common/fd.h"
#include "lockd/start/inherited.h"

#include "lockd/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static void raise_limits(void)
{
    raise_limit(RLIMIT_NOFILE, LOCKD_DESCRIPTORS_MAX);
    raise_limit(RLIMIT_AS, RLIM_INFINITY);
    raise_limit(RLIMIT_DATA, RLIM_INFINITY);
    raise_limit(RLIMIT_CPU, RLIM_INFINITY);
    raise_limit(RLIMIT_FSIZE, RLIM_INFINITY);
    raise_limit(RLIMIT_NPROC, RLIM_INFINITY); /* threads (closer.h) and guards */
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

/* A process without privileges can lower it to the least value that a privileged process has set. */
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

/* The folder of root's daemon belongs to root's group, and not to that of a user whose program
 * became root. Other users cannot leave their groups. */
static void reset_groups(void)
{
    if (geteuid() == 0 && setgroups(0, NULL) == 0 && setresgid(0, 0, 0) != 0)
        lockd_log(LOCKD_LOG_DEBUG, "root's group cannot be taken: %s", strerror(errno));
}

void lockd_inherited_drop(void)
{
    reset_groups();
    umask(022);
    raise_limits();
    reset_scheduling();
    reset_oom_score();
}

uint64_t lockd_inherited_descriptors(int32_t pid)
{
    struct rlimit limit;

    return pid > 0 && prlimit(pid, RLIMIT_NOFILE, NULL, &limit) == 0 ? limit.rlim_max : 0;
}
