/* SPDX-License-Identifier: Apache-2.0
 *
 * room.h: the headers that nearly every file of the scheduler needs.
 */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lockd/sched/books.h"
#include "lockd/sched/budget.h"
#include "lockd/sched/capacity.h"
#include "lockd/sched/denial.h"
#include "lockd/sched/device.h"
#include "lockd/sched/gang.h"
#include "lockd/sched/lease.h"
#include "lockd/sched/measure.h"
#include "lockd/sched/plan.h"
#include "lockd/sched/policy.h"
#include "lockd/sched/quantum.h"
#include "lockd/sched/queue.h"
#include "lockd/sched/stop.h"
#include "lockd/sched/together.h"
#include "lockd/sched/turns.h"
#include "lockd/sched/vain.h"
