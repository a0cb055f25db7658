/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c: answers gpusharectl: the state of everything, and settings and pauses by those who
 * may. Whoever may connect may look; settings belong to the daemon's owner and root, a
 * program's pause also to the program's owner.
 */
#include "lockd/log.h"
#include "lockd/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SETTING_MIN_NS 1000000ull             /* 1 ms */
#define SETTING_MAX_NS (3600ull * 1000000000) /* 1 h */

struct status {
    struct lockd_connection *to;
    uint32_t count;
};

static void send_one(struct status *status, void *message, enum gs_wire_type type)
{
    lockd_wire_header(message, type);
    lockd_connection_send(status->to, message, lockd_wire_size(type));
    status->count++;
}

static void send_end(struct status *status, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void send_end(struct status *status, int code, const char *format, ...)
{
    struct gs_wire_end end = {.code = code, .count = status->count};
    va_list ap;

    va_start(ap, format);
    vsnprintf(end.text, sizeof end.text, format, ap);
    va_end(ap);
    send_one(status, &end, GS_WIRE_END);
}

static void send_daemon(struct status *status, const struct lockd_server *server)
{
    const struct lockd_settings *settings = lockd_lock_settings(server->lock);
    struct gs_wire_daemon daemon = {
        .pid = (int32_t)getpid(),
        .programs = server->program_count,
        .uptime_ns = lockd_now() - server->started,
        .quantum_ns = settings->quantum_ns,
        .idle_ns = settings->idle_ns,
        .reserve = settings->reserve,
        .idle_exit_ns = server->options.idle_exit_ns,
        .version = GS_VERSION,
    };

    send_one(status, &daemon, GS_WIRE_DAEMON);
}

static void visit_device(void *context, const struct lockd_device_info *info)
{
    struct gs_wire_device device = {
        .total = info->total,
        .capacity = info->capacity,
        .external = info->external,
        .reserve = info->reserve,
        .short_bytes = info->short_bytes,
        .demand = info->demand,
        .resident = info->resident,
        .quantum_ns = info->quantum_ns,
        .switch_ns = info->switch_ns,
        .clients = info->clients,
        .waiting = info->waiting,
        .leases = info->leases,
    };

    memcpy(device.uuid, info->uuid, sizeof device.uuid);
    memcpy(device.name, info->name, sizeof device.name);
    send_one(context, &device, GS_WIRE_DEVICE);
}

static void program(struct gs_wire_client *client, const struct lockd_connection *connection)
{
    client->flags |= lockd_client_paused(connection->client) ? GS_CLIENT_PAUSED : 0;
    client->pid = (int32_t)connection->pid;
    client->uid = connection->uid;
    client->flags |= connection->foreign ? GS_CLIENT_FOREIGN : 0;
    memcpy(client->name, connection->name, sizeof client->name);
    memcpy(client->version, connection->version, sizeof client->version);
}

/* The order of both enums is the same; the wire's may not change, the lock's may grow. */
static uint32_t wire_condition(enum lockd_member_condition condition)
{
    static const uint32_t table[] = {
        [LOCKD_RUNS] = GS_CONDITION_RUNS,
        [LOCKD_WAITS] = GS_CONDITION_WAITS,
        [LOCKD_IDLE] = GS_CONDITION_IDLE,
        [LOCKD_MOVING] = GS_CONDITION_MOVING,
        [LOCKD_STOPPING] = GS_CONDITION_STOPPING,
        [LOCKD_STUCK] = GS_CONDITION_STUCK,
        [LOCKD_PAUSED] = GS_CONDITION_PAUSED,
        [LOCKD_DOES_NOT_FIT] = GS_CONDITION_DOES_NOT_FIT,
    };

    return table[condition];
}

static void visit_member(void *context, const struct lockd_device_info *device,
                         const struct lockd_member_info *info)
{
    struct gs_wire_client client = {
        .condition = wire_condition(info->condition),
        .flags = (info->run ? GS_CLIENT_LEASE : 0) | (info->skipped ? GS_CLIENT_SKIPPED : 0) |
                 (info->partial ? GS_CLIENT_PARTIAL : 0),
        .demand = info->demand,
        .resident = info->resident,
        .budget = info->budget,
        .moved_out = info->moved_out,
        .moved_in = info->moved_in,
        .calls = info->calls,
        .turns = info->turns,
        .switch_ns = info->switch_ns,
    };

    memcpy(client.uuid, device->uuid, sizeof client.uuid);
    program(&client, info->owner);
    send_one(context, &client, GS_WIRE_CLIENT);
}

static bool note_ended(const struct lockd_server *server, const struct lockd_note *note)
{
    for (const struct lockd_list *at = server->connections.next; at != &server->connections;
         at = at->next) {
        const struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        if (each->client != NULL && (each->id == note->owner || each->pid == note->pid))
            return false;
    }
    return true;
}

static void send_notes(struct status *status, const struct lockd_server *server)
{
    for (int i = 0; i < LOCKD_NOTES; i++) {
        const struct lockd_note *note = &server->notes.slot[i];
        struct gs_wire_remark remark = {
            .pid = note->pid, .kind = note->kind, .count = note->count};

        if (note->at == 0)
            continue;
        remark.age_ns = lockd_now() - note->at;
        remark.ended = note_ended(server, note);
        memcpy(remark.name, note->name, sizeof remark.name);
        memcpy(remark.text, note->text, sizeof remark.text);
        send_one(status, &remark, GS_WIRE_REMARK);
    }
}

void lockd_control_status(struct lockd_connection *connection)
{
    struct lockd_server *server = connection->server;
    struct status status = {.to = connection};

    send_daemon(&status, server);
    lockd_lock_visit(server->lock, visit_device, visit_member, &status, lockd_now());
    lockd_list_each (at, &server->connections) {
        const struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);
        struct gs_wire_client client = {.condition = GS_CONDITION_NO_DEVICE};

        if (connection->dead)
            return;
        if (each->client == NULL || !lockd_client_unused(each->client))
            continue;
        program(&client, each);
        send_one(&status, &client, GS_WIRE_CLIENT);
    }
    send_notes(&status, server);
    send_end(&status, 0, "%s", "");
}

static bool owner_or_root(const struct lockd_connection *connection)
{
    return connection->uid == 0 || connection->uid == geteuid();
}

/* Pauses or resumes one program, or all. Returns how many, or a negative errno. */
static int pause_programs(struct lockd_connection *connection, int32_t pid, bool paused)
{
    struct lockd_server *server = connection->server;
    int count = 0;

    if (pid == 0) {
        if (!owner_or_root(connection))
            return -EPERM;
        lockd_lock_pause(server->lock, NULL, paused, lockd_now());
        return (int)server->program_count;
    }
    lockd_list_each (at, &server->connections) {
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        if (each->client == NULL || each->pid != pid)
            continue;
        if (!owner_or_root(connection) && connection->uid != each->uid)
            return -EPERM;
        lockd_lock_pause(server->lock, each->client, paused, lockd_now());
        count++;
    }
    return count > 0 ? count : -ESRCH;
}

static int change_setting(struct lockd_connection *connection,
                          const struct gs_wire_control *control)
{
    struct lockd_lock *lock = connection->server->lock;
    struct lockd_settings settings = *lockd_lock_settings(lock);
    const bool automatic = control->value == LOCKD_AUTO;

    if (!owner_or_root(connection))
        return -EPERM;
    if (control->op == GS_CONTROL_RESERVE) {
        if (!automatic && control->value > LOCKD_BYTES_MAX)
            return -ERANGE;
        settings.reserve = control->value;
    } else if (!automatic &&
               (control->value < SETTING_MIN_NS || control->value > SETTING_MAX_NS)) {
        return -ERANGE;
    } else if (control->op == GS_CONTROL_QUANTUM) {
        settings.quantum_ns = control->value;
    } else {
        settings.idle_ns = control->value;
    }
    lockd_lock_set(lock, &settings, lockd_now());
    return 0;
}

void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control)
{
    struct status status = {.to = connection};
    int code;

    if (control->op == GS_CONTROL_PAUSE || control->op == GS_CONTROL_RESUME)
        code = pause_programs(connection, control->pid, control->op == GS_CONTROL_PAUSE);
    else
        code = change_setting(connection, control);
    if (code >= 0) {
        status.count = (uint32_t)code;
        send_end(&status, 0, "%s", "");
        return;
    }
    if (code == -ESRCH)
        send_end(&status, code, "no program with process id %d is connected", control->pid);
    else if (code == -EPERM)
        send_end(&status, code, "only root, user %u (who runs gpushare-lockd)%s may do that",
                 (unsigned)geteuid(), control->pid != 0 ? " and the program's owner" : "");
    else
        send_end(&status, code, "the value is out of range (times: 1 ms to 1 h)");
    lockd_log(LOCKD_LOG_INFO, "user %u: operation %u on process %d refused: %s",
              (unsigned)connection->uid, control->op, control->pid, strerror(-code));
}
