/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h: the answer to `gpusharectl status`.
 */
#ifndef GS_LOCKD_SERVER_STATUS_H
#define GS_LOCKD_SERVER_STATUS_H

struct lockd_connection;

void lockd_status_send(struct lockd_connection *connection);

#endif
