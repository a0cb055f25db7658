/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c: starts the daemon, and finds out why it did not start. No state, client thread only.
 *
 * The daemon is a child with no exit signal (clone, exit signal 0): the program's own wait()
 * never sees it. Until it executes, it shares the program's memory, and makes only system calls
 * there. Its messages go to a file in memory, not to the program's stderr.
 */
#include "runtime/client/start.h"
#include "common/same.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "runtime/base/base.h"

#define START_PAUSE_NS 200000
#define START_NS       10000000000ull /* by then it is in the background, or has given up */
#define TEMPORARY      75             /* exit status (EX_TEMPFAIL): trying again may help */

/* Finds gpushare-lockd: where the user says, beside this library (installed or in the build
 * tree), or where it was configured to be installed. */
static bool find_daemon(char *path, size_t size)
{
    static const char *const beside[] = {"", "../bin/", "../../bin/", "../lockd/",
                                         "../../../bin/"};
    const char *named = secure_getenv("GPUSHARE_LOCKD");
    Dl_info info;
    const char *slash;

    if (named != NULL && *named != '\0')
        return snprintf(path, size, "%s", named) < (int)size && gs_is_program(path);
    if (dladdr(__extension__(void *) find_daemon, &info) != 0 &&
        (slash = strrchr(info.dli_fname, '/')) != NULL)
        for (unsigned i = 0; i < sizeof beside / sizeof beside[0]; i++)
            if (snprintf(path, size, "%.*s/%sgpushare-lockd", (int)(slash - info.dli_fname),
                         info.dli_fname, beside[i]) < (int)size &&
                gs_is_program(path))
                return true;
    return snprintf(path, size, "%s", GS_LOCKD_PATH) < (int)size && gs_is_program(path);
}

struct start {
    char *const *argv, *const *environment;
    int err;            /* replaces the program's stderr; -1: keeps it */
    volatile int error; /* the reason why it could not be executed */
};

/* the structure of rt_sigaction(2), on x86-64 and aarch64 */
struct kernel_action {
    uintptr_t handler;
    unsigned long flags;
    uintptr_t restorer; /* absent on aarch64: the mask is here, and 8 bytes are left over */
    uint64_t mask;
};

/* Runs with the client thread's state, in the program's memory: only bare system calls, which no
 * sanitizer and no interposer changes. A signal that arrives here must not run the program's
 * handler, so handlers are removed before the mask is. */
__attribute__((no_sanitize("thread", "address", "undefined"))) static int
run_child(void *argument)
{
    struct start *start = argument;
    const uint64_t none = 0;

    for (int number = 1; number <= 64; number++) {
        struct kernel_action action = {0}, standard = {0};

        if (syscall(SYS_rt_sigaction, number, NULL, &action, sizeof none) == 0 &&
            action.handler != (uintptr_t)SIG_DFL && action.handler != (uintptr_t)SIG_IGN)
            syscall(SYS_rt_sigaction, number, &standard, NULL, sizeof none);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
    if (start->err >= 0)
        syscall(SYS_dup3, start->err, STDERR_FILENO, 0);
    syscall(SYS_execve, start->argv[0], start->argv, start->environment);
    start->error = errno;
    syscall(SYS_exit, 127);
    __builtin_unreachable();
}

/* clone(2) under a name that ThreadSanitizer does not replace. Its own version takes the child
 * for one of fork(), and makes the parent forget the owners of its locks. */
extern __typeof__(clone) __clone;

/* Reads the last line that the daemon wrote, without the end of the line; "": it wrote none. */
static void read_last_line(int fd, char *line, size_t size)
{
    struct stat st;
    ssize_t got = 0;
    char *newline;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        got = pread(fd, line, size - 1,
                    st.st_size < (off_t)size ? 0 : st.st_size - (off_t)size + 1);
    line[got > 0 ? got : 0] = '\0';
    for (char *end = line + strlen(line); end > line && end[-1] == '\n'; end--)
        end[-1] = '\0';
    newline = strrchr(line, '\n');
    if (newline != NULL)
        memmove(line, newline + 1, strlen(newline + 1) + 1);
}

/* Waits until the daemon has gone to the background or failed. 0; -ETIMEDOUT: it did neither,
 * and has been ended. */
static int wait_for_start(pid_t pid, int *status)
{
    const struct timespec pause = {0, START_PAUSE_NS};
    const uint64_t until = gs_now() + START_NS; /* a pause may take long on a busy machine */

    for (bool late = false; !late; late = gs_now() >= until) {
        const pid_t ended = waitpid(pid, status, __WALL | WNOHANG);

        if (ended == pid || (ended < 0 && errno != EINTR))
            return 0; /* or the program collected it before us */
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, status, __WALL) < 0 && errno == EINTR)
        continue;
    return -ETIMEDOUT;
}

/* 0: the daemon is in the background; -EAGAIN: trying again may help; another -errno: it does
 * not. */
static int judge_start(const struct start *start, int waited, int status, struct gs_err *why)
{
    const char *program = start->argv[0];
    char line[256];

    if (waited != 0)
        return gs_err_set(why, waited, "%s: did not start in the background within 10 s",
                          program);
    if (status == 0)
        return 0;
    if (start->error != 0)
        return gs_err_errno(why, -start->error, "%s cannot be run", program);
    if (WIFSIGNALED(status)) /* somebody ended it, or it crashed */
        return gs_err_set(
            why, WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM ? -EAGAIN : -ECHILD,
            "%s could not be started: signal %d ended it", program, WTERMSIG(status));
    read_last_line(start->err, line, sizeof line);
    if (line[0] == '\0')
        snprintf(line, sizeof line, "it ended with status %d; run it by hand to see why",
                 WEXITSTATUS(status));
    return gs_err_set(why, WEXITSTATUS(status) == TEMPORARY ? -EAGAIN : -ECHILD,
                      "%s could not be started: %s", program, line);
}

/* The daemon's messages are not the program's: they go to a file in memory, and one line of them
 * is printed. */
static int spawn_daemon(struct start *start, struct gs_err *why)
{
    const size_t stack_bytes = 64 << 10;
    int waited = 0, status = 0, code;
    struct gs_own_fd said = {.number = 0};
    char *stack = malloc(stack_bytes);
    pid_t pid;

    if (stack == NULL)
        return gs_err_errno(why, -EAGAIN, "out of memory while starting gpushare-lockd");
    start->err = (int)syscall(SYS_memfd_create, "gpushare-lockd", MFD_CLOEXEC);
    if (start->err < 0)
        start->err = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (start->err >= 0)
        gs_own_fd_set(&said, start->err);
    start->err = gs_own_fd(&said);
    pid = __clone(run_child, (void *)((uintptr_t)(stack + stack_bytes) & ~(uintptr_t)15),
                  CLONE_VM | CLONE_VFORK, start);
    code = pid < 0 ? -errno : 0;
    if (pid > 0)
        waited = wait_for_start(pid, &status);
    free(stack);
    start->err = gs_own_fd(&said);
    code = code != 0 ? gs_err_errno(why, code == -ENOMEM ? -EAGAIN : code,
                                    "a process for gpushare-lockd")
                     : judge_start(start, waited, status, why);
    gs_own_fd_close(&said);
    return code;
}

/* The daemon serves programs of other processes too, and must not be steered by what this program
 * was started with. It loads the driver (guards do), and looks for its folder as this library
 * does; a socket that is named is an argument. */
static void keep_environment(char **kept, size_t most)
{
    static const char *const names[] = {"LD_LIBRARY_PATH=", "XDG_RUNTIME_DIR="};
    size_t count = 0;

    for (char **each = environ; each != NULL && *each != NULL; each++)
        for (size_t i = 0; i < sizeof names / sizeof *names && count + 1 < most; i++)
            if (strncmp(*each, names[i], strlen(names[i])) == 0)
                kept[count++] = *each;
    kept[count] = NULL;
}

int gs_start_daemon(const struct gs_places *places, struct gs_err *why)
{
    char program[512], path[GS_PATH_SIZE];
    char *argv[] = {program,
                    (char[]){"--detach"},
                    (char[]){"--idle-exit"},
                    (char[]){"10"},
                    places->named ? (char[]){"--socket"} : NULL,
                    path,
                    NULL};
    char *kept[4];
    struct start start = {.argv = argv, .environment = kept, .err = -1};
    const char *named = secure_getenv("GPUSHARE_LOCKD");
    int code;

    *why = (struct gs_err){0};
    if (getauxval(AT_SECURE) != 0)
        return gs_err_set(why, -ENOENT,
                          "gpushare-lockd is not running, and a program with setuid or file "
                          "capabilities does not start it");
    keep_environment(kept, sizeof kept / sizeof *kept);
    if (!find_daemon(program, sizeof program))
        return named != NULL && *named != '\0'
                   ? gs_err_set(why, -ENOENT, "GPUSHARE_LOCKD=%s is not a program", named)
                   : gs_err_set(why, -ENOENT,
                                "gpushare-lockd is not running and was not found; see "
                                "GPUSHARE_LOCKD");
    snprintf(path, sizeof path, "%s", places->path[0]);
    code = spawn_daemon(&start, why);
    gs_log("started %s: %s", program, code == 0 ? "ok" : why->text);
    return code;
}
