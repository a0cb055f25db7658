/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h: changes that gpusharectl requests, and its questions: status, settings, accounts.
 */
#pragma once

#include "common/err.h"

#include <stdint.h>

struct gs_wire_control;
struct lockd_config;
struct lockd_connection;
struct lockd_server;
struct gs_wire_account;
struct gs_wire_get;
struct sched_client;

/* Carries out one operation, if the caller may request it, and answers. */
void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control);

/* Finds a program with that process id that the caller may steer as its owner. 0, -ESRCH or
 * -EPERM. */
int lockd_control_find(const struct lockd_connection *connection, int32_t pid,
                       struct lockd_connection **program);

/* Reads the configuration again, for SIGHUP and `gpusharectl reload`. config: in: the present,
 * out: the new configuration. 0, or -errno with config untouched. */
typedef int lockd_reload(void *context, struct lockd_config *config, struct gs_err *err);

/* How this daemon reads its configuration. */
struct lockd_reloading {
    lockd_reload *read; /* NULL: it has none */
    void *context;
};

/* Reads the configuration again and applies it. 0, or -errno and nothing has changed. */
int lockd_reload_config(struct lockd_server *server, struct gs_err *err);

/* Answers GS_WIRE_STATUS, and GS_WIRE_GET. */
void lockd_status_send(struct lockd_connection *connection);
void lockd_status_settings(struct lockd_connection *connection, const struct gs_wire_get *get);
/* A program has ended, and the scheduler still has it. Adds its figures to the account of its
 * group. */
void lockd_status_gone(const struct lockd_connection *connection,
                       const struct sched_client *client);
/* Answers GS_WIRE_ACCOUNT, for a group of the caller's user. */
void lockd_status_account(struct lockd_connection *connection,
                          const struct gs_wire_account *asked);
