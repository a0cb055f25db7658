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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/paths.h"
#include "runtime/log.h"
#include "runtime/runtime.h"

#define PAUSE_NS        10000000
#define TRIES           100 /* to reach a daemon that was started */
#define TRIES_PER_START 20  /* then another one: the one that served may have been leaving */

static void header(struct gs_wire_header *out, uint16_t type, uint32_t length)
{
    *out = (struct gs_wire_header){
        .magic = GS_WIRE_MAGIC, .version = GS_WIRE_VERSION, .type = type, .length = length};
}

union gs_connect_message {
    struct gs_wire_target target;
    struct gs_wire_end end;
};

static int open_socket(const char *path, struct gs_own_fd *connection)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    gs_own_fd_set(connection, fd);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (connect(gs_own_fd(connection), (struct sockaddr *)&address, sizeof address) != 0) {
        const int error = errno;

        gs_own_fd_close(connection);
        return -error;
    }
    return 0;
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
        return snprintf(path, size, "%s", named) < (int)size && access(path, X_OK) == 0;
    if (dladdr(__extension__(void *) find_daemon, &info) != 0 &&
        (slash = strrchr(info.dli_fname, '/')) != NULL)
        for (unsigned i = 0; i < sizeof beside / sizeof beside[0]; i++)
            if (snprintf(path, size, "%.*s/%sgpushare-lockd", (int)(slash - info.dli_fname),
                         info.dli_fname, beside[i]) < (int)size &&
                access(path, X_OK) == 0)
                return true;
    return snprintf(path, size, "%s", GS_LOCKD_PATH) < (int)size && access(path, X_OK) == 0;
}

struct start {
    char *const *argv, *const *environment;
    int err; /* in place of the program's stderr; -1: the program's */
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
    const struct start *start = argument;
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
    syscall(SYS_exit, 127);
    __builtin_unreachable();
}

/* clone(2) under a name that ThreadSanitizer leaves alone: its own takes the child for one of
 * fork(), and makes the parent forget who holds which lock. */
extern __typeof__(clone) __clone;

static int start_daemon(const char *socket_path)
{
    char program[512], path[128];
    char *argv[] = {program,
                    (char[]){"--detach"},
                    (char[]){"--idle-exit"},
                    (char[]){"10"},
                    (char[]){"--socket"},
                    path,
                    NULL};
    struct start start = {argv, environ, -1};
    const size_t stack_bytes = 64 << 10;
    int status = 0;
    char *stack;
    pid_t pid;

    if (!find_daemon(program, sizeof program))
        return -ENOENT;
    snprintf(path, sizeof path, "%s", socket_path);
    stack = malloc(stack_bytes);
    if (stack == NULL)
        return -ENOMEM;
    if (gs_log_is_quiet())
        start.err = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid = __clone(child, (void *)((uintptr_t)(stack + stack_bytes) & ~(uintptr_t)15),
                  CLONE_VM | CLONE_VFORK, (void *)(uintptr_t)&start);
    if (pid > 0)
        while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
            continue;
    if (start.err >= 0)
        close(start.err);
    free(stack);
    gs_log("started %s: %s", program,
           pid < 0       ? strerror(errno)
           : status == 0 ? "ok"
                         : "failed");
    return pid < 0 ? -errno : status == 0 ? 0 : -ECHILD;
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

int gs_connect(bool start, struct gs_own_fd *connection)
{
    const struct timespec pause = {0, PAUSE_NS};
    char path[128];
    int reached, error = gs_socket_path(path, sizeof path);

    if (error == 0)
        error = gs_socket_folder(path);
    if (error != 0)
        return error;
    reached = open_socket(path, connection);
    for (int i = 0; i < TRIES && reached < 0 && start; i++) {
        if (i % TRIES_PER_START == 0)
            error = start_daemon(path);
        if (error != 0)
            break;
        nanosleep(&pause, NULL);
        reached = open_socket(path, connection);
    }
    if (reached < 0) {
        if (error != 0)
            reached = error;
        else if (start)
            reached = -EAGAIN; /* there are daemons, but each had left when we came */
        gs_log("no daemon at %s: %s", path, strerror(-reached));
        return reached;
    }
    error = hello(connection);
    if (error != 0)
        gs_own_fd_close(connection);
    return error;
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

/* It goes to somebody's terminal: no control characters. */
static void make_printable(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
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
        make_printable(message.end.text);
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
    char path[128];

    if (gs_socket_path(path, sizeof path) != 0 || open_socket(path, &connection) < 0)
        return;
    gs_connect_note(&note, kind, text);
    gs_connect_send(gs_own_fd(&connection), &note, sizeof note, NULL);
    gs_own_fd_close(&connection);
}
