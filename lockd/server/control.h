/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h: changes that gpusharectl requests.
 */
#ifndef GS_LOCKD_SERVER_CONTROL_H
#define GS_LOCKD_SERVER_CONTROL_H

#include <stdint.h>

struct gs_wire_control;
struct lockd_connection;
struct lockd_values;

/* The settings of one program: the rows of settings.def whose scope is PROGRAM; the others are 0. */
void lockd_control_values(const struct lockd_connection *program, struct lockd_values *values);

/* Carries out one operation, if the caller may request it, and answers. */
void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control);

/* Finds a program with that process id that the caller may steer as its owner. 0, -ESRCH or
 * -EPERM. */
int lockd_control_find(const struct lockd_connection *connection, int32_t pid,
                       struct lockd_connection **program);

#endif
