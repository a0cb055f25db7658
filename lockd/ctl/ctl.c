/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl.c: gpusharectl's side of the connection: one request and an answer of many messages, each of
 * them checked; and the texts of errors.
 */
#include "lockd/ctl/ctl.h"
#include "common/fd.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWER_SECONDS 10
#define ANSWER_MAX     65536 /* messages of one kind */

static int patience_s(const struct ctl *ctl)
{
    return ctl->patience_s != 0 ? ctl->patience_s : ANSWER_SECONDS;
}

/* Explains why there is no connection. */
static int explain_failure(struct ctl *ctl, int code, const struct gs_err *why)
{
    switch (code) {
    case -ENOENT:
    case -ECONNREFUSED:
        if (ctl->kept_out)
            return gs_err_set(
                &ctl->err, -ENOENT,
                "user %u may not connect to the service at %s (only members of its group "
                "may), and has no gpushare-lockd of their own",
                (unsigned)geteuid(), GS_SYSTEM_SOCKET);
        return gs_err_set(&ctl->err, -ENOENT,
                          "no gpushare-lockd is running (socket %s); the first patched program "
                          "starts it",
                          ctl->path);
    case -EPROTOTYPE:
        return gs_err_set(&ctl->err, code, "%s is the socket of another program", ctl->path);
    case -EAGAIN:
        return gs_err_set(&ctl->err, code,
                          "%s: gpushare-lockd does not answer (is it stopped or hanging?)",
                          ctl->path);
    case -EACCES:
        return gs_err_set(&ctl->err, code,
                          "%s: user %u may not connect: only members of the folder's group may",
                          ctl->path, (unsigned)geteuid());
    default:
        return gs_err_set(&ctl->err, code, "%s", why->text);
    }
}

const char *ctl_own_place(const struct ctl *ctl)
{
    return ctl->places.path[ctl->places.count > 1 && geteuid() != 0 ? 1 : 0];
}

struct call {
    struct ctl *ctl;
    int fd; /* -1: there is no connection */
};

static int call_place(void *context, const char *path, struct gs_err *err)
{
    struct call *call = context;
    const struct timeval patience = {.tv_sec = patience_s(call->ctl)};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int code;

    if (fd < 0)
        return gs_err_errno(err, -errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    code = gs_place_connect(fd, path, err);
    if (code == -EACCES && !call->ctl->places.named && strcmp(path, GS_SYSTEM_SOCKET) == 0)
        call->ctl->kept_out = true;
    if (code == 0)
        call->fd = fd;
    else
        close(fd);
    return code;
}

int ctl_connect(struct ctl *ctl)
{
    struct call call = {.ctl = ctl, .fd = -1};
    struct gs_err why = {0};
    unsigned which = 0;
    const int code = gs_places_try(&ctl->places, call_place, &call, &which, &why);

    if (!gs_place_is_empty(code))
        memcpy(ctl->path, ctl->places.path[which], sizeof ctl->path);
    return code == 0 ? call.fd : explain_failure(ctl, code, &why);
}

int ctl_receive(struct ctl *ctl, int fd, union lockd_message *message)
{
    bool reset = false;
    ssize_t got;

    /* if the daemon has closed the connection before it read the request, the first receive
     * reports the reset; earlier messages of the daemon can still be read */
    do {
        got = recv(fd, message, sizeof *message, MSG_TRUNC);
        reset = got < 0 && errno == ECONNRESET && !reset;
    } while (reset || (got < 0 && errno == EINTR));
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return gs_err_set(&ctl->err, -ETIMEDOUT, "%s: no answer within %d s", ctl->path,
                          patience_s(ctl));
    if (got <= 0)
        return gs_err_set(
            &ctl->err, -EPIPE,
            "%s: gpushare-lockd closed the connection: it ended, or user %u may not "
            "connect",
            ctl->path, (unsigned)geteuid());
    return lockd_wire_check(message, (size_t)got, &ctl->err);
}

/* Appends a copy of a message to an array of them. */
static int append_message(struct ctl *ctl, void *array, size_t *count,
                          const union lockd_message *message)
{
    const size_t size = message->header.length;
    void **start = array;
    void *grown;

    if (*count >= ANSWER_MAX)
        return gs_err_set(&ctl->err, -EMSGSIZE, "%s: the answer is too long", ctl->path);
    grown = realloc(*start, (*count + 1) * size);
    if (grown == NULL)
        return gs_err_set(&ctl->err, -ENOMEM, "out of memory while reading the answer");
    memcpy((char *)grown + *count * size, message, size);
    *start = grown;
    (*count)++;
    return 0;
}

/* 0: more to come, 1: that was the end, -errno. */
static int take_message(struct ctl *ctl, struct ctl_answer *answer,
                        const union lockd_message *message)
{
    switch (message->header.type) {
    case GS_WIRE_DAEMON:
        answer->daemon = message->daemon;
        return 0;
    case GS_WIRE_DEVICE:
        return append_message(ctl, &answer->devices, &answer->device_count, message);
    case GS_WIRE_CLIENT:
        return append_message(ctl, &answer->clients, &answer->client_count, message);
    case GS_WIRE_TOTALS:
        return append_message(ctl, &answer->totals, &answer->total_count, message);
    case GS_WIRE_REMARK:
        return append_message(ctl, &answer->remarks, &answer->remark_count, message);
    case GS_WIRE_SETTING:
        return append_message(ctl, &answer->settings, &answer->setting_count, message);
    case GS_WIRE_ACCOUNT:
        answer->account = message->account;
        return 0;
    case GS_WIRE_END:
        answer->end = message->end;
        return 1;
    default:
        return gs_err_set(&ctl->err, -EBADMSG, "%s: unexpected message type %u", ctl->path,
                          message->header.type);
    }
}

int ctl_ask(struct ctl *ctl, const void *request, size_t size, struct ctl_answer *answer)
{
    GS_CLOSE_FD int fd = ctl_connect(ctl);
    const uint64_t until = lockd_now() + (uint64_t)patience_s(ctl) * 1000000000u;
    int code = fd < 0 ? fd : 0;

    memset(answer, 0, sizeof *answer);
    /* a refused caller finds the connection closed, and can still read the reason */
    if (code == 0 && send(fd, request, size, MSG_NOSIGNAL) != (ssize_t)size && errno != EPIPE)
        code = gs_err_errno(&ctl->err, -errno, "%s: cannot send the request", ctl->path);
    while (code == 0) {
        union lockd_message message;

        code = ctl_receive(ctl, fd, &message);
        code = code == 0 ? take_message(ctl, answer, &message) : code;
        if (code == 0 && lockd_now() > until)
            code = gs_err_set(&ctl->err, -ETIMEDOUT, "%s: the answer does not end within %d s",
                              ctl->path, patience_s(ctl));
    }
    answer->running = code == 1;
    if (code == 1 && answer->end.code != 0 && answer->daemon.pid == 0 &&
        ((const struct gs_wire_header *)request)->type == GS_WIRE_STATUS)
        code = gs_err_set(&ctl->err, -EACCES, "%s: refused: %s", ctl->path, answer->end.text);
    if (code != 1)
        ctl_answer_deinit(answer);
    return code == 1 ? 0 : code;
}

void ctl_answer_deinit(struct ctl_answer *answer)
{
    free(answer->devices);
    free(answer->clients);
    free(answer->totals);
    free(answer->remarks);
    free(answer->settings);
    nvml_table_free(&answer->gpus);
    free(answer->outsiders);
    free(answer->client_pods);
    memset(answer, 0, sizeof *answer);
}

int ctl_ask_status(struct ctl *ctl, struct ctl_answer *answer)
{
    struct gs_wire_header request;

    lockd_wire_header(&request, GS_WIRE_STATUS);
    return ctl_ask(ctl, &request, sizeof request, answer);
}

enum ctl_exit ctl_fail(const struct ctl *ctl)
{
    fprintf(stderr, "gpusharectl: %s\n", ctl->err.text);
    return ctl->err.code == -ENOENT ? CTL_NO_DAEMON : CTL_FAILED;
}

enum ctl_exit ctl_refused(const struct gs_wire_end *end)
{
    fprintf(stderr, "gpusharectl: %s\n", end->text);
    return end->code == -ESRCH ? CTL_NO_PROGRAM : CTL_FAILED;
}

enum ctl_exit ctl_done(enum ctl_exit code)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return code;
    fprintf(stderr, "gpusharectl: cannot write to standard output: %s\n", strerror(errno));
    return code == CTL_OK ? CTL_FAILED : code;
}

volatile int ctl_interrupted;

static void on_signal(int number)
{
    (void)number;
    ctl_interrupted = 1;
}

void ctl_catch_interrupts(void)
{
    const struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void ctl_print_usage(const struct ctl_command *command, FILE *out)
{
    fprintf(out, "usage: gpusharectl %s", command->name);
    for (const struct gs_option *at = command->options; at != NULL && at->name != NULL; at++)
        fprintf(out, " [--%s%s%s]", at->name, at->argument != NULL ? " " : "",
                at->argument != NULL ? at->argument : "");
    fprintf(out, "%s%s\n", command->arguments[0] != '\0' ? " " : "", command->arguments);
}

enum ctl_exit ctl_usage(const struct ctl *ctl, const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "gpusharectl %s: ", ctl->command->name);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    putc('\n', stderr);
    ctl_print_usage(ctl->command, stderr);
    return CTL_USAGE;
}

static bool look_alike(const struct gs_wire_client *one, const struct gs_wire_client *other)
{
    return one->pid == other->pid && one->uid == other->uid &&
           memcmp(one->uuid, other->uuid, sizeof one->uuid) == 0 &&
           strcmp(one->name, other->name) == 0;
}

unsigned ctl_twin(const struct ctl_answer *answer, size_t index)
{
    unsigned count = 0;

    for (size_t i = 0; i < index; i++)
        count += look_alike(&answer->clients[i], &answer->clients[index]);
    return count;
}

struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct ctl_answer *answer,
                            size_t index, uint64_t elapsed_ns)
{
    const struct gs_wire_client *now = &answer->clients[index], *then = NULL;
    const double seconds = (double)elapsed_ns / 1e9;
    unsigned twin = ctl_twin(answer, index);
    struct ctl_rate rate = {0};

    for (size_t i = 0; i < before->client_count && then == NULL; i++) {
        if (look_alike(&before->clients[i], now) && twin-- == 0)
            then = &before->clients[i];
    }
    if (then == NULL || elapsed_ns == 0 || now->moved_out < then->moved_out ||
        now->moved_in < then->moved_in || now->gpu_ns < then->gpu_ns ||
        now->calls < then->calls || now->turns < then->turns)
        return rate;
    rate.out = (double)(now->moved_out - then->moved_out) / seconds;
    rate.in = (double)(now->moved_in - then->moved_in) / seconds;
    rate.gpu = (double)(now->gpu_ns - then->gpu_ns) / (double)elapsed_ns;
    rate.gpu = rate.gpu > 1 ? 1 : rate.gpu;
    rate.calls = (double)(now->calls - then->calls) / seconds;
    rate.turns = now->turns - then->turns;
    return rate;
}
