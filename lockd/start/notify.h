/* SPDX-License-Identifier: Apache-2.0
 *
 * notify.h: tells systemd the state of the daemon.
 */
#ifndef GS_LOCKD_START_NOTIFY_H
#define GS_LOCKD_START_NOTIFY_H

/* Sends one datagram to NOTIFY_SOCKET, if that is set: sd_notify(3). */
void lockd_notify(const char *state);

#endif
