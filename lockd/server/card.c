/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: asks the driver, through NVIDIA's management library, how much memory of each device is
 * in use, and by which processes. A program can report anything; this it cannot. Nobody is asked
 * while all programs of each device belong to one user. State: struct lockd_cards. One thread, and
 * nothing waits. A look sends a question and reads the answer to the question before, so a second
 * look follows at once: the figures are compared with what programs report at that time, and an
 * answer that lay for a second would contradict memory that has come or gone since.
 */
#include "lockd/server/card.h"
#include "lockd/nvml/nvml.h"
#include "lockd/server/server.h"

/* The host's memory: tells the scheduler every few seconds how much is available to all programs
 * together (lockd/base/hostmem.h). */

#define TELL_EVERY_NS 2000000000u /* while programs are connected */

void lockd_hostwatch_init(struct lockd_hostwatch *watch)
{
    *watch = (struct lockd_hostwatch){.stale = false};
    lockd_host_init(&watch->memory);
}

static pid_t visible_pid(const struct lockd_connection *connection)
{
    return connection->peer.foreign ? 0 : connection->peer.pid;
}

/* Tells it once at the start of the daemon, so that the first target has its part of host
 * memory. Later the figure is not needed while no program is connected. */
uint64_t lockd_hostwatch_tend(struct lockd_server *server, uint64_t now)
{
    struct lockd_hostwatch *watch = &server->host;

    if (server->connections.programs == 0 && watch->at != 0)
        return LOCKD_NEVER;
    if (now >= watch->at) {
        uint64_t available;
        bool first = true;

        lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
            if (!watch->stale || each->client == NULL)
                continue;
            lockd_host_came(&watch->memory, first, visible_pid(each));
            first = false;
        }
        watch->stale = false;
        available = lockd_host_available(&watch->memory);
        if (available != UINT64_MAX)
            sched_host(server->scheduler, available, now);
        watch->at = now + TELL_EVERY_NS;
    }
    return watch->at;
}

void lockd_hostwatch_came(struct lockd_server *server,
                          const struct lockd_connection *connection)
{
    struct lockd_hostwatch *watch = &server->host;

    if (!lockd_host_came(&watch->memory, server->connections.programs == 1,
                         visible_pid(connection)))
        return;
    watch->at = 0;
    lockd_hostwatch_tend(server, lockd_now());
}

#define ABSENT_NS 10000000000u /* 10 s: lockd/nvml itself tries again after a minute */
/* 20 ms: from a question to the look for its answer; each further look comes after twice the time */
#define ANSWER_NS 20000000u

struct card_look {
    const struct nvml_table *table;
    const struct nvml_gpu *gpu;
    bool lists; /* it knows the numbers that processes have here */
};

static uint64_t look_up_process(const struct card_look *look,
                                const struct lockd_connection *connection)
{
    const struct nvml_process *process;

    if (connection->peer.foreign || connection->peer.pid <= 0)
        return UINT64_MAX;
    process = nvml_process(look->table, look->gpu, (int32_t)connection->peer.pid);
    if (process == NULL)
        return look->lists ? 0 : UINT64_MAX;
    return process->memory == NVML_BYTES_UNKNOWN ? UINT64_MAX : process->memory;
}

/* A process may have several connections: together they can have what the card shows of it. */
static uint64_t show_process(const void *context, const void *owner)
{
    const struct lockd_connection *connection = owner;
    const uint64_t shown = look_up_process(context, connection);
    uint64_t sharers = 0;

    if (shown == 0 || shown == UINT64_MAX)
        return shown;
    lockd_each (struct lockd_connection, each, &connection->server->connections.all, link)
        sharers += each->peer.pid == connection->peer.pid;
    return sharers == 0 ? shown : shown / sharers;
}

static void tell_card(struct lockd_server *server, const struct nvml_table *table,
                      const struct nvml_gpu *gpu, uint64_t now)
{
    struct card_look look = {.table = table, .gpu = gpu};
    struct sched_card card = {.total = gpu->total,
                              .asked_at = table->asked_at,
                              .shown = show_process,
                              .context = &look};

    if (gpu->total == NVML_BYTES_UNKNOWN || gpu->used == NVML_BYTES_UNKNOWN ||
        gpu->used > gpu->total || !lockd_uuid_read(gpu->uuid, card.uuid))
        return;
    card.free = gpu->total - gpu->used;
    /* Is any program's process listed there with its memory? Then the numbers are those of this pid
     * namespace, and a process that is not listed has no memory there. */
    lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
        look.lists = look.lists || (gpu->lists == 1 && each->client != NULL &&
                                    look_up_process(&look, each) != UINT64_MAX);
    }
    sched_card(server->scheduler, &card, now);
}

void lockd_card_stop(struct lockd_cards *cards)
{
    nvml_close(cards->nvml);
    cards->nvml = NULL;
    cards->told = 0;
    cards->asked = false;
}

static uint64_t time_to_look(const struct lockd_cards *cards, uint64_t pause)
{
    if (cards->nvml != NULL && nvml_descriptor(cards->nvml) < 0)
        pause = ABSENT_NS;
    else if (cards->asked)
        pause = lockd_lesser(cards->wait, pause);
    return cards->looked == 0 ? 0 : cards->looked + pause;
}

uint64_t lockd_card_tend(struct lockd_server *server, uint64_t now)
{
    struct lockd_cards *cards = &server->cards;
    const uint64_t pause = sched_card_pause(server->scheduler, now);
    const struct nvml_table *table;
    const char *remark;
    bool answered;

    if (pause == LOCKD_NEVER) {
        lockd_card_stop(cards);
        return LOCKD_NEVER;
    }
    if (now < time_to_look(cards, pause)) /* sooner, if a program asks meanwhile */
        return time_to_look(cards, pause);
    if (cards->nvml == NULL)
        cards->nvml = nvml_open(NVML_NEVER_WAITS);
    table = nvml_look(cards->nvml);
    answered = table != NULL && table->answer != cards->told;
    for (uint32_t i = 0; answered && cards->asked && i < table->gpu_count; i++)
        tell_card(server, table, &table->gpus[i], now);
    cards->told = answered ? table->answer : cards->told;
    if (!cards->asked || answered)
        cards->wait = ANSWER_NS;
    else if (cards->wait < pause)
        cards->wait *= 2;
    cards->asked = !cards->asked || !answered;
    remark = nvml_remark(cards->nvml);
    if (remark != NULL)
        lockd_log(LOCKD_LOG_WARNING, "%s", remark);
    cards->looked = now;
    return time_to_look(cards, lockd_lesser(pause, sched_card_pause(server->scheduler, now)));
}
