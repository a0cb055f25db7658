/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gate.c: the gate with many threads and a closer: while it is closed nobody is inside.
 *
 * The witness: `inside` counts threads between enter and leave, with full barriers; the closer
 * reads it while closed.
 */
#include "tests/runtime/gate/gate_alone.h"

#include <stdlib.h>

#include "tests/runtime/random.h"

#define CLOSINGS 100
#define PASSES   1000
#define THREADS  8

static _Atomic(int) inside;
static _Atomic(bool) stop;
static _Atomic(uint64_t) passes, refused;

static void pass_once(uint64_t *seed)
{
    const unsigned pass = gs_gate_enter();

    if (pass == GS_PASS_REFUSED) {
        atomic_fetch_add(&refused, 1);
        return;
    }
    atomic_fetch_add(&inside, 1);
    if (random_below(seed, 4) ==
        0) { /* nested: the inner leave must not open us to the closer */
        const unsigned inner = gs_gate_enter();

        if (inner != GS_PASS_NESTED)
            abort();
        gs_gate_leave(inner);
    }
    if (random_below(seed, 64) == 0)
        gate_sleep(random_below(seed, 100000));
    atomic_fetch_sub(&inside, 1);
    gs_gate_leave(pass);
    atomic_fetch_add(&passes, 1);
}

static void *run_worker(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&stop))
        pass_once(&seed);
    return NULL;
}

static void *short_lived(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    for (unsigned i = 0; i < 5; i++)
        pass_once(&seed);
    return NULL;
}

/* starts and ends threads all the time: registering and unregistering against a closing gate */
static void *run_spawner(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&stop)) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, short_lived, (void *)(uintptr_t)random_next(&seed)) ==
            0)
            pthread_join(thread, NULL);
    }
    return NULL;
}

/* For two seconds at least, and until there was enough of everything. */
static int close_and_open(uint64_t *seed, unsigned *closings)
{
    const uint64_t until = gs_now() + 2000 * MS;

    while (gs_now() < until || *closings <= CLOSINGS || atomic_load(&passes) <= PASSES) {
        if (gs_gate_close(1000 * MS)) {
            uint64_t rounds = random_below(seed, 200);

            (*closings)++;
            for (; rounds > 0; rounds--)
                CHECK(atomic_load(&inside) == 0);
            gs_gate_open(random_below(seed, 2) == 0);
        }
        gate_sleep(random_below(seed, 200000));
    }
    return 0;
}

static int closed_means_nobody_inside(void)
{
    pthread_t threads[THREADS + 1];
    uint64_t seed = 42;
    unsigned closings = 0;
    int result;

    gs_gate_open(false);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_worker, (void *)(i + 1));
    pthread_create(&threads[THREADS], NULL, run_spawner, (void *)(uintptr_t)99);
    result = close_and_open(&seed, &closings);
    atomic_store(&stop, true);
    gs_gate_open(false);
    for (unsigned i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(result == 0);
    CHECK(atomic_load(&refused) == 0);
    CHECK(gs_gate_calls() >= atomic_load(&passes));
    CHECK(gs_gate_waiting() == 0);
    return 0;
}

ALONE(closed_means_nobody_inside)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_closed_means_nobody_inside),
    };

    gs_gate_init(gate_may_wait);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
