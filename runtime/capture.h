/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.h: stream captures under way. Between BeginCapture and EndCapture the lease is held:
 * a drain would invalidate the capture.
 */
#ifndef GS_RUNTIME_CAPTURE_H
#define GS_RUNTIME_CAPTURE_H

#include <stdbool.h>

/* Any thread. A capture that nobody has fed for a minute (its stream was destroyed) no longer
 * counts. */
bool gs_capture_active(void);

void gs_capture_after_fork(void);

#endif
