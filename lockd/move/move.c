/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c: programs that change devices, as the server sees it (move.h): the checks before a move,
 * the messages of programs, and time limits. State: struct lockd_moves. One thread, nothing blocks.
 *
 * Invariant: a program is in at most one move.
 */
#include "lockd/move/move.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/move/move_guard.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <string.h>

void lockd_move_init(struct lockd_moves *moves, int epoll, struct sched *sched,
                     const struct lockd_move_calls *calls, void *context)
{
    *moves = (struct lockd_moves){
        .epoll = epoll, .sched = sched, .calls = calls, .context = context};
}

/* --- the beginning --- */

struct used {
    const uint8_t *from;
    uint64_t gang_programs;
    bool found;
};

static void look_at_member(void *context, void *owner, const struct gs_wire_client *member)
{
    struct used *used = context;

    (void)owner;
    used->gang_programs = member->gang_programs > used->gang_programs ? member->gang_programs
                                                                      : used->gang_programs;
    used->found = used->found || memcmp(member->uuid, used->from, 16) == 0;
}

/* Checks what the daemon itself knows about the program. */
static int check_program(const struct lockd_moves *moves,
                         const struct lockd_move_program *program, const struct used *used,
                         struct gs_err *why)
{
    const char *refused = moves->calls->refuse(program->owner);

    if (refused != NULL)
        return gs_err_set(why, -EINVAL, "%s", refused);
    if (!used->found || lockd_sees_find(&program->sees, used->from) == NULL)
        return gs_err_set(why, -EINVAL, "it uses no GPU yet");
    if (used->gang_programs > 1)
        return gs_err_set(why, -EINVAL,
                          "it is in a gang with %llu programs, which have their turns together",
                          (unsigned long long)used->gang_programs);
    return 0;
}

/* Checks what the daemon itself knows about the target device. */
static int check_target(const struct lockd_move_program *program, const uint8_t from[16],
                        const uint8_t to[16], struct gs_err *why)
{
    const struct lockd_seen *here = lockd_sees_find(&program->sees, from);
    const struct lockd_seen *there = lockd_sees_find(&program->sees, to);

    if (there == NULL)
        return gs_err_set(
            why, -ENODEV,
            "it does not see that GPU (CUDA_VISIBLE_DEVICES when it was started, or "
            "the devices of its container)");
    if (strcmp(here->name, there->name) != 0 || here->total != there->total)
        return gs_err_set(why, -ENODEV, "that GPU is of another model (%s)", there->name);
    return 0;
}

int lockd_move_begin(struct lockd_moves *moves, struct lockd_move_program *program,
                     const uint8_t from[16], const uint8_t to[16], uint64_t asker,
                     enum lockd_move_end *end, struct gs_err *why)
{
    const struct lockd_track *track = lockd_track_find(program->tracks, from);
    struct used used = {.from = from};
    bool other = program->move != NULL;
    struct lockd_move *move;
    int code;

    *end = LOCKD_MOVE_LATER;
    lockd_each (struct lockd_move, each, &moves->list, link)
        other = other || !each->held;
    if (other)
        return gs_err_set(why, -EBUSY, "another move is under way");
    *end = LOCKD_MOVE_NOT_IT;
    sched_visit_client(program->client, look_at_member, &used, lockd_now());
    code = check_program(moves, program, &used, why);
    if (code != 0)
        return code;
    *end = LOCKD_MOVE_NOT_THERE;
    code = check_target(program, from, to, why);
    if (code != 0)
        return code;
    *end = LOCKD_MOVE_NOT_IT;
    move = lockd_identity_is_running(program->identity)
               ? lockd_move_new(moves, program, from, to)
               : NULL;
    if (move == NULL)
        return gs_err_set(why, -ESRCH, "it has ended");
    move->pinned = lockd_move_pinned(move);
    code = lockd_move_guard_ask(move, move->pinned);
    if (code != 0) {
        lockd_move_free(move);
        *end = LOCKD_MOVE_NOBODY;
        return gs_err_errno(why, code, "no guard can be started");
    }
    move->bytes = track != NULL ? track->demand : 0;
    move->asker = asker;
    lockd_move_tell(move, GS_MOVE_ASK, 0);
    return 0;
}

const uint8_t *lockd_move_source(const struct lockd_move_program *program, const uint8_t to[16],
                                 struct gs_err *why)
{
    const struct lockd_track *found = NULL;
    unsigned used = 0, named = 0;

    for (size_t i = 0; i < program->tracks->count; i++) {
        const struct lockd_track *track = &program->tracks->track[i];

        if (memcmp(track->uuid, to, sizeof track->uuid) == 0) {
            if (track->demand != 0 || program->tracks->count == 1) {
                gs_err_set(why, -EALREADY, "it uses that GPU already");
                return NULL;
            }
            continue;
        }
        named++;
        used += track->demand != 0;
        if (found == NULL || track->demand != 0)
            found = track;
    }
    if (found != NULL && (used == 1 || named == 1))
        return found->uuid;
    gs_err_set(why, -EINVAL, "%s",
               found != NULL ? "it uses several GPUs" : "it uses no GPU yet");
    return NULL;
}

/* --- messages of the program --- */

/* A program reconnects in the middle of a move whose daemon was killed. */
static const char *adopt_move(struct lockd_moves *moves, struct lockd_move_program *program,
                              const struct gs_wire_move *message, struct gs_descriptors *with)
{
    struct gs_wire_move ask = {.number = message->number, .step = GS_MOVE_LEFT};
    struct lockd_move *move;

    if (program->taken_up || program->move != NULL ||
        !lockd_identity_is_running(program->identity))
        return "it says more than once that it is being moved";
    if (with->count == 0) { /* from now on the program may send one descriptor: the record */
        lockd_wire_header(&ask.header, GS_WIRE_MOVE);
        memcpy(ask.from, message->from, sizeof ask.from);
        memcpy(ask.to, message->to, sizeof ask.to);
        moves->calls->tell(program->owner, &ask);
        return NULL;
    }
    program->taken_up = true;
    move = lockd_move_new(moves, program, message->from, message->to);
    if (move == NULL)
        return NULL;
    move->number = message->number;
    move->pinned = message->pinned;
    lockd_move_guard_adopt(move, with->fd[--with->count],
                           moves->calls->adopted(program->owner));
    lockd_log(LOCKD_LOG_INFO, "process %d (%s) was being moved when its daemon ended",
              (int)program->pid, program->name);
    return NULL;
}

/* Another process may hold the connection of a program that has ended, and a guard goes by the number. */
static bool has_ended(struct lockd_move *move)
{
    if (lockd_identity_is_running(move->program->identity))
        return false;
    lockd_move_end_without(move, LOCKD_MOVE_NOT_IT, "it has ended");
    return true;
}

const char *lockd_move_take(struct lockd_moves *moves, struct lockd_move_program *program,
                            const struct gs_wire_move *message, struct gs_descriptors *with)
{
    struct lockd_move *move = program->move;

    if (message->step == GS_MOVE_LEFT)
        return adopt_move(moves, program, message, with);
    if (move == NULL || message->number != move->number || move->stage == LOCKD_MOVE_GUARDED)
        return NULL; /* the move was abandoned meanwhile */
    if (message->code != 0) {
        lockd_move_end_without(
            move, message->code == -ENODEV ? LOCKD_MOVE_NOT_THERE : LOCKD_MOVE_NOT_IT,
            message->text);
    } else if (message->step == GS_MOVE_ASK && move->stage == LOCKD_MOVE_ASKING) {
        move->program_may = true;
        if (move->guard_may)
            lockd_move_stop(move);
    } else if (message->step == GS_MOVE_STOP && move->stage == LOCKD_MOVE_STOPPING &&
               with->count == 1) {
        if (!has_ended(move))
            lockd_move_guard_go(move, with->fd[--with->count]);
    } else {
        lockd_move_end_without(move, LOCKD_MOVE_NOT_IT, "it does not keep to the protocol");
    }
    return NULL;
}

uint64_t lockd_move_took(const struct lockd_move_program *program, uint64_t now)
{
    return program->move != NULL && !program->move->held ? now - program->move->began : 0;
}

void lockd_move_gone(struct lockd_move_program *program)
{
    if (program->move == NULL)
        return;
    lockd_move_answer(program->move, -ESRCH, "process %d has ended, or lost its daemon",
                      (int)program->pid);
    lockd_move_free(program->move);
}

/* --- the guard, and time --- */

bool lockd_move_event(struct lockd_moves *moves, const void *tag)
{
    lockd_each (struct lockd_move, move, &moves->list, link) {
        if (move != tag)
            continue;
        if (!moves->calls->is_gone(move->program->owner))
            lockd_move_guard_hear(move, lockd_now());
        return true;
    }
    return false;
}

/* Does what is due by now. False: the move waits for nothing more. */
static bool tend_move(struct lockd_move *move, uint64_t now)
{
    if (move->again_at != 0 && now >= move->again_at)
        lockd_move_guard_look(move);
    if (now < move->until)
        return true;
    if (move->stage == LOCKD_MOVE_GUARDED)
        return !has_ended(move) && !lockd_move_guard_again(move, now);
    if (move->lacked) {
        lockd_move_end_without(move, LOCKD_MOVE_NOT_THERE,
                               "there is no room on that GPU, and no other program made any");
        return false;
    }
    lockd_move_end_without(move, LOCKD_MOVE_NOT_IT,
                           move->stage == LOCKD_MOVE_ASKING
                               ? "it does not answer"
                               : "it does not stop, or keeps memory that cannot leave the GPU");
    return false;
}

uint64_t lockd_move_tend(struct lockd_moves *moves, uint64_t now)
{
    uint64_t next = LOCKD_NEVER;

    lockd_each (struct lockd_move, move, &moves->list, link) {
        if (moves->calls->is_gone(move->program->owner))
            continue;
        if (now >= move->late_at)
            lockd_move_guard_late(move);
        next = move->late_at < next ? move->late_at : next;
        if (move->stage == LOCKD_MOVE_GUARDED && move->guard >= 0)
            continue;
        if (!tend_move(move, now))
            continue;
        next = move->until < next ? move->until : next;
        if (move->again_at != 0 && move->again_at < next)
            next = move->again_at;
    }
    return next;
}
