/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: the start of a guard (guard.h): its first order, and the driver. No state.
 */
#include "lockd/move/guard.h"

#include "lockd/move/guard_driver.h"
#include "lockd/move/guard_move.h"

#include <signal.h>

static void ignore_signal(int number)
{
    (void)number;
}

int lockd_guard(int32_t pid)
{
    /* A handler rather than SIG_IGN, which the helpers of the driver would inherit. */
    const struct sigaction action = {.sa_handler = ignore_signal};
    struct lockd_guard_order order;
    struct guard_driver driver;
    int with;

    signal(SIGCHLD, SIG_DFL); /* the driver may start helpers and wait for them */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (!lockd_guard_hear(&order, &with) || order.pid <= 0 || (pid != 0 && order.pid != pid) ||
        (order.word != LOCKD_GUARD_MOVE && order.word != LOCKD_GUARD_TAKE_UP) ||
        !lockd_guard_load(&driver))
        return 1;
    return lockd_guard_move(&driver, &order, with);
}
