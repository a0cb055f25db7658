/* SPDX-License-Identifier: Apache-2.0
 *
 * move_state.c: owns struct lockd_move, from the beginning of a move to its end (move_state.h). One
 * thread.
 *
 * Invariants: a move is in moves->list and is its program's `move`, or it is freed. The program is
 * paused from STOP until it is told that the move is over.
 */
#include "lockd/move/move_state.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/protocol/names.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void lockd_move_claim(struct lockd_move *move, const uint8_t uuid[16], uint64_t bytes)
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

void lockd_move_claim_with_context(struct lockd_move *move, const uint8_t uuid[16],
                                   uint64_t bytes)
{
    if (lockd_sees_find(&move->program->sees, uuid) != NULL)
        lockd_move_claim(move, uuid,
                         bytes + sched_device_total(move->moves->sched, uuid) / CONTEXT_PART);
}

void lockd_move_hold(struct lockd_move *move, bool away)
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

void lockd_move_end_moved(struct lockd_move *move)
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
