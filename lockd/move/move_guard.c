/* SPDX-License-Identifier: Apache-2.0
 *
 * move_guard.c: the guard of a move: its orders, its words, and the replacement of a killed guard.
 * Owns a move's guard and record. One thread, nothing blocks.
 *
 * Invariant: from GO on the guard alone decides how the move ends, and reports it. A guard that
 * ends without a word is replaced, as long as the program lives: the next guard reads from the
 * record how far the move has come.
 */
#include "lockd/move/move_guard.h"
#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/base/text.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Owns struct lockd_move, from the beginning of a move to its end. One thread.
 * Invariants: a move is in moves->list and is its program's `move`, or it is freed. The program
 * is paused from STOP until it is told that the move is over. */

#define ASK_NS       10000000000u /* the program and the guard say whether it may be moved */
#define CONTEXT_PART 64           /* of a device: a context takes no more */
#define STOP_NS      60000000000u /* submitted work finishes, and its memory leaves */

/* --- what is said --- */

void lockd_move_answer(struct lockd_move *move, int code, const char *format, ...)
{
    struct gs_wire_end end;
    va_list ap;

    if (move->asker == 0)
        return;
    va_start(ap, format);
    end = lockd_wire_end(code, code == 0, format, ap);
    va_end(ap);
    move->moves->calls->answer(move->moves->context, move->asker, &end);
    move->asker = 0;
}

void lockd_move_tell(const struct lockd_move *move, enum gs_move_step step, int code)
{
    struct gs_wire_move message = {
        .number = move->number, .step = (uint32_t)step, .code = code};

    lockd_wire_header(&message.header, GS_WIRE_MOVE);
    memcpy(message.from, move->order.pairs[0].from, sizeof message.from);
    memcpy(message.to, move->order.pairs[0].to, sizeof message.to);
    move->moves->calls->tell(move->program->owner, &message);
}

/* --- beginning and end --- */

struct lockd_move *lockd_move_new(struct lockd_moves *moves, struct lockd_move_program *program,
                                  const uint8_t from[16], const uint8_t to[16])
{
    struct lockd_move *move = calloc(1, sizeof *move);

    if (move == NULL)
        return NULL;
    move->moves = moves;
    move->program = program;
    move->guard = move->record = -1;
    move->number = ++moves->number;
    move->order.pid = program->pid;
    move->order.started = program->identity->started;
    move->order.count = 1;
    memcpy(move->order.pairs[0].from, from, sizeof move->order.pairs[0].from);
    memcpy(move->order.pairs[0].to, to, sizeof move->order.pairs[0].to);
    move->began = lockd_now();
    move->until = move->began + ASK_NS;
    move->late_at = LOCKD_NEVER;
    program->move = move;
    lockd_list_append(&moves->list, &move->link);
    return move;
}

/* Others make room for the program on a device until the move ends: so many bytes. */
static void lockd_move_claim(struct lockd_move *move, const uint8_t uuid[16], uint64_t bytes)
{
    sched_claim(move->moves->sched, move, uuid, bytes, lockd_now());
}

uint64_t lockd_move_pinned(const struct lockd_move *move)
{
    struct sched_load load;
    uint64_t bytes = 0;

    for (uint32_t i = 0; sched_client_load(move->program->client, i, &load, lockd_now()); i++)
        if (memcmp(load.uuid, move->order.pairs[0].from, sizeof load.uuid) == 0)
            bytes = load.pinned;
    return bytes;
}

/* ... so many bytes and a context. The size of a context follows from that of the device as other
 * programs know it. No claim on a device that this program does not see. */
static void lockd_move_claim_with_context(struct lockd_move *move, const uint8_t uuid[16],
                                          uint64_t bytes)
{
    if (lockd_sees_find(&move->program->sees, uuid) != NULL)
        lockd_move_claim(move, uuid,
                         bytes + sched_device_total(move->moves->sched, uuid) / CONTEXT_PART);
}

/* Other moves do not wait for the end of this one any more. away: the driver says that the program
 * is on neither device. Either will do, so others make room on both. */
static void lockd_move_hold(struct lockd_move *move, bool away)
{
    const struct lockd_guard_pair *pair = &move->order.pairs[0];
    const struct lockd_move_calls *calls = move->moves->calls;
    struct lockd_move_program *program = move->program;

    if (!move->held)
        move->moves->calls->held(move->program->owner);
    move->held = true;
    move->late_at = LOCKD_NEVER;
    if (away && !move->away) {
        move->away = true;
        if (move->adopted) { /* whatever it says, it goes with no more than its user may have */
            move->pinned = lockd_lesser(move->pinned, calls->room(program->owner, pair->from));
            move->pinned = lockd_lesser(move->pinned, calls->room(program->owner, pair->to));
            program->away_bytes = move->pinned;
        }
        sched_away(move->program->client, true, lockd_now());
        lockd_move_claim_with_context(move, pair->from, move->pinned);
        lockd_move_claim_with_context(move, pair->to, move->pinned);
    } else if (move->adopted && !move->away) { /* nothing but its word says that it needs any */
        lockd_move_claim(move, pair->to, 0);
    }
}

void lockd_move_free(struct lockd_move *move)
{
    lockd_move_claim(move, move->order.pairs[0].from, 0);
    lockd_move_claim(move, move->order.pairs[0].to, 0);
    lockd_list_remove(&move->link);
    move->program->move = NULL;
    move->program->away_bytes = 0;
    if (move->guard >= 0)
        close(move->guard);
    if (move->record >= 0)
        move->moves->calls->close(move->program->owner, move->record);
    free(move);
}

void lockd_move_stop(struct lockd_move *move)
{
    move->stage = LOCKD_MOVE_STOPPING;
    move->stopped = lockd_now();
    move->until = move->stopped + STOP_NS;
    move->moves->calls->pause(move->program->owner, true);
    sched_evict(move->program->client, move->stopped);
    lockd_move_tell(move, GS_MOVE_STOP, 0);
}

/* The common part of all ends of a move. */
static void end_move(struct lockd_move *move, enum lockd_move_end end, int code, uint64_t now)
{
    const struct lockd_move_calls *calls = move->moves->calls;
    struct lockd_connection *owner = move->program->owner;

    lockd_move_tell(move, GS_MOVE_OVER, code);
    if (move->stopped != 0)
        calls->pause(owner, false);
    calls->over(owner, end, move->held ? 0 : now - move->began, move->bytes);
    if (move->away)
        sched_away(move->program->client, false, now);
    lockd_move_free(move);
}

void lockd_move_end_without(struct lockd_move *move, enum lockd_move_end end, const char *why)
{
    const struct lockd_move_program *program = move->program;

    lockd_log(LOCKD_LOG_WARNING, "process %d (%s) is not moved: %s", (int)program->pid,
              program->name, why);
    lockd_move_answer(move, -EIO, "process %d is not moved: %s", (int)program->pid, why);
    end_move(move, end, -EIO, lockd_now());
}

/* Ends the move: the program continues on the other device. Frees the move. */
static void lockd_move_end_moved(struct lockd_move *move)
{
    struct lockd_move_program *program = move->program;
    const uint64_t now = lockd_now();
    char from[LOCKD_UUID_SIZE], to[LOCKD_UUID_SIZE];

    for (unsigned i = 0; i < move->order.count; i++) {
        const struct lockd_guard_pair *pair = &move->order.pairs[i];

        if (memcmp(pair->from, pair->to, sizeof pair->from) == 0)
            continue;
        move->moves->calls->left(program->owner, pair->from);
        lockd_track_drop(program->tracks, pair->from);
        sched_left(program->client, pair->from, now);
    }
    lockd_uuid_text(move->order.pairs[0].from, from);
    lockd_uuid_text(move->order.pairs[0].to, to);
    lockd_log(LOCKD_LOG_INFO, "process %d (%s) was moved from %s to %s", (int)program->pid,
              program->name, from, to);
    lockd_move_answer(
        move, 0, "from %s to %s in %.2f s, of which the driver's checkpoint took %.2f s", from,
        to, (double)(now - move->began) / 1e9, (double)(now - move->guarded_since) / 1e9);
    end_move(move, LOCKD_MOVE_DONE, 0, now);
}

/* Starts a guard (guard.h) and receives its messages. Where the guard service runs and
 * admits this user, systemd starts a guard for the connection. Else the guard is this
 * program again, in a process of its own that has one end of a socket pair and no other
 * descriptor of the daemon. No state. The daemon does not wait for guards (SIGCHLD is
 * ignored). */

/* The guard service's socket (systemd/gpushare-guard.socket). */
#define LOCKD_GUARD_SOCKET "/run/gpushare-guard/guard.sock"

extern char **environ;

static int spawn_guard(int32_t pid, int its_end)
{
    char number[16], name[] = "gpushare-lockd", option[] = "--guard";
    char *argv[] = {name, option, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t guard;
    int code;

    snprintf(number, sizeof number, "%d", (int)pid);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, its_end, STDIN_FILENO);
    code = posix_spawn(&guard, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -code;
}

/* Connects to a guard of the service, which may checkpoint programs of all users. -errno: there
 * is none. */
static int call_service(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *named = getenv("GPUSHARE_GUARD_SOCKET");
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int code = fd < 0 ? -errno : 0;

    snprintf(address.sun_path, sizeof address.sun_path, "%s",
             named != NULL && *named != '\0' ? named : LOCKD_GUARD_SOCKET);
    if (code == 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        code = -errno;
    if (code == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return code;
}

static int start_own(const struct lockd_guard_order *order)
{
    int ends[2], code;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -errno;
    code = fcntl(ends[1], F_SETFL, 0) == 0 ? spawn_guard(order->pid, ends[1]) : -errno;
    close(ends[1]);
    if (code == 0)
        return ends[0];
    close(ends[0]);
    return code;
}

/* Sends the next order. False: the guard has ended. */
static bool lockd_guard_order(int guard, const struct lockd_guard_order *order, int with)
{
    const struct gs_descriptors one = {.fd = {with}, .count = 1};

    return gs_packet_send(guard, order, sizeof *order, with >= 0 ? &one : NULL) ==
           (ssize_t)sizeof *order;
}

/* Before the second replacement of a killed guard; twice as long before each further
 * replacement, up to the fifth. */
#define RETRY_NS     1000000000u
#define RETRY_DOUBLE 5

/* From GO on: the driver's calls have ended then, unless the program has much memory that only
 * they can move, or somebody has stopped one of the two. */
#define LATE_NS 30000000000u

#define ROOM_NS 10000000000u /* others make room on the other device */
#define LOOK_NS 100000000u   /* until the guard looks again */

/* Starts the guard of the process that the order names, by the guard service where there is
 * one that serves this user, and gives it its first order. epoll watches it from now on. */
static int start_guard(struct lockd_move *move, enum lockd_guard_word word)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = move};
    const int with = word == LOCKD_GUARD_TAKE_UP ? move->record : -1;
    int guard = call_service(), code;

    move->order.word = (char)word;
    move->guard = -1;
    if (guard < 0)
        guard = start_own(&move->order);
    if (guard < 0)
        return guard;
    code = lockd_guard_order(guard, &move->order, with) ? 0 : -EIO;
    if (code == 0 && epoll_ctl(move->moves->epoll, EPOLL_CTL_ADD, guard, &event) != 0)
        code = -errno;
    if (code == 0)
        move->guard = guard;
    else
        close(guard);
    return code;
}

int lockd_move_guard_ask(struct lockd_move *move, uint64_t bytes)
{
    move->order.bytes = bytes;
    if (bytes != 0)
        lockd_move_claim(move, move->order.pairs[0].to, move->claimed = bytes);
    return start_guard(move, LOCKD_GUARD_MOVE);
}

static void order_guard(const struct lockd_move *move, int with)
{
    if (!lockd_guard_order(move->guard, &move->order, with))
        lockd_log(LOCKD_LOG_DEBUG, "the guard of process %d has ended already",
                  (int)move->program->pid); /* the state in which it will be found */
}

void lockd_move_guard_look(struct lockd_move *move)
{
    move->again_at = 0;
    order_guard(move, -1);
}

/* The guard is at work, or is to be replaced. Pairs each device that the program sees: the two of the
 * move change places, the others stay. */
static void begin_guarded(struct lockd_move *move, int record)
{
    const struct lockd_sees *sees = &move->program->sees;
    struct lockd_guard_order *order = &move->order;

    move->record = record;
    move->stage = LOCKD_MOVE_GUARDED;
    move->guarded_since = lockd_now();
    move->late_at = move->guarded_since + LATE_NS;
    order->count = 1;
    for (uint32_t i = 0; i < sees->count && order->count < LOCKD_GUARD_PAIRS; i++) {
        struct lockd_guard_pair *pair = &order->pairs[order->count];
        const uint8_t *uuid = sees->device[i].uuid;

        if (memcmp(uuid, order->pairs[0].from, 16) == 0)
            continue;
        memcpy(pair->from, uuid, 16);
        memcpy(pair->to,
               memcmp(uuid, order->pairs[0].to, 16) == 0 ? order->pairs[0].from : uuid, 16);
        order->count++;
    }
}

void lockd_move_guard_go(struct lockd_move *move, int record)
{
    begin_guarded(move, record);
    move->pinned = lockd_move_pinned(move);
    move->order.word = LOCKD_GUARD_GO;
    order_guard(move, move->record);
}

void lockd_move_guard_adopt(struct lockd_move *move, int record, bool aside)
{
    begin_guarded(move, record);
    move->adopted = true;
    move->until = move->guarded_since;
    if (aside)
        lockd_move_hold(move, false);
    else
        lockd_move_claim_with_context(move, move->order.pairs[0].to, 0);
}

void lockd_move_guard_late(struct lockd_move *move)
{
    lockd_log(LOCKD_LOG_WARNING, "the guard that moves process %d (%s) takes long",
              (int)move->program->pid, move->program->name);
    move->moves->calls->remark(move->program->owner,
                               "it is being moved, and its guard takes long");
    lockd_move_hold(move, false);
}

bool lockd_move_guard_again(struct lockd_move *move, uint64_t now)
{
    move->until = now + RETRY_NS;
    return start_guard(move, LOCKD_GUARD_TAKE_UP) == 0;
}

/* The guard was killed. Before GO a guard has done nothing. */
static void take_loss(struct lockd_move *move, uint64_t now)
{
    const unsigned lost = ++move->guards_lost, times = lost > 2 ? lost - 2 : 0;
    const uint64_t pause = (uint64_t)RETRY_NS << (times < RETRY_DOUBLE ? times : RETRY_DOUBLE);

    if (move->guard >= 0)
        close(move->guard);
    move->guard = -1;
    if (move->stage != LOCKD_MOVE_GUARDED) {
        lockd_move_end_without(move, LOCKD_MOVE_NOT_IT, "its guard was killed");
        return;
    }
    lockd_log(LOCKD_LOG_ERROR, "the guard that moves process %d (%s) was killed",
              (int)move->program->pid, move->program->name);
    move->until = lost == 1 ? now : now + pause;
}

static void take_held(struct lockd_move *move, const char *text, bool away)
{
    const struct lockd_move_program *program = move->program;
    char remark[192];

    lockd_move_hold(move, away);
    lockd_log(LOCKD_LOG_ERROR,
              "process %d (%s) cannot be brought back: %s; trying again every second",
              (int)program->pid, program->name, text);
    snprintf(remark, sizeof remark, "it was to be moved and cannot be brought back: %.110s",
             text);
    move->moves->calls->remark(program->owner, remark);
    lockd_move_answer(
        move, -EBUSY,
        "process %d waits: %.90s. It is tried every second: make room on either GPU, or end it",
        (int)program->pid, text);
}

static void take_refusal(struct lockd_move *move, char word, const char *text)
{
    const int fd = word == LOCKD_GUARD_UNABLE ? call_service() : -1;
    char why[2 * LOCKD_GUARD_TEXT];

    /* why the guards of this daemon may not checkpoint, and how to enable them */
    snprintf(why, sizeof why, "%s%s", text,
             word == LOCKD_GUARD_UNABLE && fd < 0
                 ? "; this daemon may not checkpoint programs itself: `systemctl enable --now "
                   "gpushare-guard.socket` allows it (gpushare-lockd(8), MOVES)"
                 : "");
    if (fd >= 0)
        close(fd);
    lockd_move_end_without(move,
                           word == LOCKD_GUARD_UNABLE   ? LOCKD_MOVE_NOBODY
                           : word == LOCKD_GUARD_CANNOT ? LOCKD_MOVE_NOT_THERE
                                                        : LOCKD_MOVE_NOT_IT,
                           why);
}

/* The other device is full. What can leave it does, as for any program that needs room; the
 * program that is to come goes on meanwhile. */
static void take_lack(struct lockd_move *move, const char *text, uint64_t now)
{
    const uint8_t *to = move->order.pairs[0].to;
    char *why;
    const uint64_t lacking = strtoull(text, &why, 10);
    const enum sched_claimed claimed = sched_claimed(move->moves->sched, to);

    if (move->stage != LOCKD_MOVE_ASKING)
        return;
    if (!move->lacked)
        move->until = now + ROOM_NS;
    move->lacked = true;
    if (claimed == SCHED_CLAIM_NOTHING) {
        lockd_move_end_without(move, LOCKD_MOVE_NOT_THERE, why + strspn(why, " "));
        return;
    }
    if (claimed == SCHED_CLAIM_MET) { /* not enough yet, or memory that nobody has measured */
        move->claimed += lacking;
        lockd_move_claim(move, to, move->claimed);
    }
    move->again_at = now + LOOK_NS;
}

void lockd_move_guard_hear(struct lockd_move *move, uint64_t now)
{
    char word[LOCKD_GUARD_TEXT + 1] = "?the guard ended";
    const ssize_t size = recv(move->guard, word, LOCKD_GUARD_TEXT, MSG_DONTWAIT);

    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size > 0)
        word[size] = '\0';
    lockd_text_clean(word, sizeof word);
    switch (word[0]) {
    case LOCKD_GUARD_MAY:
        move->guard_may = true;
        move->lacked = false;
        if (move->stage == LOCKD_MOVE_ASKING && move->program_may)
            lockd_move_stop(move);
        break;
    case LOCKD_GUARD_FAILED:
    case LOCKD_GUARD_UNABLE:
    case LOCKD_GUARD_CANNOT:
        if (move->stage == LOCKD_MOVE_GUARDED && move->order.word == LOCKD_GUARD_TAKE_UP)
            break; /* no driver for a moment: this guard ends, and is replaced */
        take_refusal(move, word[0], word + 1);
        break;
    case LOCKD_GUARD_NO_ROOM:
        take_lack(move, word + 1, now);
        break;
    case LOCKD_GUARD_HELD:
    case LOCKD_GUARD_WAITS:
        take_held(move, word + 1, word[0] == LOCKD_GUARD_HELD);
        break;
    case LOCKD_GUARD_MOVED:
        lockd_move_end_moved(move);
        break;
    case LOCKD_GUARD_STAYED:
        lockd_move_end_without(move, LOCKD_MOVE_NOT_THERE, word + 1);
        break;
    default:
        take_loss(move, now);
    }
}
