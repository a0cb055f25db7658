/* SPDX-License-Identifier: Apache-2.0
 *
 * numbers.c: owns what the program moves has opened under numbers that were not its own; and
 * its limits. Invariant: what it closes is not the simulated driver's. One thread.
 */
#include "tests/runtime/numbers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/check.h"

void limit_files(size_t mib)
{
    struct rlimit most;

    CHECK(getrlimit(RLIMIT_FSIZE, &most) == 0);
    most.rlim_cur = mib != 0 ? mib * MIB : most.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &most) == 0);
}

void limit_memory(size_t mib)
{
    FILE *file = fopen("/proc/self/status", "re");
    unsigned long long held = 0;
    char line[256];

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmData:", 7) == 0)
            held = strtoull(line + 7, NULL, 10) * 1024;
    fclose(file);
    CHECK(held != 0);
    CHECK(setrlimit(RLIMIT_DATA, &(struct rlimit){held + mib * MIB, held + mib * MIB}) == 0);
}

void limit_numbers(size_t most)
{
    struct rlimit numbers;

    CHECK(getrlimit(RLIMIT_NOFILE, &numbers) == 0);
    numbers.rlim_cur = most;
    CHECK(setrlimit(RLIMIT_NOFILE, &numbers) == 0);
}

#define FIRST_NUMBER 3
#define LAST_NUMBER  4095
#define DRIVERS      64 /* files with numbers below are the simulated driver's */

/* What is there now: an empty file, or one end of a pair of sockets with a message to be read.
 */
static struct stolen {
    ino_t inode; /* 0: none there */
    int other;   /* the other end; 0: it is a file */
    bool is_end; /* ... of another one */
} stolen[LAST_NUMBER + 1];

static int open_anything(bool file, struct stolen *what)
{
    struct stat status;
    int ends[2] = {-1, 0};

    if (file) {
        ends[0] = memfd_create("the program's own", 0);
    } else {
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
        CHECK(send(ends[1], "mine", 4, 0) == 4);
    }
    CHECK(ends[0] >= 0 && fstat(ends[0], &status) == 0);
    *what = (struct stolen){.inode = status.st_ino, .other = ends[1]};
    CHECK(ends[1] <= LAST_NUMBER);
    stolen[ends[1]].is_end = ends[1] != 0;
    return ends[0];
}

static bool is_to_be_stolen(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && stolen[fd].inode == 0 && !stolen[fd].is_end &&
           (fd >= DRIVERS || !S_ISREG(status.st_mode)) && !S_ISDIR(status.st_mode);
}

/* The path of what the library's thread is doing: a file of /proc/self/task. */
static void find_thread(char path[64])
{
    DIR *tasks = opendir("/proc/self/task");
    char name[32] = "";

    CHECK(tasks != NULL);
    for (const struct dirent *task; strcmp(name, "gpushare\n") != 0;) {
        int fd;

        CHECK((task = readdir(tasks)) != NULL);
        snprintf(path, 64, "/proc/self/task/%.16s/comm", task->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        memset(name, 0, sizeof name);
        CHECK(fd < 0 || read(fd, name, sizeof name - 1) > 0);
        close(fd);
        snprintf(path, 64, "/proc/self/task/%.16s/syscall", task->d_name);
    }
    closedir(tasks);
}

/* Waits until the library's thread rests. It looks whether a number is still its own before each
 * use; a thread that another process has taken off its processor in between uses the program's
 * (own_fd.h). */
static void await_rest(const char *path)
{
    const struct timespec pause = {0, 100000};
    char doing[128];

    for (unsigned i = 0; i < 600000; i++) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t got = read(fd, doing, sizeof doing - 1);

        close(fd);
        CHECK(got > 0);
        doing[got] = '\0';
        if (strtol(doing, NULL, 10) == SYS_ppoll)
            return;
        nanosleep(&pause, NULL);
    }
    CHECK(!"the library's thread rests");
}

void steal_numbers(void)
{
    char thread[64];

    find_thread(thread);
    for (int fd = FIRST_NUMBER; fd <= LAST_NUMBER; fd++) {
        int new;

        if (!is_to_be_stolen(fd))
            continue;
        await_rest(thread);
        close(fd);
        new = open_anything(fd % 2 == 0, &stolen[fd]);
        CHECK(new == fd || (dup2(new, fd) == fd && close(new) == 0));
    }
}

static bool is_as_it_was(int fd, const struct stolen *was)
{
    struct stat status;
    char text[5] = "";

    if (fstat(fd, &status) != 0 || status.st_ino != was->inode)
        return false;
    return was->other == 0
               ? status.st_size == 0
               : recv(fd, text, sizeof text, MSG_DONTWAIT | MSG_PEEK) == 4 &&
                     recv(was->other, text, sizeof text, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

bool numbers_are_kept(void)
{
    bool kept = true;

    for (int fd = FIRST_NUMBER; fd <= LAST_NUMBER; fd++)
        if (stolen[fd].inode != 0 && !is_as_it_was(fd, &stolen[fd])) {
            struct stat now = {0};
            const int error = fstat(fd, &now) == 0 ? 0 : errno;

            fprintf(stderr, "number %d, a %s: errno %d, inode %llu of %llu, %lld bytes\n", fd,
                    stolen[fd].other == 0 ? "file" : "socket", error,
                    (unsigned long long)now.st_ino, (unsigned long long)stolen[fd].inode,
                    (long long)now.st_size);
            kept = false;
        }
    return kept;
}
