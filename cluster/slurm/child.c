/* SPDX-License-Identifier: Apache-2.0
 *
 * child.c: forks, gives up rights, executes. Between fork and exec only what signal-safety(7) allows, since slurmstepd has
 * threads. No state.
 */
#include "cluster/slurm/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fd.h"

#define NOT_STARTED 126 /* exit status: it could not be executed, or not as that user */

static void become_child(const struct gs_child *child, int out)
{
    const struct gs_child_user *user = child->user;
    sigset_t none;
    const int null = open("/dev/null", O_RDWR);

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(NOT_STARTED);
    if (user != NULL && geteuid() == 0 &&
        (setgroups(user->group_count, user->groups) != 0 ||
         setresgid(user->gid, user->gid, user->gid) != 0 ||
         setresuid(user->uid, user->uid, user->uid) != 0))
        _exit(NOT_STARTED);
    alarm(GS_CHILD_SECONDS); /* stays over exec */
    execve(child->argv[0], child->argv,
           child->environment != NULL ? child->environment : environ);
    _exit(NOT_STARTED);
}

/* Reads to the end, or until the time is over: a grandchild could keep the pipe. */
static void read_output(int fd, char *out, size_t size)
{
    struct timespec now;
    time_t until;
    size_t used = 0;

    clock_gettime(CLOCK_MONOTONIC, &now);
    until = now.tv_sec + GS_CHILD_SECONDS + 1;
    while (now.tv_sec < until) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        char block[512];
        ssize_t got;

        poll(&look, 1, (int)(until - now.tv_sec) * 1000);
        got = (look.revents & (POLLIN | POLLHUP)) != 0 ? read(fd, block, sizeof block) : -1;
        if (got == 0)
            break;
        for (ssize_t i = 0; i < got && used + 1 < size; i++)
            out[used++] = block[i];
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    while (used != 0 && out[used - 1] == '\n')
        used--;
    out[used] = '\0';
}

static int wait_for(pid_t pid, const struct gs_child *child, const char *out,
                    struct gs_err *err)
{
    int status;
    pid_t done;

    do
        done = waitpid(pid, &status, 0);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return gs_err_errno(err, -errno, "%s", child->argv[0]);
    if (WIFSIGNALED(status))
        return gs_err_set(err, -EINTR, "%s: ended by signal %d%s", child->argv[0],
                          WTERMSIG(status),
                          WTERMSIG(status) == SIGALRM ? " (it took too long)" : "");
    if (WEXITSTATUS(status) == NOT_STARTED)
        return gs_err_set(err, -ENOEXEC,
                          "%s cannot be executed: is gpushare installed on this node?",
                          child->argv[0]);
    return WEXITSTATUS(status) == 0 ? 0
                                    : gs_err_set(err, -EIO, "%s: exit status %d: %.300s",
                                                 child->argv[0], WEXITSTATUS(status), out);
}

int gs_child_run(const struct gs_child *child, char *out, size_t size, struct gs_err *err)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return gs_err_errno(err, -errno, "pipe");
    pid = fork();
    if (pid == 0)
        become_child(child, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return gs_err_errno(err, -errno, "fork");
    }
    read_output(ends[0], out, size);
    close(ends[0]);
    return wait_for(pid, child, out, err);
}
