/* SPDX-License-Identifier: Apache-2.0
 *
 * top_process.c: finds the process of a program and sends it a signal. The process id from the
 * daemon may be of another pid namespace, or already belong to another process: owner and start
 * time must fit, and the signal goes through the descriptor that was checked.
 */
#include "common/fd.h"
#include "lockd/ctl/watch/top_process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND    1000000000ull
#define TOLERANCE (2 * SECOND) /* clock ticks are coarse, and the answer is not quite new */

/* The start time since boot, ns; 0: unknown. It is field 22 of stat, behind a name of any bytes. */
static uint64_t started_ns(int32_t pid)
{
    char path[64], text[1024];
    const char *at;
    size_t length;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    at = strrchr(text, ')'); /* followed by the third field */
    for (unsigned field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10) * (SECOND / (uint64_t)sysconf(_SC_CLK_TCK));
}

static int check_process(const struct gs_wire_client *client, struct gs_err *err)
{
    struct timespec now;
    struct stat st;
    char path[64];
    uint64_t up;

    snprintf(path, sizeof path, "/proc/%d", client->pid);
    if (stat(path, &st) != 0)
        return gs_err_set(err, -ESRCH, "process %d cannot be seen from here", client->pid);
    clock_gettime(CLOCK_BOOTTIME, &now);
    up = (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
    if (st.st_uid != client->uid ||
        (up > client->connected_ns &&
         started_ns(client->pid) > up - client->connected_ns + TOLERANCE))
        return gs_err_set(err, -ESRCH, "process %d is another one than the program shown here",
                          client->pid);
    return 0;
}

int top_process_open(const struct gs_wire_client *client, struct gs_err *err)
{
    int fd, code;

    if (client->pid <= 0 || (client->flags & GS_CLIENT_FOREIGN) != 0)
        return gs_err_set(err, -ESRCH,
                          "the program is in another pid namespace: end it from there");
    fd = (int)syscall(SYS_pidfd_open, client->pid, 0);
    if (fd < 0)
        return gs_err_errno(err, -errno, "process %d", client->pid);
    code = check_process(client, err);
    if (code != 0) {
        close(fd);
        return code;
    }
    return fd;
}

int top_process_signal(int pidfd, int number, struct gs_err *err)
{
    if (syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) != 0)
        return gs_err_errno(err, -errno, "no signal was sent");
    return 0;
}
