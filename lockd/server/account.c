/* SPDX-License-Identifier: Apache-2.0
 *
 * account.c: adds the figures of a program that ends to the account of its group, so that a batch
 * system can ask for them after the step, however its programs ended. The memory is fixed: a new
 * account takes the place of the one that has changed least recently. A user with a quarter of
 * the slots replaces accounts of its own, so that no user can push out the accounts of others.
 */
#include "lockd/server/account.h"

#include "lockd/protocol/wire_check.h"
#include "lockd/server/clock.h"
#include "lockd/server/outbox.h"
#include "lockd/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OF_ONE_USER (LOCKD_ACCOUNTS / 4)

/* --- adding up --- */

static void add_member(void *context, const struct gs_wire_device *device, void *owner,
                       const struct gs_wire_client *client)
{
    struct gs_wire_account *sum = context;

    (void)device;
    (void)owner;
    sum->moved_out += client->moved_out;
    sum->moved_in += client->moved_in;
    sum->gpu_ns += client->gpu_ns;
    sum->wait_ns += client->wait_ns;
    if (client->wait_longest_ns > sum->wait_longest_ns)
        sum->wait_longest_ns = client->wait_longest_ns;
}

static void add_program(struct gs_wire_account *sum, const struct sched_client *client)
{
    sum->programs++;
    sched_visit_client(client, add_member, sum, lockd_now());
}

/* --- the accounts --- */

static struct lockd_account *find_account(struct lockd_accounts *accounts, uid_t uid,
                                          const char *group)
{
    for (int i = 0; i < LOCKD_ACCOUNTS; i++) {
        struct lockd_account *slot = &accounts->slot[i];

        if (slot->at != 0 && slot->uid == uid && strcmp(slot->sum.group, group) == 0)
            return slot;
    }
    return NULL;
}

/* The slot for another one of that user. */
static struct lockd_account *find_oldest(struct lockd_accounts *accounts, uid_t uid)
{
    struct lockd_account *oldest = &accounts->slot[0], *own = NULL;
    int count = 0;

    for (int i = 0; i < LOCKD_ACCOUNTS; i++) {
        struct lockd_account *slot = &accounts->slot[i];

        if (slot->at < oldest->at)
            oldest = slot;
        if (slot->at == 0 || slot->uid != uid)
            continue;
        count++;
        if (own == NULL || slot->at < own->at)
            own = slot;
    }
    return count >= OF_ONE_USER ? own : oldest;
}

void lockd_account_gone(const struct lockd_connection *connection,
                        const struct sched_client *client)
{
    struct lockd_accounts *accounts = &connection->server->accounts;
    struct lockd_account *account;

    if (connection->group[0] == '\0')
        return;
    account = find_account(accounts, connection->uid, connection->group);
    if (account == NULL) {
        account = find_oldest(accounts, connection->uid);
        *account = (struct lockd_account){.uid = connection->uid};
        memcpy(account->sum.group, connection->group, sizeof account->sum.group);
    }
    account->at = lockd_now();
    add_program(&account->sum, client);
}

/* --- the answer --- */

static void add_connected(struct gs_wire_account *sum, const struct lockd_connection *asker)
{
    lockd_list_each (at, &asker->server->connections.all) {
        const struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        if (each->client == NULL || each->uid != asker->uid ||
            strcmp(each->group, sum->group) != 0)
            continue;
        sum->connected++;
        add_program(sum, each->client);
    }
}

void lockd_account_answer(struct lockd_connection *connection,
                          const struct gs_wire_account *asked)
{
    struct lockd_server *server = connection->server;
    const struct lockd_account *ended =
        find_account(&server->accounts, connection->uid, asked->group);
    struct gs_wire_account sum = {0};
    struct gs_wire_end end = {.count = 1};

    memcpy(sum.group, asked->group, sizeof sum.group);
    sum = ended != NULL ? ended->sum : sum;
    add_connected(&sum, connection);
    lockd_wire_header(&sum.header, GS_WIRE_ACCOUNT);
    lockd_wire_header(&end.header, GS_WIRE_END);
    if (sum.programs == 0) {
        end.code = -ESRCH;
        end.count = 0;
        snprintf(end.text, sizeof end.text,
                 "no program of user %u has named the group '%.31s', or that was too long ago",
                 (unsigned)connection->uid, asked->group);
    } else {
        lockd_outbox_send(connection, &sum, sizeof sum);
    }
    lockd_outbox_send(connection, &end, sizeof end);
}
