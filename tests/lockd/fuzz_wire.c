/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_wire.c: libFuzzer target: several programs and gpusharectls say any bytes to the whole
 * daemon but its event loop: connection.c, outbox.c, control.c, trace.c, scheduler.c.
 *
 * The clock is the input's. The input is a sequence of steps: one byte says who (three bits)
 * and what (five bits). A step is any bytes as a message, a message of a right type and length
 * with any contents, or a likely report, so that turns are really taken; connections come, go,
 * and read what they are sent or do not. At the end a well-behaved program must be answered.
 */
#include "lockd/base/log.h"
#include "lockd/base/clock.h"
#include "lockd/server/outbox.h"
#include "lockd/server/server.h"
#include "lockd/server/handover.h"
#include "lockd/server/users.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 6
#define MS      1000000ull
#define MIB     (1ull << 20)
#define CARD    (1ull << 30)
#define STEPS   400

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct peer {
    struct lockd_connection *connection; /* NULL: not connected */
    int fd;                              /* its end */
    uint32_t seq[2];                     /* newest target, of each of two devices */
    uint64_t resident[2], demand[2], budget[2];
    uint32_t asked; /* the number of the last open that it was asked */
};

struct fuzz {
    struct lockd_server server;
    struct peer peers[CLIENTS];
    const uint8_t *data;
    size_t left;
};

static uint64_t clock_ns;

uint64_t lockd_now(void)
{
    return clock_ns;
}

uint64_t lockd_now_real(void)
{
    return clock_ns;
}

static void require_true(int condition)
{
    if (!condition)
        abort();
}

static unsigned take_byte(struct fuzz *fuzz)
{
    if (fuzz->left == 0)
        return 0;
    fuzz->left--;
    return *fuzz->data++;
}

static void fill_bytes(struct fuzz *fuzz, void *to, size_t size)
{
    const size_t some = size < fuzz->left ? size : fuzz->left;

    memset(to, 0, size);
    memcpy(to, fuzz->data, some);
    fuzz->data += some;
    fuzz->left -= some;
}

static void join_peer(struct fuzz *fuzz, struct peer *peer, uid_t uid)
{
    struct lockd_user *user = lockd_user_get(&fuzz->server.users, uid, "");
    struct lockd_identity identity;
    int ends[2];

    *peer = (struct peer){.fd = -1};
    require_true(user != NULL &&
                 socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
                     0);
    require_true(lockd_identity_read(ends[0], &identity) == 0);
    peer->connection =
        lockd_connection_new(&fuzz->server, ends[0], user, &identity, uid == 3 ? 0 : getpid());
    require_true(peer->connection != NULL);
    peer->connection->peer.controls = uid == 0;
    peer->fd = ends[1];
}

static void settle_daemon(struct fuzz *fuzz)
{
    lockd_targets_send(&fuzz->server);
    for (int i = 0; i < CLIENTS; i++) {
        struct peer *peer = &fuzz->peers[i];

        if (peer->connection != NULL && peer->connection->dead) {
            close(peer->fd);
            peer->connection = NULL;
        }
    }
    lockd_server_tend(&fuzz->server);
    for (int i = 0; i < CLIENTS; i++) { /* tending may end some as well */
        struct peer *peer = &fuzz->peers[i];
        bool there = false;

        lockd_each (const struct lockd_connection, each, &fuzz->server.connections.all, link)
            there |= each == peer->connection;
        if (peer->connection != NULL && !there) {
            close(peer->fd);
            peer->connection = NULL;
        }
    }
}

static void hear_peer(struct peer *peer)
{
    struct gs_descriptors with;
    union lockd_message message;
    struct gs_err err = {0};
    ssize_t got;

    while ((got = gs_packet_receive(peer->fd, &message, sizeof message, GS_PACKET_FDS, &with)) >
           0) {
        require_true(with.count ==
                     (message.header.type == GS_WIRE_TARGET ? message.target.handed
                      : message.header.type == GS_WIRE_SHARE && message.share.code == 0
                          ? message.share.count + (message.share.first == 0)
                      : message.header.type == GS_WIRE_COPY
                          ? message.copy.own != 0 || with.count
                          : 0));
        if (message.header.type == GS_WIRE_OPEN)
            peer->asked = message.open.number;
        gs_descriptors_close(&with);
        require_true(lockd_wire_check(&message, (size_t)got, &err) ==
                     0); /* we send only good ones */
        if (message.header.type == GS_WIRE_TARGET) {
            peer->seq[message.target.uuid[0] & 1] = message.target.seq;
            peer->budget[message.target.uuid[0] & 1] = message.target.budget;
        }
    }
    if (!peer->connection->dead)
        lockd_outbox_drain(peer->connection);
}

/* With descriptors, as a program sends them that gives memory away: how many `handed` says. */
static void say_message(struct peer *peer, union lockd_message *message, size_t size,
                        unsigned handed)
{
    struct gs_descriptors with = {.count = 0};

    for (unsigned i = 0; i < handed % 32 && i < GS_PACKET_FDS; i++) {
        with.fd[i] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
        require_true(with.fd[i] >= 0);
        with.count = i + 1;
    }
    if (message->header.type == GS_WIRE_STATE && (handed & 32) == 0) {
        message->state.given = with.count;
        for (unsigned i = 0; i < GS_GIVEN_MOST; i++)
            message->state.given_bytes[i] = i < with.count ? 4 * MIB : 0;
    }
    lockd_connection_take(peer->connection, message, size, &with);
    require_true(with.count == 0);
}

/* A report as an honest program might make it: echoes what it heard, holds what it may. */
static void say_likely(struct fuzz *fuzz, struct peer *peer)
{
    union lockd_message message = {0};
    struct gs_wire_state *state = &message.state;
    const unsigned device = take_byte(fuzz) & 1, what = take_byte(fuzz);

    lockd_wire_header(&state->header, GS_WIRE_STATE);
    state->uuid[0] = (uint8_t)device;
    state->target_seq = peer->seq[device];
    state->flags = what & 0x3f;
    state->device_total = CARD;
    state->device_free = (what & 0x40) != 0 ? take_byte(fuzz) * (4 * MIB) : UINT64_MAX;
    if ((what & 0x80) != 0)
        peer->demand[device] = take_byte(fuzz) * (8 * MIB);
    peer->resident[device] = peer->demand[device] < peer->budget[device] ? peer->demand[device]
                                                                         : peer->budget[device];
    state->demand = peer->demand[device];
    state->resident = peer->resident[device];
    state->short_bytes = (what & GS_STATE_SHORT) != 0 ? take_byte(fuzz) * MIB : 0;
    state->switch_ns = (what & 3) * (50 * MS);
    state->host_used = peer->demand[device] - peer->resident[device];
    state->host_wanted = state->host_used + (what & 4) * MIB;
    say_message(peer, &message, sizeof *state, (what & 0x80) != 0 ? take_byte(fuzz) : 0);
}

/* Asks for memory of a program that may be there, or answers the last such question. */
static void say_sharing(struct fuzz *fuzz, struct peer *peer)
{
    union lockd_message message = {0};
    const unsigned what = take_byte(fuzz);

    if ((what & 1) != 0) {
        lockd_wire_header(&message.header, GS_WIRE_OPEN);
        message.open.pid = (int32_t)(what >> 6);
        message.open.number = take_byte(fuzz);
        say_message(peer, &message, sizeof message.open, 0);
        return;
    }
    lockd_wire_header(&message.header, GS_WIRE_SHARE);
    message.share.number = peer->asked;
    message.share.code = (what & 2) != 0 ? -(int32_t)(what >> 2) : 0;
    message.share.chunk_bytes = 2 * MIB;
    message.share.bytes = message.share.size = ((uint64_t)(what >> 4) + 1) * 2 * MIB;
    message.share.first = (what >> 2) & 3;
    message.share.count = message.share.code == 0 ? (what >> 4) : 0;
    say_message(peer, &message, sizeof message.share,
                message.share.count + (message.share.first == 0 && (what & 8) == 0));
}

static void say_typed(struct fuzz *fuzz, struct peer *peer, unsigned type)
{
    union lockd_message message;
    const size_t size = lockd_wire_size(type);

    if (size == 0)
        return;
    memset(&message, 0, sizeof message);
    fill_bytes(fuzz, (char *)&message + sizeof message.header, size - sizeof message.header);
    lockd_wire_header(&message.header, (enum gs_wire_type)type);
    say_message(peer, &message, size, take_byte(fuzz));
}

static void say_anything(struct fuzz *fuzz, struct peer *peer)
{
    union lockd_message message;
    const size_t size = take_byte(fuzz) + (take_byte(fuzz) & 1) * 256u;

    fill_bytes(fuzz, &message, sizeof message);
    say_message(peer, &message, size, take_byte(fuzz));
}

static void step_input(struct fuzz *fuzz)
{
    static const unsigned types[] = {GS_WIRE_HELLO,  GS_WIRE_STATE,   GS_WIRE_NOTE,
                                     GS_WIRE_STATUS, GS_WIRE_CONTROL, GS_WIRE_TRACE};
    const unsigned op = take_byte(fuzz), what = op & 31;
    struct peer *peer = &fuzz->peers[(op >> 5) % CLIENTS];

    if (peer->connection == NULL)
        join_peer(fuzz, peer, (op >> 5) % 4); /* some are of one user */
    else if (what == 0)
        clock_ns += (uint64_t)take_byte(fuzz) * (take_byte(fuzz) + 1) * MS;
    else if (what == 1)
        lockd_connection_kill(peer->connection, NULL);
    else if (what < 6)
        hear_peer(peer);
    else if (what < 12)
        say_typed(fuzz, peer, types[what - 6]);
    else if (what == 12)
        say_anything(fuzz, peer);
    else if (what == 13)
        say_typed(fuzz, peer, take_byte(fuzz));
    else if (what == 14)
        say_typed(fuzz, peer, take_byte(fuzz) % 2 == 0 ? GS_WIRE_GET : GS_WIRE_ACCOUNT);
    else if (what >= 15 && what < 19)
        say_sharing(fuzz, peer);
    else
        say_likely(fuzz, peer);
    clock_ns += MS;
    settle_daemon(fuzz);
}

/* Whatever happened: a program that comes now and says what is right gets a turn. Others may
 * ask it for memory meanwhile. */
static void check_served(struct fuzz *fuzz)
{
    union lockd_message message = {0};
    struct peer peer;

    join_peer(fuzz, &peer, 4242);
    lockd_wire_header(&message.header, GS_WIRE_HELLO);
    say_message(&peer, &message, sizeof message.hello, 0);
    memset(&message, 0, sizeof message);
    lockd_wire_header(&message.header, GS_WIRE_STATE);
    message.state.uuid[15] = 77; /* a device of its own */
    message.state.device_total = CARD;
    message.state.device_free = UINT64_MAX;
    message.state.demand = 64 * MIB;
    message.state.flags = GS_STATE_WANT;
    say_message(&peer, &message, sizeof message.state, 0);
    clock_ns += 500 * MS; /* a daemon just started waits for others */
    settle_daemon(fuzz);
    do
        require_true(recv(peer.fd, &message, sizeof message, MSG_DONTWAIT) > 0);
    while (message.header.type == GS_WIRE_OPEN);
    require_true(message.header.type == GS_WIRE_TARGET &&
                 (message.target.flags & GS_TARGET_RUN) != 0);
    close(peer.fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz fuzz = {.data = data, .left = size};
    struct lockd_config config;
    struct gs_err err = {0};

    const int lowest = dup(STDERR_FILENO);
    int listener;

    close(lowest);
    listener = eventfd(0, EFD_CLOEXEC);
    lockd_log_open(LOCKD_LOG_ERROR);
    lockd_config_default(&config);
    clock_ns = 1000000 * MS;
    if (take_byte(&fuzz) % 4 == 0)
        config.set.max_memory = CARD / 2;
    config.hands_over = take_byte(&fuzz) % 4 != 0;
    require_true(lockd_server_init(&fuzz.server, &config, &listener, 1, (gid_t)-1, &err) == 0);
    for (int i = 0; i < STEPS && fuzz.left != 0; i++)
        step_input(&fuzz);
    check_served(&fuzz);
    for (int i = 0; i < CLIENTS; i++) {
        if (fuzz.peers[i].connection != NULL)
            close(fuzz.peers[i].fd);
    }
    lockd_server_deinit(&fuzz.server);
    require_true(dup(STDERR_FILENO) == lowest && close(lowest) == 0); /* nothing is left open */
    return 0;
}
