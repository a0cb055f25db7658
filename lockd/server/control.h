/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h: what gpusharectl changes.
 */
#ifndef GS_LOCKD_SERVER_CONTROL_H
#define GS_LOCKD_SERVER_CONTROL_H

struct gs_wire_control;
struct lockd_connection;

/* Does what gpusharectl asks for, if it may, and answers it. */
void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control);

#endif
