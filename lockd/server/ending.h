/* SPDX-License-Identifier: Apache-2.0
 *
 * ending.h: marks connections that are to end.
 */
#ifndef GS_LOCKD_SERVER_ENDING_H
#define GS_LOCKD_SERVER_ENDING_H

struct lockd_connection;

/* Marks the connection as dead; server.c frees it after the present events. format: the reason,
 * for the log; NULL: an ordinary end. */
void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
