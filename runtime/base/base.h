/* SPDX-License-Identifier: Apache-2.0
 *
 * base.h: the headers that nearly every file of the library needs. A file that includes a
 * header which includes this one does not name it again.
 */
#pragma once

#include "runtime/base/mutex.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/daemon.h"
#include "runtime/base/log.h"
#include "runtime/base/own_fd.h"
#include "runtime/base/worker.h"

static inline uint64_t gs_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
