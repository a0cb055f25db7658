/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c: carries out the changes that gpusharectl requests: settings, and operations on one
 * program. Root, the daemon's user and the control group may change settings; a program's user may
 * also pause, resume, evict and suspend it. A caller in a container (also root there) steers the
 * programs of that container only. The log has each operation with the user who requested it.
 */
#include "lockd/server/control.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/protocol/names.h"
#include "lockd/server/closer.h"
#include "lockd/server/handover.h"
#include "lockd/server/outbox.h"
#include "lockd/server/pause.h"
#include "lockd/server/quota.h"
#include "lockd/server/server.h"
#include "lockd/server/users.h"
#include "lockd/start/inherited.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- another configuration --- */

static void apply_config(struct lockd_server *server, const struct lockd_config *config)
{
    const bool handed_over = server->config.hands_over;
    const struct lockd_lines classes = server->config.classes;

    server->config = *config;
    lockd_log_open(lockd_log_level_at(config->set.log_level));
    lockd_handover_changed(server, handed_over);
    sched_set(server->scheduler, &config->settings, lockd_now());
    lockd_quota_changed(server);
    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        /* else a program that was asked for a descriptor may be about to send it */
        if (each->client != NULL && handed_over != server->config.hands_over)
            lockd_closer_allow(each, server->config.hands_over || each->asked);
        lockd_wish_reconsider(each, &classes);
    }
}

int lockd_reload_config(struct lockd_server *server, struct gs_err *err)
{
    struct lockd_config config = server->config;
    int code;

    if (server->reload.read == NULL)
        return gs_err_set(err, -EOPNOTSUPP, "this daemon has no configuration file");
    lockd_notify("RELOADING=1");
    code = server->reload.read(server->reload.context, &config, err);
    if (code == 0) {
        apply_config(server, &config);
        lockd_log(LOCKD_LOG_INFO, "the configuration was read again");
    } else {
        lockd_log(LOCKD_LOG_ERROR, "the configuration was not changed: %s", err->text);
    }
    lockd_notify("READY=1");
    return code;
}

/* --- one program --- */

/* Whether the program's own user may carry out that operation; the others would take something
 * from other users. */
static bool is_for_owner(uint32_t op)
{
    return op == GS_CONTROL_PAUSE || op == GS_CONTROL_RESUME || op == GS_CONTROL_EVICT ||
           op == GS_CONTROL_SUSPEND;
}

void lockd_control_values(const struct lockd_connection *program, struct lockd_values *values)
{
    const struct sched_client_info info = sched_client_info(program->client);

    *values = (struct lockd_values){
        .weight = info.weight,
        .priority = (uint64_t)(int64_t)info.priority,
        .class = info.class,
        .limit = program->limit,
    };
}

static void do_with_program(struct lockd_connection *program,
                            const struct gs_wire_control *control)
{
    const uint64_t now = lockd_now();
    struct lockd_values before, after;

    switch (control->op) {
    case GS_CONTROL_PAUSE:
    case GS_CONTROL_RESUME:
        lockd_pause_ask(program, control->op == GS_CONTROL_PAUSE);
        break;
    case GS_CONTROL_SUSPEND:
        lockd_pause_ask(program, true);
        sched_evict(program->client, lockd_now()); /* not earlier than the pause */
        break;
    case GS_CONTROL_EVICT:
        sched_evict(program->client, now);
        break;
    default:
        lockd_control_values(program, &before);
        after = before;
        *(uint64_t *)lockd_setting_place(lockd_setting_of_op(control->op), &after) =
            control->value;
        program->limit = after.limit;
        if (after.weight != before.weight)
            sched_weight(program->client, (uint32_t)after.weight, now);
        if (after.priority != before.priority)
            sched_priority(program->client, (int32_t)(int64_t)after.priority, now);
        if (after.class != before.class)
            sched_class(program->client, (enum gs_wire_class)after.class, now);
        if (after.limit != before.limit)
            sched_limit(program->client, after.limit, now);
    }
}

/* Whether a caller without the right to change settings may carry out that operation on the
 * program. */
static bool may_operate(const struct lockd_connection *connection,
                        const struct lockd_connection *program, uint32_t op)
{
    if (!is_for_owner(op))
        return false;
    if (!connection->peer.identity.contained)
        return connection->peer.uid == program->peer.uid;
    return (connection->peer.uid == program->peer.uid || connection->peer.uid == 0) &&
           lockd_identity_same_container(&connection->peer.identity, &program->peer.identity);
}

/* Carries out the operation on all programs with that process id that the caller may steer. A
 * program in another pid namespace may claim any process id, so programs of other users are
 * skipped, not refused. */
static int operate_program(struct lockd_connection *connection,
                           const struct gs_wire_control *control)
{
    struct lockd_server *server = connection->server;
    bool others = false;
    int count = 0;

    if (control->pid == 0 && !connection->peer.controls)
        return -EPERM;
    if (control->pid == 0 && control->op != GS_CONTROL_PAUSE &&
        control->op != GS_CONTROL_RESUME && control->op != GS_CONTROL_EVICT)
        return -EINVAL;
    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        if (each->client == NULL || (control->pid != 0 && each->peer.pid != control->pid))
            continue;
        if (!connection->peer.controls && !may_operate(connection, each, control->op)) {
            others = true;
            continue;
        }
        do_with_program(each, control);
        count++;
    }
    return count > 0 || control->pid == 0 ? count : others ? -EPERM : -ESRCH;
}

int lockd_control_find(const struct lockd_connection *connection, int32_t pid,
                       struct lockd_connection **program)
{
    bool others = false;

    lockd_each (struct lockd_connection, each, &connection->server->connections.all, link) {
        if (each->client == NULL || each->peer.pid != pid || each->dead)
            continue;
        if (connection->peer.controls || may_operate(connection, each, GS_CONTROL_SUSPEND)) {
            *program = each;
            return 0;
        }
        others = true;
    }
    return others ? -EPERM : -ESRCH;
}

/* --- settings --- */

static int operate_setting(struct lockd_connection *connection,
                           const struct lockd_setting *setting,
                           const struct gs_wire_control *control, struct gs_err *err)
{
    struct lockd_config config = connection->server->config;
    char range[64];
    int code;

    if (!lockd_setting_allows(setting, control->value))
        return gs_err_set(err, -ERANGE, "%s: the value is out of range (%s)", setting->name,
                          lockd_setting_range(setting, range, sizeof range));
    if (setting->scope == LOCKD_SCOPE_PROGRAM)
        return operate_program(connection, control);
    if (!connection->peer.controls)
        return -EPERM;
    *(uint64_t *)lockd_setting_place(setting, &config.set) = control->value;
    code = lockd_config_finish(&config, err);
    if (code == 0)
        apply_config(connection->server, &config);
    return code;
}

/* --- the answer --- */

static void explain_refusal(struct lockd_connection *connection,
                            const struct gs_wire_control *control, int code)
{
    const bool owner = control->pid != 0 && is_for_owner(control->op);

    switch (code) {
    case -ESRCH:
        lockd_outbox_end(connection, code, 0, "no program with process id %d is connected",
                         control->pid);
        break;
    case -EPERM:
        if (connection->peer.identity.contained) {
            lockd_outbox_end(connection, code, 0,
                             "a process in a container may pause, resume, evict and suspend "
                             "programs of that container, and nothing else");
            break;
        }
        lockd_outbox_end(connection, code, 0,
                         "only root, user %u (which runs gpushare-lockd)%s%s%s may do that",
                         (unsigned)geteuid(),
                         connection->server->config.set.control_group[0] != '\0' ? ", group "
                                                                                 : "",
                         connection->server->config.set.control_group,
                         owner ? " and the program's owner" : "");
        break;
    default:
        lockd_outbox_end(connection, code, 0, "give a process id");
    }
}

/* Logs the operation, with a limit for callers without the right to change settings: they cannot
 * fill the log. */
static void log_operation(const struct lockd_connection *connection,
                          const struct gs_wire_control *control, int code)
{
    const struct lockd_setting *setting = lockd_setting_of_op(control->op);
    const char *name = setting != NULL ? setting->name : lockd_operation_name(control->op);
    char line[200];

    snprintf(line, sizeof line, "user %u (process %d%s%.12s): %s, process %d, value %lld: %s",
             (unsigned)connection->peer.uid, (int)connection->peer.pid,
             connection->peer.identity.contained ? ", container " : "",
             connection->peer.identity.container, name, control->pid, (long long)control->value,
             code >= 0 ? "done" : strerror(-code));
    if (connection->peer.controls)
        lockd_log(LOCKD_LOG_INFO, "%s", line);
    else
        lockd_user_say(connection->user, LOCKD_LOG_INFO, "%s", line);
}

void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control)
{
    const struct lockd_setting *setting = lockd_setting_of_op(control->op);
    struct gs_err err = {0};
    int code;

    if (control->op == GS_CONTROL_RELOAD)
        code =
            connection->peer.controls ? lockd_reload_config(connection->server, &err) : -EPERM;
    else if (setting != NULL)
        code = operate_setting(connection, setting, control, &err);
    else
        code = operate_program(connection, control);
    log_operation(connection, control, code);
    if (code >= 0)
        lockd_outbox_end(connection, 0, (uint32_t)code, "%s", "");
    else if (err.code != 0)
        lockd_outbox_end(connection, code, 0, "%.190s", err.text);
    else
        explain_refusal(connection, control, code);
}
