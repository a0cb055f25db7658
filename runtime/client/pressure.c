/* SPDX-License-Identifier: Apache-2.0
 *
 * pressure.c: owns the thread in which the program's callback runs.
 *
 * The thread is made with the first callback, with all signals blocked, like the library's own.
 * State: one object under its lock (rank GS_LOCK_CLIENT), which is held neither while the
 * callback runs nor across a driver call; the last three fields are the client thread's. The
 * callback may do anything, also set another one or never return: then it is not called any more.
 */
#include "runtime/client/pressure.h"

#define LOOK_NS 1000000ull /* a lost wake-up costs so long */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t asked_for;
    bool started, asked, running;
    void (*callback)(void *);
    void *argument;
    /* client thread only */
    bool warned, waits;
    uint64_t until;      /* ns */
} self GS_ZERO_IN_CHILD; /* asked_for: start_thread() */

static void *pressure_main(void *unused)
{
    (void)unused;
    gs_lock(&self.lock, GS_LOCK_CLIENT);
    for (;;) {
        void (*callback)(void *);
        void *argument;

        while (!self.asked)
            pthread_cond_wait(&self.asked_for, &self.lock);
        self.asked = false;
        callback = self.callback;
        argument = self.argument;
        self.running = callback != NULL;
        if (callback == NULL)
            continue;
        gs_unlock(&self.lock, GS_LOCK_CLIENT);
        callback(argument);
        GS_WITH(&self.lock, GS_LOCK_CLIENT, self.running = false);
        gs_worker_wake();
        gs_lock(&self.lock, GS_LOCK_CLIENT);
    }
    return NULL;
}

/* under the lock */
static int start_thread(void)
{
    if (self.started)
        return 0;
    gs_condition_init(&self.asked_for);
    self.started = gs_worker_thread("gpushare-call", pressure_main) == 0;
    return self.started ? 0 : -EAGAIN;
}

int gs_pressure_set(void (*callback)(void *), void *argument)
{
    int error = 0;

    GS_HOLD(&self.lock, GS_LOCK_CLIENT);
    if (callback != NULL)
        error = start_thread();
    if (error == 0) {
        self.callback = callback;
        self.argument = argument;
    }
    return error;
}

/* Calls the callback, unless its last call still runs. True if it is to be waited for. */
static bool ask_callback(void)
{
    GS_HOLD(&self.lock, GS_LOCK_CLIENT);
    bool asks = self.started && self.callback != NULL && !self.running && !self.asked;

    if (asks) {
        self.asked = true;
        pthread_cond_signal(&self.asked_for);
    }
    return asks;
}

uint64_t gs_pressure_wait(uint64_t now)
{
    if (!self.warned) {
        self.warned = true;
        self.waits = ask_callback();
        self.until = now + GS_PRESSURE_NS;
    }
    if (self.waits && (now >= self.until ||
                       GS_WITH(&self.lock, GS_LOCK_CLIENT, !self.asked && !self.running)))
        self.waits = false;
    return self.waits ? LOOK_NS : 0;
}

void gs_pressure_over(void)
{
    self.warned = self.waits = false;
}
