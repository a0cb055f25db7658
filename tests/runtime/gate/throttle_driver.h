/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle_driver.h: the driver that the tests of throttle.c play.
 */
#pragma once

#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/gate/throttle.h"

/* What a test plays by itself; no stream is being captured. */
struct throttle_driver {
    CUresult (*event_create)(CUevent *event, unsigned flags);
    CUresult (*event_query)(CUevent event);
    CUresult (*event_record)(CUevent event, CUstream stream);
    CUresult (*get_current)(CUcontext *context);
};

void throttle_driver_begin(const struct throttle_driver *driver);

/* The calling thread ends, for throttle.c, and each context from 1 to `contexts`. */
void throttle_driver_end(uintptr_t contexts);
