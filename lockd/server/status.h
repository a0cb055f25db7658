/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h: the answers to `gpusharectl status` and `get`.
 */
#ifndef GS_LOCKD_SERVER_STATUS_H
#define GS_LOCKD_SERVER_STATUS_H

struct gs_wire_get;
struct lockd_connection;

/* Answers GS_WIRE_STATUS, and GS_WIRE_GET. */
void lockd_status_send(struct lockd_connection *connection);
void lockd_status_settings(struct lockd_connection *connection, const struct gs_wire_get *get);

#endif
