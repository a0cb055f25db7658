/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c: finds the daemon and talks to it; start.c starts it. No state. Nothing here blocks
 * for longer than about a second.
 */
#include "runtime/client/connect.h"

#include <sys/socket.h>

#include "runtime/client/start.h"

#define PAUSE_NS        10000000
#define TRIES           100 /* attempts to reach a started daemon */
#define TRIES_PER_START 20  /* then starts another: the first may be ending */

/* Connects only to a daemon that can be trusted (common/place.h): it can make this program give
 * its memory away. */
static int open_socket(void *context, const char *path, struct gs_err *why)
{
    struct gs_own_fd *connection = context;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error;

    if (fd < 0)
        return gs_err_errno(why, -errno, "socket");
    gs_own_fd_set(connection, fd);
    error = gs_place_connect(gs_own_fd(connection), path, why);
    if (gs_own_fd(connection) < 0) /* the result is of the program's file, or of none */
        error = gs_err_errno(why, -EBADF, "the connection to gpushare-lockd");
    if (error != 0)
        gs_own_fd_close(connection);
    return error;
}

static int reach_daemon(const struct gs_places *places, struct gs_own_fd *connection,
                        struct gs_err *why)
{
    unsigned which = 0;

    *why = (struct gs_err){0};
    return gs_places_try(places, open_socket, connection, &which, why);
}

/* Reads a number that the user gave. 0 if there is none or if it is invalid, which is said once;
 * the program is an ordinary one then. */
static int32_t read_number(const char *name, long low, long high)
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

/* The class that the program has for the scheduler; GS_CLASS_AUTO: the scheduler finds out. */
static uint32_t read_class(void)
{
    static const char *const names[GS_CLASS_COUNT] = {"auto", "interactive", "batch",
                                                      "background"};
    static bool said;
    const char *text = secure_getenv("GPUSHARE_CLASS");

    if (text == NULL || *text == '\0')
        return GS_CLASS_AUTO;
    for (uint32_t i = 0; i < GS_CLASS_COUNT; i++) {
        if (strcmp(text, names[i]) == 0)
            return i;
    }
    gs_say_once(&said,
                "GPUSHARE_CLASS=%s is ignored: it must be auto, interactive, batch or "
                "background",
                text);
    return GS_CLASS_AUTO;
}

static int send_hello(const struct gs_own_fd *connection)
{
    const char *group = secure_getenv("GPUSHARE_GROUP"), *name = secure_getenv("GPUSHARE_NAME");
    struct gs_wire_hello message = {.pid = (int32_t)getpid()};

    gs_connect_header(&message.header, GS_WIRE_HELLO, sizeof message);
    snprintf(message.name, sizeof message.name, "%s",
             name != NULL && *name != '\0' ? name : program_invocation_short_name);
    snprintf(message.version, sizeof message.version, "%s", GS_VERSION);
    snprintf(message.group, sizeof message.group, "%s",
             group != NULL && strcmp(group, "none") != 0 ? group : "");
    message.weight = (uint32_t)read_number("GPUSHARE_WEIGHT", 1, GS_WEIGHT_MAX);
    message.class = read_class();
    message.priority = read_number("GPUSHARE_PRIORITY", -GS_PRIORITY_MAX, GS_PRIORITY_MAX);
    return gs_connect_send(gs_own_fd(connection), &message, sizeof message, NULL);
}

/* True for errors that pass: a daemon with more callers than it can answer, or no free
 * descriptor. */
static bool is_passing(int error)
{
    return error == -EAGAIN || error == -EINTR || error == -EMFILE || error == -ENFILE ||
           error == -ENOMEM || error == -ENOBUFS || error == -EBADF;
}

/* Tries the places until a daemon answers; starts one if none does. 0, or as gs_connect(). */
static int reach_or_start(const struct gs_places *places, struct gs_own_fd *connection,
                          struct gs_err *why)
{
    const struct timespec pause = {0, PAUSE_NS};
    int reached = reach_daemon(places, connection, why);

    for (int i = 0; i < TRIES && (gs_place_is_empty(reached) || is_passing(reached)); i++) {
        if (i % TRIES_PER_START == 0 && gs_place_is_empty(reached)) {
            const int error = gs_start_daemon(places, why);

            if (error != 0)
                return error;
        } else {
            nanosleep(&pause, NULL); /* a daemon that was started listens already */
        }
        reached = reach_daemon(places, connection, why);
    }
    return gs_place_is_empty(reached) || is_passing(reached) ? -EAGAIN : reached;
}

bool gs_connect_is_forbidden(int error)
{
    return error == -EPERM || error == -EACCES || error == -ENOSYS;
}

int gs_connect(bool start, struct gs_own_fd *connection, struct gs_err *why)
{
    struct gs_places places;
    int error = gs_places_find(&places);

    if (error != 0)
        return gs_err_errno(why, error, "GPUSHARE_SOCKET is not the full path of a socket");
    error = start ? reach_or_start(&places, connection, why)
                  : reach_daemon(&places, connection, why);
    if (error != 0) {
        gs_log("no daemon: %s", why->text);
        return error;
    }
    error = send_hello(connection);
    if (error == 0)
        return 0;
    gs_own_fd_close(connection);
    return gs_connect_is_forbidden(error)
               ? gs_err_errno(why, error, "this process may not send to gpushare-lockd")
               : gs_err_set(why, -EAGAIN, "gpushare-lockd hangs up");
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

/* Each message of the daemon to a program has a fixed size. */
static uint32_t size_of(uint16_t type)
{
    switch (type) {
    case GS_WIRE_TARGET:
        return sizeof(struct gs_wire_target);
    case GS_WIRE_OPEN:
        return sizeof(struct gs_wire_open);
    case GS_WIRE_SHARE:
        return sizeof(struct gs_wire_share);
    case GS_WIRE_MOVE:
        return sizeof(struct gs_wire_move);
    case GS_WIRE_COPY:
        return sizeof(struct gs_wire_copy);
    default:
        return 0;
    }
}

int gs_connect_receive(int fd, union gs_connect_message *message, unsigned most,
                       struct gs_descriptors *with)
{
    static bool said;
    ssize_t got = gs_packet_receive(fd, message, sizeof *message, most, with);

    if (got < 0 && errno == ECONNRESET) /* this error comes before the daemon's last message */
        got = gs_packet_receive(fd, message, sizeof *message, most, with);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (got == 0) {
        gs_descriptors_close(with);
        return -ECONNRESET;
    }
    /* the daemon refuses us and says why; this message is the same in every version */
    if (got == (ssize_t)sizeof message->end && message->header.magic == GS_WIRE_MAGIC &&
        message->header.type == GS_WIRE_END) {
        message->end.text[sizeof message->end.text - 1] = '\0';
        for (char *text = message->end.text; *text != '\0'; text++)
            if (*text < ' ' || *text > '~')
                *text = '?'; /* the text goes to somebody's terminal */
        gs_say_once(&said, "gpushare-lockd refuses this program: %s", message->end.text);
        gs_descriptors_close(with);
        return -ECONNREFUSED;
    }
    if (got < (ssize_t)sizeof message->header || message->header.magic != GS_WIRE_MAGIC ||
        message->header.version != GS_WIRE_VERSION ||
        got != (ssize_t)size_of(message->header.type) ||
        message->header.length != size_of(message->header.type)) {
        gs_descriptors_close(with);
        return -EPROTO;
    }
    return 1;
}

void gs_connect_note(struct gs_wire_note *note, uint32_t kind, const char *text)
{
    memset(note, 0, sizeof *note);
    gs_connect_header(&note->header, GS_WIRE_NOTE, sizeof *note);
    note->pid = (int32_t)getpid();
    note->kind = kind;
    snprintf(note->name, sizeof note->name, "%s", program_invocation_short_name);
    snprintf(note->text, sizeof note->text, "%s", text);
}

void gs_connect_last_word(uint32_t kind, const char *text)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    struct gs_own_fd connection = {.number = 0};
    struct gs_wire_note note;
    struct gs_places places;
    struct gs_err why;

    if (gs_places_find(&places) != 0 || reach_daemon(&places, &connection, &why) != 0)
        return;
    gs_connect_note(&note, kind, text);
    gs_connect_send(gs_own_fd(&connection), &note, sizeof note, NULL);
    gs_own_fd_close(&connection);
}
