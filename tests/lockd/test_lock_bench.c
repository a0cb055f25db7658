/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lock_bench.c: how many reports of 1000 modelled programs on one device the lock decides
 * per second. Prints figures; fails only when they are far from useful (a plan that became
 * quadratic).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lockd/model.h"

#define BENCH_CLIENTS 1000
#define BENCH_EVENTS  60000
#define DECISIONS_FLOOR                                                                        \
    2000.0 /* per second; sanitized builds on a busy machine reach it too                      \
            */

static void bench(const char *what, uint64_t demand_most)
{
    const struct model_options options = {
        .seed = 1,
        .clients = BENCH_CLIENTS,
        .devices = 1,
        .total = 140 * GIB,
        .quantum_ns = LOCKD_AUTO,
        .demand_most = demand_most,
        .bandwidth = 50000000000,
        .change_ns = 2000 * NS_PER_MS,
        .grows = true,
        .unchecked = true,
    };
    struct model *model = model_new(&options);
    const struct model_figures *figures = model_figures(model);
    double rate;

    assert_null(model_run(model, BENCH_EVENTS));
    rate = (double)figures->states * 1e9 / (double)figures->decision_ns;
    print_message(
        "%s, %d programs: %.0f decisions/s, worst %.0f us, %llu targets, %llu turns\n", what,
        BENCH_CLIENTS, rate, (double)figures->decision_worst_ns / 1e3,
        (unsigned long long)figures->targets, (unsigned long long)figures->turns);
    assert_true(rate > DECISIONS_FLOOR);
    model_free(model);
}

static void lock_bench_all_fit(void **state)
{
    (void)state;
    bench("all fit", 64 * MIB);
}

static void lock_bench_ten_times_the_device(void **state)
{
    (void)state;
    bench("ten times the device", 3 * GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_bench_all_fit),
        cmocka_unit_test(lock_bench_ten_times_the_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
