/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c: the changes that gpusharectl asks for: settings, and operations on one program.
 * Settings belong to root, the daemon's user and the control group; pause, resume, evict and
 * suspend of one program belong to the program's user as well. The log has each operation with
 * the user who asked for it.
 */
#include "lockd/server/control.h"

#include "lockd/base/log.h"
#include "lockd/protocol/wire_check.h"
#include "lockd/server/clock.h"
#include "lockd/server/outbox.h"
#include "lockd/server/pause.h"
#include "lockd/server/reload.h"
#include "lockd/server/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SETTING_MIN_NS 1000000ull             /* 1 ms */
#define SETTING_MAX_NS (3600ull * 1000000000) /* 1 h */
#define SHARE_MIN_PPM  1000                   /* 0.1 % */
#define SHARE_MAX_PPM  500000                 /* 50 % */

static const char *operation_name(uint32_t op)
{
    static const char *const names[] = {
        [GS_CONTROL_QUANTUM] = "quantum",
        [GS_CONTROL_IDLE] = "idle",
        [GS_CONTROL_RESERVE] = "reserve",
        [GS_CONTROL_PAUSE] = "pause",
        [GS_CONTROL_RESUME] = "resume",
        [GS_CONTROL_POLICY] = "policy",
        [GS_CONTROL_EXCLUSIVE] = "exclusive",
        [GS_CONTROL_WEIGHT] = "weight",
        [GS_CONTROL_PRIORITY] = "priority",
        [GS_CONTROL_LIMIT] = "limit",
        [GS_CONTROL_QUANTUM_MIN] = "quantum-min",
        [GS_CONTROL_QUANTUM_MAX] = "quantum-max",
        [GS_CONTROL_SHARE] = "switch-share",
        [GS_CONTROL_HOST] = "host",
        [GS_CONTROL_EVICT] = "evict",
        [GS_CONTROL_SUSPEND] = "suspend",
        [GS_CONTROL_RELOAD] = "reload",
    };

    return op < sizeof names / sizeof names[0] && names[op] != NULL ? names[op] : "unknown";
}

static void answer(struct lockd_connection *connection, int code, uint32_t count,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

static void answer(struct lockd_connection *connection, int code, uint32_t count,
                   const char *format, ...)
{
    struct gs_wire_end end = {.code = code, .count = count};
    va_list ap;

    va_start(ap, format);
    vsnprintf(end.text, sizeof end.text, format, ap);
    va_end(ap);
    lockd_wire_header(&end.header, GS_WIRE_END);
    lockd_outbox_send(connection, &end, sizeof end);
}

/* --- one program --- */

/* Operations that the program's own user may do; the rest would take from other users. */
static bool for_owner(uint32_t op)
{
    return op == GS_CONTROL_PAUSE || op == GS_CONTROL_RESUME || op == GS_CONTROL_EVICT ||
           op == GS_CONTROL_SUSPEND;
}

static int check_program_value(const struct gs_wire_control *control)
{
    const int64_t priority = (int64_t)control->value;

    switch (control->op) {
    case GS_CONTROL_WEIGHT:
        return control->value >= 1 && control->value <= GS_WEIGHT_MAX ? 0 : -ERANGE;
    case GS_CONTROL_PRIORITY:
        return priority >= -GS_PRIORITY_MAX && priority <= GS_PRIORITY_MAX ? 0 : -ERANGE;
    case GS_CONTROL_LIMIT:
        return control->value == UINT64_MAX || control->value <= LOCKD_BYTES_MAX ? 0 : -ERANGE;
    default:
        return 0;
    }
}

static void do_with(struct lockd_connection *program, const struct gs_wire_control *control)
{
    struct sched *scheduler = program->server->scheduler;
    const uint64_t now = lockd_now();

    switch (control->op) {
    case GS_CONTROL_PAUSE:
    case GS_CONTROL_RESUME:
        lockd_pause_ask(program, control->op == GS_CONTROL_PAUSE);
        break;
    case GS_CONTROL_SUSPEND:
        lockd_pause_ask(program, true);
        sched_evict(scheduler, program->client, now);
        break;
    case GS_CONTROL_EVICT:
        sched_evict(scheduler, program->client, now);
        break;
    case GS_CONTROL_WEIGHT:
        sched_weight(scheduler, program->client, (uint32_t)control->value, now);
        break;
    case GS_CONTROL_PRIORITY:
        sched_priority(scheduler, program->client, (int32_t)(int64_t)control->value, now);
        break;
    default:
        program->limit = control->value;
        sched_limit(scheduler, program->client, control->value, now);
    }
}

/* Programs with that process id that the caller may steer; a program in another pid namespace
 * may name any process id, so those of other users are passed over, not refused. */
static int operate_program(struct lockd_connection *connection,
                           const struct gs_wire_control *control)
{
    struct lockd_server *server = connection->server;
    int code = check_program_value(control), count = 0;
    bool others = false;

    if (code != 0)
        return code;
    if (control->pid == 0 && !connection->controls)
        return -EPERM;
    if (control->pid == 0 && control->op != GS_CONTROL_PAUSE &&
        control->op != GS_CONTROL_RESUME && control->op != GS_CONTROL_EVICT)
        return -EINVAL;
    lockd_list_each (at, &server->connections.all) {
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        if (each->client == NULL || (control->pid != 0 && each->pid != control->pid))
            continue;
        if (!connection->controls &&
            (connection->uid != each->uid || !for_owner(control->op))) {
            others = true;
            continue;
        }
        do_with(each, control);
        count++;
    }
    return count > 0 || control->pid == 0 ? count : others ? -EPERM : -ESRCH;
}

/* --- settings --- */

static int set_time(uint64_t *setting, uint64_t value, uint64_t unset)
{
    if (value != LOCKD_AUTO && (value < SETTING_MIN_NS || value > SETTING_MAX_NS))
        return -ERANGE;
    *setting = value == LOCKD_AUTO ? unset : value;
    return 0;
}

static int set_bytes(uint64_t *setting, uint64_t value)
{
    if (value != LOCKD_AUTO && value > LOCKD_BYTES_MAX)
        return -ERANGE;
    *setting = value;
    return 0;
}

static int set_one(struct sched_settings *settings, uint32_t op, uint64_t value)
{
    switch (op) {
    case GS_CONTROL_QUANTUM:
        return set_time(&settings->quantum_ns, value, LOCKD_AUTO);
    case GS_CONTROL_IDLE:
        return set_time(&settings->idle_ns, value, LOCKD_AUTO);
    case GS_CONTROL_QUANTUM_MIN:
        return set_time(&settings->quantum_min_ns, value, 0);
    case GS_CONTROL_QUANTUM_MAX:
        return set_time(&settings->quantum_max_ns, value, 0);
    case GS_CONTROL_RESERVE:
        return set_bytes(&settings->reserve, value);
    case GS_CONTROL_HOST:
        return set_bytes(&settings->host, value);
    case GS_CONTROL_POLICY:
        if (value >= GS_POLICY_COUNT)
            return -ERANGE;
        settings->policy = (enum gs_policy)value;
        return 0;
    case GS_CONTROL_EXCLUSIVE:
        if (value > 1)
            return -ERANGE;
        settings->exclusive = value == 1;
        return 0;
    default: /* GS_CONTROL_SHARE */
        if (value != LOCKD_AUTO && (value < SHARE_MIN_PPM || value > SHARE_MAX_PPM))
            return -ERANGE;
        settings->share_ppm = value == LOCKD_AUTO ? 0 : (uint32_t)value;
        return 0;
    }
}

static int change_setting(struct lockd_connection *connection,
                          const struct gs_wire_control *control)
{
    struct sched *scheduler = connection->server->scheduler;
    struct sched_settings settings = *sched_settings(scheduler);
    int code;

    if (!connection->controls)
        return -EPERM;
    code = set_one(&settings, control->op, control->value);
    if (code == 0 && settings.quantum_max_ns != 0 &&
        settings.quantum_min_ns > settings.quantum_max_ns)
        code = -EDOM;
    if (code == 0)
        sched_set(scheduler, &settings, lockd_now());
    return code;
}

static bool of_program(uint32_t op)
{
    return for_owner(op) || op == GS_CONTROL_WEIGHT || op == GS_CONTROL_PRIORITY ||
           op == GS_CONTROL_LIMIT;
}

static void explain(struct lockd_connection *connection, const struct gs_wire_control *control,
                    int code)
{
    const bool owner = control->pid != 0 && for_owner(control->op);

    switch (code) {
    case -ESRCH:
        answer(connection, code, 0, "no program with process id %d is connected", control->pid);
        break;
    case -EPERM:
        answer(connection, code, 0,
               "only root, user %u (who runs gpushare-lockd)%s%s%s may do that",
               (unsigned)geteuid(),
               connection->server->config.control_group[0] != '\0' ? ", group " : "",
               connection->server->config.control_group,
               owner ? " and the program's owner" : "");
        break;
    case -EINVAL:
        answer(connection, code, 0, "a process id is needed");
        break;
    case -EDOM:
        answer(connection, code, 0, "quantum-min would be above quantum-max");
        break;
    default:
        answer(connection, code, 0,
               "the value is out of range (times: 1 ms to 1 h; weight: 1 to %d; priority: -%d "
               "to %d; share: 0.1 to 50 %%)",
               GS_WEIGHT_MAX, GS_PRIORITY_MAX, GS_PRIORITY_MAX);
    }
}

void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control)
{
    struct gs_err err = {0};
    int code;

    if (control->op == GS_CONTROL_RELOAD)
        code = connection->controls ? lockd_reload_config(connection->server, &err) : -EPERM;
    else if (of_program(control->op))
        code = operate_program(connection, control);
    else
        code = change_setting(connection, control);
    lockd_log(LOCKD_LOG_INFO, "user %u (process %d): %s, process %d, value %lld: %s",
              (unsigned)connection->uid, (int)connection->pid, operation_name(control->op),
              control->pid, (long long)control->value, code >= 0 ? "done" : strerror(-code));
    if (code >= 0)
        answer(connection, 0, (uint32_t)code, "%s", "");
    else if (err.code != 0)
        answer(connection, code, 0, "%.190s", err.text);
    else
        explain(connection, control, code);
}
