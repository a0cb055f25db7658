/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c: carries out the changes that gpusharectl requests: settings, and operations on one
 * program. Root, the daemon's user and the control group may change settings; a program's user may
 * also pause, resume, evict and suspend it. A caller in a container (also root there) steers the
 * programs of that container only. The log has each operation with the user who requested it.
 */
#include "lockd/server/control.h"
#include "lockd/base/halt.h"
#include "lockd/server/server.h"
#include "lockd/start/sockets.h"

#include <errno.h>
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

/* The settings of one program: the rows of settings.def whose scope is PROGRAM; the others are 0. */
static void lockd_control_values(const struct lockd_connection *program,
                                 struct lockd_values *values)
{
    const struct sched_client_settings set = sched_client_info(program->client).set;

    *values = (struct lockd_values){
        .weight = set.weight,
        .priority = (uint64_t)(int64_t)set.priority,
        .class = set.class,
        .limit = set.limit,
    };
}

static void do_with_program(struct lockd_connection *program,
                            const struct gs_wire_control *control)
{
    const uint64_t now = lockd_now();
    struct lockd_values values;

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
        lockd_control_values(program, &values);
        *(uint64_t *)lockd_setting_place(lockd_setting_of_op(control->op), &values) =
            control->value;
        sched_client_set(program->client,
                         (struct sched_client_settings){
                             .weight = (uint32_t)values.weight,
                             .priority = (int32_t)(int64_t)values.priority,
                             .class = (enum gs_wire_class)values.class,
                             .limit = values.limit,
                         },
                         now);
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

/* --- questions --- */

/* Answers `gpusharectl status` (the daemon, its devices, the programs on them, remarks),
 * `gpusharectl get` and `gpusharectl account`. Changes nothing except the accounts of programs
 * that end. Every user who may connect may read the status. */

struct status {
    struct lockd_connection *to;
    uint32_t count;
};

static void send_one(struct status *status, void *message, enum gs_wire_type type)
{
    lockd_wire_header(message, type);
    lockd_outbox_send(status->to, message, lockd_wire_size(type));
    status->count++;
}

static void send_daemon(struct status *status, const struct lockd_server *server)
{
    const struct sched_settings *settings = sched_settings(server->scheduler);
    const struct sched_host_info host = sched_host_info(server->scheduler);
    struct gs_wire_daemon daemon = {
        .pid = (int32_t)getpid(),
        .programs = server->connections.programs,
        .start_ns = server->started_real,
        .uptime_ns = lockd_now() - server->started,
        .quantum_ns = settings->quantum_ns,
        .idle_ns = settings->idle_ns,
        .reserve = settings->reserve,
        .idle_exit_ns = server->config.set.idle_exit,
        .quantum_min_ns = settings->quantum_min_ns,
        .quantum_max_ns = settings->quantum_max_ns,
        .host_limit = settings->host == 0 ? LOCKD_AUTO : settings->host,
        .host_total = host.total,
        .host_used = host.used,
        .policy = (uint32_t)settings->policy,
        .exclusive = settings->exclusive,
        .share_ppm = settings->share_ppm,
        .hand_over = server->config.hands_over,
        .version = GS_VERSION,
    };

    send_one(status, &daemon, GS_WIRE_DAEMON);
}

static void visit_device(void *context, const struct gs_wire_device *device)
{
    struct gs_wire_device message = *device;

    send_one(context, &message, GS_WIRE_DEVICE);
}

static void visit_totals(void *context, const struct gs_wire_totals *totals)
{
    struct gs_wire_totals message = *totals;

    send_one(context, &message, GS_WIRE_TOTALS);
}

/* The figures of a program that the scheduler does not know. */
static void describe_program(struct gs_wire_client *client,
                             const struct lockd_connection *connection)
{
    client->pid = (int32_t)connection->peer.pid;
    client->uid = connection->peer.uid;
    client->connected_ns = lockd_now() - connection->silence.since;
    client->flags |= connection->peer.foreign ? GS_CLIENT_FOREIGN : 0;
    memcpy(client->name, connection->hello.name, sizeof client->name);
    memcpy(client->version, connection->hello.version, sizeof client->version);
    memcpy(client->group, connection->hello.group, sizeof client->group);
    memcpy(client->container, connection->peer.identity.container, sizeof client->container);
    memcpy(client->pod, connection->peer.identity.pod, sizeof client->pod);
}

_Static_assert(sizeof((struct gs_wire_client *)0)->container == LOCKD_CONTAINER_SIZE,
               "container");
_Static_assert(sizeof((struct gs_wire_client *)0)->pod == LOCKD_POD_SIZE, "pod");

/* A process that somebody has stopped cannot do what its condition says. Only a program that does
 * not answer is looked for in the frozen control groups. */
static void look_for_halt(struct gs_wire_client *client)
{
    static const uint32_t conditions[] = {
        [LOCKD_HALT_STOPPED] = GS_CONDITION_STOPPED,
        [LOCKD_HALT_TRACED] = GS_CONDITION_TRACED,
        [LOCKD_HALT_FROZEN] = GS_CONDITION_FROZEN,
    };
    const bool answers = client->condition == GS_CONDITION_RUNS ||
                         client->condition == GS_CONDITION_WAITS ||
                         client->condition == GS_CONDITION_IDLE;
    enum lockd_halt halt;

    if (client->pid <= 0 || (client->flags & GS_CLIENT_FOREIGN) != 0)
        return;
    halt = answers ? lockd_halt_of_process(client->pid) : lockd_halt_of(client->pid);
    if (halt != LOCKD_HALT_NONE)
        client->condition = conditions[halt];
}

static void visit_member(void *context, void *owner, const struct gs_wire_client *client)
{
    const struct lockd_connection *connection = owner, *other;
    const struct sched_why why =
        sched_client_why(connection->client, client->uuid, lockd_now());
    struct gs_wire_client message = *client;

    describe_program(&message, connection);
    other = why.owner;
    message.waits_why = why.why;
    message.waits_most_ns = why.most_ns;
    message.waits_for = other != NULL ? (uint64_t)other->peer.pid : 0;
    look_for_halt(&message);
    lockd_relations_describe(owner, &message);
    send_one(context, &message, GS_WIRE_CLIENT);
}

static void send_notes(struct status *status, const struct lockd_server *server)
{
    for (int i = 0; i < LOCKD_REMARKS; i++) {
        const struct lockd_remark *note = &server->remarks.slot[i];
        struct gs_wire_remark remark = {
            .pid = note->pid, .kind = note->kind, .count = note->count, .ended = 1};

        if (note->stamp.at == 0)
            continue;
        remark.age_ns = lockd_now() - note->stamp.at;
        lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
            if (each->client != NULL &&
                (each->id == note->owner || each->peer.pid == note->pid))
                remark.ended = 0;
        }
        memcpy(remark.name, note->name, sizeof remark.name);
        memcpy(remark.text, note->text, sizeof remark.text);
        send_one(status, &remark, GS_WIRE_REMARK);
    }
}

void lockd_status_send(struct lockd_connection *connection)
{
    struct lockd_server *server = connection->server;
    struct status status = {.to = connection};

    send_daemon(&status, server);
    sched_visit(server->scheduler, visit_device, visit_member, &status, lockd_now());
    lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
        struct gs_wire_client client = {.condition = GS_CONDITION_NO_DEVICE,
                                        .host_budget = UINT64_MAX};
        struct sched_client_info info;

        if (connection->dead) /* it has left this list, and `each` may be it */
            return;
        if (each->client == NULL)
            continue;
        info = sched_client_info(each->client);
        if (!info.unused)
            continue;
        client.limit = info.set.limit;
        client.flags = info.paused ? GS_CLIENT_PAUSED : 0;
        describe_program(&client, each);
        send_one(&status, &client, GS_WIRE_CLIENT);
    }
    sched_visit_totals(server->scheduler, visit_totals, &status, lockd_now());
    send_notes(&status, server);
    lockd_outbox_end(connection, 0, status.count, "%s", "");
}

/* --- accounts --- */

static void add_member(void *context, void *owner, const struct gs_wire_client *client)
{
    (void)owner;
    lockd_account_count(context, client);
}

static void add_program(struct gs_wire_account *sum, const struct sched_client *client)
{
    sum->programs++;
    sched_visit_client(client, add_member, sum, lockd_now());
}

void lockd_status_gone(const struct lockd_connection *connection,
                       const struct sched_client *client)
{
    /* the user of a container is none of the machine's, and its number may be reused later */
    if (connection->hello.group[0] != '\0' && connection->user->container[0] == '\0')
        add_program(lockd_account_open(&connection->server->accounts, connection->peer.uid,
                                       connection->hello.group, lockd_now()),
                    client);
}

static void add_connected(struct gs_wire_account *sum, const struct lockd_connection *asker)
{
    lockd_each (const struct lockd_connection, each, &asker->server->connections.all, link) {
        if (each->client == NULL || each->user != asker->user ||
            strcmp(each->hello.group, sum->group) != 0)
            continue;
        sum->connected++;
        add_program(sum, each->client);
    }
}

void lockd_status_account(struct lockd_connection *connection,
                          const struct gs_wire_account *asked)
{
    const struct lockd_account *ended =
        connection->user->container[0] != '\0'
            ? NULL
            : lockd_account_find(&connection->server->accounts, connection->peer.uid,
                                 asked->group);
    struct status status = {.to = connection};
    struct gs_wire_account sum = {0};

    memcpy(sum.group, asked->group, sizeof sum.group);
    sum = ended != NULL ? ended->sum : sum;
    add_connected(&sum, connection);
    if (sum.programs != 0)
        send_one(&status, &sum, GS_WIRE_ACCOUNT);
    if (sum.programs == 0)
        lockd_outbox_end(
            connection, -ESRCH, 0,
            "no program of user %u has named the group '%.31s', or that was too long ago",
            (unsigned)connection->peer.uid, asked->group);
    else
        lockd_outbox_end(connection, 0, status.count, "%s", "");
}

/* --- settings --- */

/* The settings in force: automatic settings have their present values, where those are known. */
static struct lockd_values values_in_force(const struct lockd_server *server)
{
    const struct sched_settings *settings = sched_settings(server->scheduler);
    struct lockd_values values = server->config.set;

    values.quantum_min = settings->quantum_min_ns;
    values.quantum_max = settings->quantum_max_ns;
    values.switch_share = settings->share_ppm;
    values.floor = settings->floor_ppm;
    values.host = sched_host_info(server->scheduler).total;
    return values;
}

/* program: NULL for the daemon's settings. */
static void send_settings(struct status *status, const struct lockd_connection *program,
                          struct lockd_values *values, struct lockd_values *in_force)
{
    for (const struct lockd_setting *row = lockd_settings; row->name != NULL; row++) {
        struct gs_wire_setting setting = {.pid =
                                              program != NULL ? (int32_t)program->peer.pid : 0};
        const void *place = lockd_setting_place(row, values);

        if ((row->scope == LOCKD_SCOPE_PROGRAM) != (program != NULL))
            continue;
        snprintf(setting.name, sizeof setting.name, "%s", row->name);
        if (row->kind == GS_OPTION_NAME) {
            memcpy(setting.text, place, sizeof setting.text);
        } else {
            memcpy(&setting.value, place, sizeof setting.value);
            memcpy(&setting.in_force, lockd_setting_place(row, in_force),
                   sizeof setting.in_force);
        }
        if (program != NULL)
            memcpy(setting.program, program->hello.name, sizeof setting.program);
        send_one(status, &setting, GS_WIRE_SETTING);
    }
}

void lockd_status_settings(struct lockd_connection *connection, const struct gs_wire_get *get)
{
    struct lockd_server *server = connection->server;
    struct status status = {.to = connection};
    struct lockd_values values = server->config.set, in_force = values_in_force(server);

    if (get->pid == 0)
        send_settings(&status, NULL, &values, &in_force);
    lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
        if (connection->dead) /* as in lockd_status_send() */
            return;
        if (get->pid == 0 || each->client == NULL || each->peer.pid != get->pid)
            continue;
        lockd_control_values(each, &values);
        send_settings(&status, each, &values, &values);
    }
    if (get->pid != 0 && status.count == 0)
        lockd_outbox_end(connection, -ESRCH, 0, "no program with process id %d is connected",
                         get->pid);
    else
        lockd_outbox_end(connection, 0, status.count, "%s", "");
}
