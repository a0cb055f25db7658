/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h: the answers to `gpusharectl status` and `get`.
 */
#pragma once

struct gs_wire_account;
struct gs_wire_get;
struct lockd_connection;
struct sched_client;

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
