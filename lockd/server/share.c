/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c: owns the opens that are not answered yet (struct lockd_shares). One thread.
 *
 * Invariants: each belongs to a connection on the list; `exporter` is another connection of the
 * same identity, or has ended. Every open is answered once: by the exporter, when no exporter is
 * left, or after WAIT_NS.
 */
#include "lockd/server/share.h"

#include "lockd/server/server.h"

#include <errno.h>
#include <string.h>

#define WAIT_NS 30000000000u
/* Programs of an earlier daemon reconnect within this time after the start. */
#define NEW_NS 5000000000u

/* --- answers --- */

static void forget_asking(struct lockd_shares *shares, unsigned i)
{
    shares->count--;
    memmove(&shares->asking[i], &shares->asking[i + 1],
            (shares->count - i) * sizeof shares->asking[0]);
}

static void refuse_open(struct lockd_connection *opener, uint32_t number, int code)
{
    struct gs_wire_share share = {.number = number, .code = code};

    lockd_wire_header(&share.header, GS_WIRE_SHARE);
    lockd_outbox_send(opener, &share, sizeof share);
}

/* Answers it, and forgets it. */
static void end_asking(struct lockd_server *server, unsigned i, int code)
{
    const struct lockd_asking asking = server->shares.asking[i];
    struct lockd_connection *opener = lockd_connection_find(server, asking.opener);

    forget_asking(&server->shares, i);
    if (opener != NULL)
        refuse_open(opener, asking.of_opener, code);
}

/* --- asking --- */

/* The next program that may have the memory: those before it said no. Two programs can have the
 * same process id, in nested pid namespaces. */
static struct lockd_connection *next_exporter(struct lockd_server *server,
                                              const struct lockd_asking *asking,
                                              struct lockd_connection *opener)
{
    struct lockd_connection *found = NULL;

    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        if (each->client != NULL && each != opener && each->hello.own_pid == asking->what.pid &&
            each->id > asking->exporter && (found == NULL || each->id < found->id) &&
            lockd_identity_same(&each->peer.identity, &opener->peer.identity))
            found = each;
    }
    return found;
}

/* Logs a request for memory of another user; a request for a program that has just ended is not
 * logged. */
static void say_refused(struct lockd_server *server, const struct lockd_asking *asking,
                        const struct lockd_connection *opener)
{
    lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
        if (each->client == NULL || each == opener ||
            (each->hello.own_pid != asking->what.pid && each->peer.pid != asking->what.pid) ||
            lockd_identity_same(&each->peer.identity, &opener->peer.identity))
            continue;
        lockd_user_say(
            opener->user, LOCKD_LOG_WARNING,
            "process %d (user %u%s%.12s) asked for memory of process %d, which belongs to "
            "another user or container: refused",
            (int)opener->peer.pid, (unsigned)opener->peer.uid,
            opener->peer.identity.contained ? ", container " : "",
            opener->peer.identity.container, (int)asking->what.pid);
        return;
    }
}

/* False: the open has been answered and forgotten. */
static bool ask_next(struct lockd_server *server, unsigned i)
{
    struct lockd_asking *asking = &server->shares.asking[i];
    struct lockd_connection *opener = lockd_connection_find(server, asking->opener), *exporter;

    exporter = opener != NULL ? next_exporter(server, asking, opener) : NULL;
    if (exporter == NULL) {
        if (opener != NULL && lockd_now() - server->started < NEW_NS)
            return true; /* the exporter may reconnect */
        if (opener != NULL && asking->exporter == 0)
            say_refused(server, asking, opener);
        end_asking(server, i, -ENOENT);
        return false;
    }
    asking->exporter = exporter->id;
    asking->asked = true;
    asking->number = asking->what.number = ++server->shares.last_number;
    lockd_closer_ask(exporter);
    lockd_outbox_send(exporter, &asking->what, sizeof asking->what);
    return true;
}

void lockd_share_came(struct lockd_server *server)
{
    for (unsigned i = 0; i < server->shares.count;)
        i += server->shares.asking[i].asked || ask_next(server, i);
}

void lockd_share_gone(struct lockd_connection *connection)
{
    struct lockd_shares *shares = &connection->server->shares;

    for (unsigned i = 0; i < shares->count;) {
        if (shares->asking[i].opener == connection->id) {
            forget_asking(shares, i);
            continue;
        }
        if (shares->asking[i].exporter == connection->id && shares->asking[i].asked)
            shares->asking[i].asked = false;
        i++;
    }
    lockd_share_came(connection->server);
}

void lockd_share_open(struct lockd_connection *connection, const struct gs_wire_open *open)
{
    struct lockd_shares *shares = &connection->server->shares;
    unsigned own = 0;

    for (unsigned i = 0; i < shares->count; i++)
        own += shares->asking[i].user == connection->user;
    if (shares->count == LOCKD_SHARES_MOST || own >= LOCKD_SHARES_OF_USER) {
        refuse_open(connection, open->number, -EAGAIN);
        return;
    }
    shares->asking[shares->count] = (struct lockd_asking){.opener = connection->id,
                                                          .at = lockd_now(),
                                                          .of_opener = open->number,
                                                          .user = connection->user,
                                                          .what = *open};
    ask_next(connection->server, shares->count++);
}

void lockd_share_answer(struct lockd_connection *connection, const struct gs_wire_share *share,
                        const struct gs_descriptors *with)
{
    struct lockd_server *server = connection->server;
    struct lockd_connection *opener;
    struct gs_wire_share passed = *share;
    unsigned i = 0;

    while (i < server->shares.count && (!server->shares.asking[i].asked ||
                                        server->shares.asking[i].exporter != connection->id ||
                                        server->shares.asking[i].number != share->number))
        i++;
    if (i == server->shares.count)
        return; /* the opener has gone, or no longer waits */
    if (share->code == -ENOENT) {
        server->shares.asking[i].asked = false;
        ask_next(server, i);
        return;
    }
    opener = lockd_connection_find(server, server->shares.asking[i].opener);
    passed.number = server->shares.asking[i].of_opener;
    if (share->code != 0 || opener == NULL ||
        with->count != share->count + (share->first == 0) ||
        !lockd_outbox_pass(opener, &passed, sizeof passed, with))
        end_asking(server, i, share->code != 0 ? share->code : -EAGAIN);
    else if (share->chunk_bytes == 0 ||
             (share->first + (uint64_t)share->count) * share->chunk_bytes >= share->bytes)
        forget_asking(&server->shares, i);
}

uint64_t lockd_share_tend(struct lockd_server *server, uint64_t now)
{
    struct lockd_shares *shares = &server->shares;
    const uint64_t grown = server->started + NEW_NS;

    while (shares->count != 0 && now - shares->asking[0].at >= WAIT_NS) {
        lockd_log(LOCKD_LOG_INFO,
                  "process %d did not send the memory that another program opens",
                  (int)shares->asking[0].what.pid);
        end_asking(server, 0, -ETIMEDOUT);
    }
    if (now >= grown)
        lockd_share_came(server);
    if (shares->count == 0)
        return LOCKD_NEVER;
    return now < grown ? grown : shares->asking[0].at + WAIT_NS;
}
