/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c: finds, starts and talks to the daemon. No state. Nothing here blocks for longer
 * than about a second.
 *
 * The daemon is started by a child with no exit signal (clone, exit signal 0): the program's
 * own wait() never sees it. It shares the program's memory until it executes, and runs nothing
 * there but system calls.
 */
#include "runtime/connect.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/place.h"
#include "runtime/log.h"
#include "runtime/runtime.h"

#define PAUSE_NS        10000000
#define TRIES           100 /* to reach a daemon that was started */
#define TRIES_PER_START 20  /* then another one: the one that served may have been leaving */
#define START_PAUSE_NS  1000000
#define START_PAUSES    10000 /* until it is in the background; it gives up before by itself */
#define TEMPORARY       75    /* its exit status (EX_TEMPFAIL) where trying again may help */

static void header(struct gs_wire_header *out, uint16_t type, uint32_t length)
{
    *out = (struct gs_wire_header){
        .magic = GS_WIRE_MAGIC, .version = GS_WIRE_VERSION, .type = type, .length = length};
}

union gs_connect_message {
    struct gs_wire_target target;
    struct gs_wire_end end;
};

/* To a daemon that is known (common/place.h): it is told to give this program's memory away. */
static int open_socket(void *context, const char *path, struct gs_err *why)
{
    struct gs_own_fd *connection = context;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error;

    if (fd < 0)
        return gs_err_errno(why, -errno, "socket");
    gs_own_fd_set(connection, fd);
    error = gs_place_connect(gs_own_fd(connection), path, why);
    if (error != 0)
        gs_own_fd_close(connection);
    return error;
}

static int reach(const struct gs_places *places, struct gs_own_fd *connection,
                 struct gs_err *why)
{
    unsigned which = 0;

    *why = (struct gs_err){0};
    return gs_places_try(places, open_socket, connection, &which, why);
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* where gpushare-lockd may be: named, beside this library (installed or build tree), or where
 * it was configured to go */
static bool find_daemon(char *path, size_t size)
{
    static const char *const beside[] = {"", "../bin/", "../../bin/", "../lockd/",
                                         "../../../bin/"};
    const char *named = secure_getenv("GPUSHARE_LOCKD");
    Dl_info info;
    const char *slash;

    if (named != NULL && *named != '\0')
        return snprintf(path, size, "%s", named) < (int)size && is_program(path);
    if (dladdr(__extension__(void *) find_daemon, &info) != 0 &&
        (slash = strrchr(info.dli_fname, '/')) != NULL)
        for (unsigned i = 0; i < sizeof beside / sizeof beside[0]; i++)
            if (snprintf(path, size, "%.*s/%sgpushare-lockd", (int)(slash - info.dli_fname),
                         info.dli_fname, beside[i]) < (int)size &&
                is_program(path))
                return true;
    return snprintf(path, size, "%s", GS_LOCKD_PATH) < (int)size && is_program(path);
}

struct start {
    char *const *argv, *const *environment;
    int err;            /* in place of the program's stderr; -1: the program's */
    volatile int error; /* why it could not be executed */
};

/* what rt_sigaction(2) takes and gives, on x86-64 and aarch64 */
struct kernel_action {
    uintptr_t handler;
    unsigned long flags;
    uintptr_t restorer; /* not there on aarch64: the mask is, and 8 bytes are left over */
    uint64_t mask;
};

/* With the client thread's state, in the program's memory: bare system calls, which no
 * sanitizer and no interposer has a hand in. A signal that comes here must not run the
 * program's handler: handlers go before the mask does. */
__attribute__((no_sanitize("thread", "address", "undefined"))) static int child(void *argument)
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

/* clone(2) under a name that ThreadSanitizer leaves alone: its own takes the child for one of
 * fork(), and makes the parent forget who holds which lock. */
extern __typeof__(clone) __clone;

/* What it said last, without the end of the line; "": nothing. */
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

/* Waits until it has gone to the background or failed. 0, or -ETIMEDOUT: it did neither, and
 * has been ended. */
static int wait_for_start(pid_t pid, int *status)
{
    const struct timespec pause = {0, START_PAUSE_NS};

    for (int i = 0; i < START_PAUSES; i++) {
        const pid_t ended = waitpid(pid, status, __WALL | WNOHANG);

        if (ended == pid || (ended < 0 && errno != EINTR))
            return 0; /* or the program was quicker to wait for it */
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, status, __WALL) < 0 && errno == EINTR)
        continue;
    return -ETIMEDOUT;
}

/* 0: it is in the background; -EAGAIN: trying again may help; -errno: it does not. */
static int judge_start(const struct start *start, int waited, int status, struct gs_err *why)
{
    const char *program = start->argv[0];
    char line[256];

    if (waited != 0)
        return gs_err_set(why, waited, "%s does not go to the background", program);
    if (status == 0)
        return 0;
    if (start->error != 0)
        return gs_err_errno(why, -start->error, "%s cannot be run", program);
    if (WIFSIGNALED(status)) /* somebody ends them; or it crashes */
        return gs_err_set(
            why, WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM ? -EAGAIN : -ECHILD,
            "%s could not be started: signal %d ended it", program, WTERMSIG(status));
    read_last_line(start->err, line, sizeof line);
    if (line[0] == '\0')
        snprintf(line, sizeof line, "it ended with %d; run it by hand to see why",
                 WEXITSTATUS(status));
    return gs_err_set(why, WEXITSTATUS(status) == TEMPORARY ? -EAGAIN : -ECHILD,
                      "%s could not be started: %s", program, line);
}

/* Its words are not the program's: they go to a file in memory, and one line of them is said.
 */
static int spawn_daemon(struct start *start, struct gs_err *why)
{
    const size_t stack_bytes = 64 << 10;
    int waited = 0, status = 0, code;
    struct gs_own_fd said = GS_NO_FD;
    char *stack = malloc(stack_bytes);
    pid_t pid;

    if (stack == NULL)
        return gs_err_errno(why, -EAGAIN, "no memory to start gpushare-lockd");
    start->err = (int)syscall(SYS_memfd_create, "gpushare-lockd", MFD_CLOEXEC);
    if (start->err < 0)
        start->err = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (start->err >= 0)
        gs_own_fd_set(&said, start->err);
    start->err = gs_own_fd(&said);
    pid = __clone(child, (void *)((uintptr_t)(stack + stack_bytes) & ~(uintptr_t)15),
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

/* It finds the places as we do, unless one is named. */
static int start_daemon(const struct gs_places *places, struct gs_err *why)
{
    char program[512], path[GS_PATH_SIZE];
    char *argv[] = {program,
                    (char[]){"--detach"},
                    (char[]){"--idle-exit"},
                    (char[]){"10"},
                    places->named ? (char[]){"--socket"} : NULL,
                    path,
                    NULL};
    struct start start = {.argv = argv, .environment = environ, .err = -1};
    const char *named = secure_getenv("GPUSHARE_LOCKD");
    int code;

    *why = (struct gs_err){0};
    if (!find_daemon(program, sizeof program))
        return named != NULL && *named != '\0'
                   ? gs_err_set(why, -ENOENT, "GPUSHARE_LOCKD=%s is no program", named)
                   : gs_err_set(why, -ENOENT,
                                "gpushare-lockd is not running and was not found; see "
                                "GPUSHARE_LOCKD");
    snprintf(path, sizeof path, "%s", places->path[0]);
    code = spawn_daemon(&start, why);
    gs_log("started %s: %s", program, code == 0 ? "ok" : why->text);
    return code;
}

/* A number that the user gave; 0 without one, and where it is none (said once): then the
 * program is an ordinary one. */
static int32_t number(const char *name, long low, long high)
{
    static bool said;
    const char *text = secure_getenv(name);
    char *end;
    long value;

    if (text == NULL || *text == '\0')
        return 0;
    errno = 0;
    value = strtol(text, &end, 10);
    if (*end == '\0' && errno == 0 && value >= low && value <= high)
        return (int32_t)value;
    gs_say_once(&said, "%s=%s is ignored: it must be a number from %ld to %ld", name, text, low,
                high);
    return 0;
}

static int hello(const struct gs_own_fd *connection)
{
    const char *group = secure_getenv("GPUSHARE_GROUP");
    struct gs_wire_hello message = {.pid = (int32_t)getpid()};

    header(&message.header, GS_WIRE_HELLO, sizeof message);
    snprintf(message.name, sizeof message.name, "%s", program_invocation_short_name);
    snprintf(message.version, sizeof message.version, "%s", GS_VERSION);
    snprintf(message.group, sizeof message.group, "%s", group != NULL ? group : "");
    message.weight = (uint32_t)number("GPUSHARE_WEIGHT", 1, GS_WEIGHT_MAX);
    message.priority = number("GPUSHARE_PRIORITY", -GS_PRIORITY_MAX, GS_PRIORITY_MAX);
    return gs_connect_send(gs_own_fd(connection), &message, sizeof message, NULL);
}

/* A daemon that has more callers than it answers; no descriptor, or none any more. */
static bool is_passing(int error)
{
    return error == -EAGAIN || error == -EINTR || error == -EMFILE || error == -ENFILE ||
           error == -ENOMEM || error == -ENOBUFS || error == -EBADF;
}

/* Tries the places until somebody is there; starts a daemon where nobody is. 0, or as
 * gs_connect(). */
static int reach_or_start(const struct gs_places *places, struct gs_own_fd *connection,
                          struct gs_err *why)
{
    const struct timespec pause = {0, PAUSE_NS};
    int reached = reach(places, connection, why);

    for (int i = 0; i < TRIES && (gs_place_is_empty(reached) || is_passing(reached)); i++) {
        if (i % TRIES_PER_START == 0 && gs_place_is_empty(reached)) {
            const int error = start_daemon(places, why);

            if (error != 0)
                return error;
        }
        nanosleep(&pause, NULL);
        reached = reach(places, connection, why);
    }
    return gs_place_is_empty(reached) || is_passing(reached) ? -EAGAIN : reached;
}

int gs_connect(bool start, struct gs_own_fd *connection, struct gs_err *why)
{
    struct gs_places places;
    int error = gs_places_find(&places);

    if (error != 0)
        return gs_err_errno(why, error, "GPUSHARE_SOCKET is no full path of a socket");
    error = start ? reach_or_start(&places, connection, why) : reach(&places, connection, why);
    if (error != 0) {
        gs_log("no daemon: %s", why->text);
        return error;
    }
    if (hello(connection) == 0)
        return 0;
    gs_own_fd_close(connection);
    return gs_err_set(why, -EAGAIN, "gpushare-lockd hangs up");
}

int gs_connect_send(int fd, const void *message, uint32_t length,
                    const struct gs_descriptors *with)
{
    const ssize_t sent = gs_packet_send(fd, message, length, with);

    if (sent == (ssize_t)length)
        return 0;
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    return sent < 0 ? -errno : -EPIPE;
}

/* The daemon refuses us and says why; this message is the same in every version. */
static bool is_refusal(const union gs_connect_message *message, ssize_t got)
{
    return got == (ssize_t)sizeof message->end &&
           message->target.header.magic == GS_WIRE_MAGIC &&
           message->target.header.type == GS_WIRE_END;
}

int gs_connect_receive(int fd, struct gs_wire_target *target, unsigned most,
                       struct gs_descriptors *with)
{
    static bool said;
    union gs_connect_message message;
    ssize_t got = gs_packet_receive(fd, &message, sizeof message, most, with);

    if (got < 0 && errno == ECONNRESET) /* comes before what was said last */
        got = gs_packet_receive(fd, &message, sizeof message, most, with);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (got == 0) {
        gs_descriptors_close(with);
        return -ECONNRESET;
    }
    if (is_refusal(&message, got)) {
        message.end.text[sizeof message.end.text - 1] = '\0';
        gs_say_once(&said, "gpushare-lockd refuses this program: %s", message.end.text);
        gs_descriptors_close(with);
        return -ECONNREFUSED;
    }
    if (got != (ssize_t)sizeof *target || message.target.header.magic != GS_WIRE_MAGIC ||
        message.target.header.version != GS_WIRE_VERSION ||
        message.target.header.type != GS_WIRE_TARGET ||
        message.target.header.length != sizeof *target) {
        gs_descriptors_close(with);
        return -EPROTO;
    }
    *target = message.target;
    return 1;
}

void gs_connect_note(struct gs_wire_note *note, uint32_t kind, const char *text)
{
    memset(note, 0, sizeof *note);
    header(&note->header, GS_WIRE_NOTE, sizeof *note);
    note->pid = (int32_t)getpid();
    note->kind = kind;
    snprintf(note->name, sizeof note->name, "%s", program_invocation_short_name);
    snprintf(note->text, sizeof note->text, "%s", text);
}

void gs_connect_last_word(uint32_t kind, const char *text)
{
    struct gs_own_fd connection = GS_NO_FD;
    struct gs_wire_note note;
    struct gs_places places;
    struct gs_err why;

    if (gs_places_find(&places) != 0 || reach(&places, &connection, &why) != 0)
        return;
    gs_connect_note(&note, kind, text);
    gs_connect_send(gs_own_fd(&connection), &note, sizeof note, NULL);
    gs_own_fd_close(&connection);
}
