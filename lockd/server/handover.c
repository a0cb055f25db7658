/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.c: passes descriptors of device memory on. State: the kept descriptors (struct
 * lockd_handovers), each for KEPT_NS at most. The scheduler does not know them: it sees memory
 * leave one program, and gives the room to another. One thread.
 *
 * Invariant: on each device the kept memory is at most the memory that left programs, as the
 * scheduler counts it, and was not given to others since. Kept memory counts as free, so a program
 * that claims to hand over memory that it never had must not make the device larger.
 */
#include "lockd/server/handover.h"

#include "lockd/server/server.h"

#include <string.h>

#define KEPT_NS                                                                                \
    50000000u /* a program that moves memory reads several targets in this time ... */
#define LACKED_NS                                                                              \
    1000000000u /* ... but one that hashes much may be silent for longer, and lack it */

/* Pieces of one user that go together. */
struct lot {
    struct lockd_server *server;
    uid_t uid;
    struct gs_descriptors with;
};

/* Closes the lot, which releases its memory unless another process has it as well. */
static void close_lot(struct lot *lot)
{
    struct lockd_user *user =
        lot->with.count != 0 ? lockd_user_get(&lot->server->users, lot->uid, "") : NULL;

    if (user == NULL) {
        gs_descriptors_close(&lot->with); /* without memory for an account */
        return;
    }
    lockd_closer_take(lot->server, user, &lot->with);
    lockd_user_put(user);
}

/* Moves the piece from the kept pieces to the lot. */
static void drop_piece(struct lot *lot, unsigned i)
{
    struct lockd_handovers *kept = &lot->server->handovers;

    if (lot->uid != kept->piece[i].uid || lot->with.count == GS_PACKET_FDS_MAX)
        close_lot(lot);
    sched_releasing(lot->server->scheduler, kept->piece[i].uuid, kept->piece[i].bytes,
                    lockd_now());
    lot->uid = kept->piece[i].uid;
    lot->with.fd[lot->with.count++] = kept->piece[i].fd;
    kept->count--;
    memmove(&kept->piece[i], &kept->piece[i + 1], (kept->count - i) * sizeof kept->piece[0]);
}

static bool is_on_device(const struct lockd_handover *piece, const uint8_t *uuid)
{
    return memcmp(piece->uuid, uuid, sizeof piece->uuid) == 0;
}

/* Drops as many of the bytes that are kept of the device; from: the connection that they left, 0:
 * any. */
static void drop_bytes(struct lockd_server *server, uint64_t from, const uint8_t *uuid,
                       uint64_t bytes)
{
    struct lockd_handovers *kept = &server->handovers;
    struct lot lot = {.server = server, .with.count = 0};

    for (unsigned i = 0; i < kept->count && bytes != 0;) {
        if ((from != 0 && kept->piece[i].from != from) ||
            !is_on_device(&kept->piece[i], uuid)) {
            i++;
            continue;
        }
        bytes -= lockd_lesser(bytes, kept->piece[i].bytes);
        drop_piece(&lot, i);
    }
    close_lot(&lot);
}

/* left: bytes that have become non-resident since the last report. */
static void keep_pieces(struct lockd_connection *connection, const struct gs_wire_state *state,
                        struct gs_descriptors *descriptors, uint64_t left)
{
    struct lockd_handovers *kept = &connection->server->handovers;
    unsigned own = 0, taken = 0; /* own: kept for this user */

    for (unsigned i = 0; i < kept->count; i++)
        own += kept->piece[i].uid == connection->peer.uid;
    for (; taken < descriptors->count && state->given_bytes[taken] != 0 &&
           state->given_bytes[taken] <= left && own < LOCKD_HANDOVERS_OF_USER &&
           kept->count < LOCKD_HANDOVERS_MOST;
         left -= state->given_bytes[taken++], own++) {
        struct lockd_handover *piece = &kept->piece[kept->count++];

        *piece = (struct lockd_handover){.from = connection->id,
                                         .bytes = state->given_bytes[taken],
                                         .at = lockd_now(),
                                         .uid = connection->peer.uid,
                                         .network = state->given_network >> taken & 1,
                                         .fd = descriptors->fd[taken]};
        memcpy(piece->uuid, state->uuid, sizeof piece->uuid);
    }
    descriptors->count -= taken;
    memmove(descriptors->fd, descriptors->fd + taken,
            descriptors->count * sizeof descriptors->fd[0]);
}

void lockd_handover_offer(struct lockd_connection *connection, struct gs_wire_state *state,
                          struct gs_descriptors *descriptors)
{
    const struct lockd_server *server = connection->server;
    const uint64_t before = sched_client_resident(connection->client, state->uuid);

    if (state->resident > before)
        drop_bytes(connection->server, connection->id, state->uuid, state->resident - before);
    else if (server->config.hands_over && descriptors->count == state->given &&
             lockd_peer_is_beside(&connection->peer))
        keep_pieces(connection, state, descriptors, before - state->resident);
    for (unsigned i = 0; i < server->handovers.count && state->device_free != UINT64_MAX; i++)
        if (is_on_device(&server->handovers.piece[i], state->uuid))
            state->device_free = lockd_lesser(
                state->device_total, state->device_free + server->handovers.piece[i].bytes);
}

/* --- the next program --- */

/* Takes out the pieces that go with the target, in the order in which they came, as many as fit
 * into the message and the rise. Returns the rest of the rise. */
static uint64_t choose_pieces(struct lockd_connection *to, struct gs_wire_target *target,
                              uint64_t rise, struct gs_descriptors *with)
{
    struct lockd_handovers *kept = &to->server->handovers;
    unsigned left = 0;

    target->handed_network = 0;
    memset(target->handed_bytes, 0, sizeof target->handed_bytes);
    for (unsigned i = 0; i < kept->count; i++) {
        const struct lockd_handover *piece = &kept->piece[i];

        if (with->count < GS_GIVEN_MOST && piece->bytes <= rise && piece->from != to->id &&
            piece->uid == to->peer.uid && (target->flags & GS_TARGET_RUN) != 0 &&
            is_on_device(piece, target->uuid) && lockd_peer_is_beside(&to->peer)) {
            target->handed_bytes[with->count] = piece->bytes;
            target->handed_network |= (uint32_t)piece->network << with->count;
            with->fd[with->count++] = piece->fd;
            rise -= piece->bytes;
        } else {
            kept->piece[left++] = *piece;
        }
    }
    kept->count = left;
    target->handed = with->count;
    return rise;
}

/* Sends it with the pieces, or without them if they cannot be passed on. */
static void pass_target(struct lockd_connection *connection, struct gs_wire_target *target,
                        struct gs_descriptors *with)
{
    const bool passed =
        with->count != 0 && lockd_outbox_pass(connection, target, sizeof *target, with);

    lockd_closer_take(connection->server, connection->user, with);
    if (passed)
        return;
    target->handed = target->handed_network = 0;
    memset(target->handed_bytes, 0, sizeof target->handed_bytes);
    lockd_outbox_send(connection, target, sizeof *target);
}

/* Sends a target, with as much of the kept memory as fits into the rise of its budget: where that is
 * more than a message can have, messages before it raise the budget by what they bring. */
static void send_target(struct lockd_connection *connection, struct gs_wire_target *target,
                        uint64_t rise)
{
    struct lockd_server *server = connection->server;
    const uint64_t budget = target->budget;
    bool more;

    if (server->config.hands_over && connection->user->programs > 1 &&
        lockd_peer_is_beside(&connection->peer))
        target->flags |= GS_TARGET_GIVE;
    do {
        struct gs_descriptors with = {.count = 0};

        rise = choose_pieces(connection, target, rise, &with);
        more = with.count == GS_GIVEN_MOST && rise != 0;
        if (!more)
            drop_bytes(server, 0, target->uuid, rise); /* the program has got their room */
        target->budget = more ? budget - rise : budget;
        pass_target(connection, target, &with);
    } while (more);
}

/* --- contents in common --- */

static void pass_offer(struct lockd_connection *connection, const struct gs_wire_copy *copy,
                       const struct gs_descriptors *with)
{
    struct lockd_handovers *kept = &connection->server->handovers;
    struct lockd_user *user = connection->user;
    struct gs_wire_copy passed = *copy;
    const uint64_t now = lockd_now();

    if (lockd_bucket_over(user->copies, now))
        return;
    lockd_bucket_take(&user->copies, connection->server->config.set.max_messages,
                      user->programs, now);
    /* numbers are also above those of a daemon before this one */
    kept->last_copy = kept->last_copy < now ? now : kept->last_copy + 1;
    user->copy[user->count_copies++ % LOCKD_COPIES_MOST] =
        (struct lockd_copy){kept->last_copy, connection->id};
    passed.number = kept->last_copy;
    lockd_each (struct lockd_connection, each, &connection->server->connections.all, link) {
        if (each->client == NULL || !lockd_peer_is_beside(&each->peer) ||
            !lockd_identity_same(&each->peer.identity, &connection->peer.identity))
            continue;
        passed.own = each == connection;
        lockd_outbox_pass(each, &passed, sizeof passed, with); /* it may miss this offer */
    }
}

/* The program that offered it learns that somebody has taken it; once is enough. */
static void pass_word(const struct lockd_connection *connection,
                      const struct gs_wire_copy *copy)
{
    const struct gs_descriptors none = {.count = 0};
    struct lockd_copy *offers = connection->user->copy;
    struct lockd_connection *from;
    struct gs_wire_copy passed = *copy;
    unsigned i = 0;

    while (i < LOCKD_COPIES_MOST && offers[i].number != copy->number)
        i++;
    from = i < LOCKD_COPIES_MOST ? lockd_connection_find(connection->server, offers[i].from)
                                 : NULL;
    if (from == NULL || !lockd_identity_same(&from->peer.identity, &connection->peer.identity))
        return;
    passed.own = 0;
    lockd_outbox_pass(from, &passed, sizeof passed, &none);
    offers[i].number = 0;
}

void lockd_handover_copy(struct lockd_connection *connection, const struct gs_wire_copy *copy,
                         const struct gs_descriptors *with)
{
    if (!connection->server->config.hands_over || with->count != (copy->number == 0) ||
        !lockd_peer_is_beside(&connection->peer))
        return;
    if (copy->number == 0)
        pass_offer(connection, copy, with);
    else
        pass_word(connection, copy);
}

/* --- time --- */

/* Another program that may get the piece has not got all of its memory. */
static bool is_lacked(struct lockd_server *server, const struct lockd_handover *piece)
{
    lockd_each (struct lockd_connection, each, &server->connections.all, link)
        if (each->client != NULL && each->id != piece->from && each->peer.uid == piece->uid &&
            lockd_peer_is_beside(&each->peer) &&
            sched_client_demand(each->client, piece->uuid) >
                sched_client_resident(each->client, piece->uuid))
            return true;
    return false;
}

uint64_t lockd_handover_tend(struct lockd_server *server, uint64_t now)
{
    const struct lockd_handovers *kept = &server->handovers;
    struct lot lot = {.server = server, .with.count = 0};

    while (kept->count != 0 &&
           (now - kept->piece[0].at >= LACKED_NS ||
            (now - kept->piece[0].at >= KEPT_NS && !is_lacked(server, &kept->piece[0]))))
        drop_piece(&lot, 0);
    close_lot(&lot);
    if (kept->count == 0)
        return LOCKD_NEVER;
    return kept->piece[0].at + (now - kept->piece[0].at < KEPT_NS ? KEPT_NS : LACKED_NS);
}

void lockd_handover_deinit(struct lockd_server *server)
{
    struct lot lot = {.server = server, .with.count = 0};

    while (server->handovers.count != 0)
        drop_piece(&lot, server->handovers.count - 1);
    close_lot(&lot);
}

void lockd_handover_changed(struct lockd_server *server, bool before)
{
    if (!server->config.hands_over)
        lockd_handover_deinit(server);
    if (before && !server->config.hands_over)
        lockd_log(LOCKD_LOG_INFO,
                  "memory is no longer handed over; programs that hold such memory cannot "
                  "be checkpointed until it has left the device or they end");
    else if (!before && server->config.hands_over)
        lockd_log(LOCKD_LOG_INFO, "memory is handed over from now on");
}

/* --- all targets --- */

void lockd_targets_send(struct lockd_server *server)
{
    struct sched_send send;

    while (sched_next_send(server->scheduler, &send)) {
        const struct lockd_connection *owner = send.owner;

        lockd_wire_header(&send.target.header, GS_WIRE_TARGET);
        send.target.overcommit =
            lockd_overcommits_of(&server->config, owner->peer.uid, owner->peer.identity.units);
        lockd_trace_target(send.owner, &send.target);
        send_target(send.owner, &send.target, send.rise);
    }
    lockd_remarks_programs(server);
}
