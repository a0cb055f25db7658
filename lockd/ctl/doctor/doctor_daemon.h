/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_daemon.h: checks the daemon.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_DAEMON_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_DAEMON_H

#include "lockd/ctl/doctor/doctor.h"

/* The socket, its folder, the daemon, and the process as the daemon knows it. */
void doctor_daemon(struct doctor *doctor);
#define DOCTOR_GROUP_COMMAND "sudo usermod -aG gpushare \"$USER\""

#endif
