/* SPDX-License-Identifier: Apache-2.0
 *
 * test_random.c: random programs against the scheduler (model.h). GPUSHARE_TEST_EVENTS=N: so
 * many events altogether instead of 4 million; GPUSHARE_TEST_SEED=N: other programs;
 * GPUSHARE_TEST_ONLY=PATTERN: only the tests of that name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lockd/model.h"

#include <stdlib.h>

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* Small devices and short quanta: many turns. Only mixed programs are fit for these bounds. */
static void mix_options(struct model_options *options, uint64_t seed)
{
    options->devices = 1 + (uint32_t)(seed % 3);
    options->total = (uint64_t[]){GIB, 2 * GIB, 16 * GIB}[seed / 3 % 3];
    options->quantum_ns =
        (uint64_t[]){LOCKD_AUTO, 200 * NS_PER_MS, 50 * NS_PER_MS, LOCKD_AUTO}[seed / 9 % 4];
    options->bandwidth = (uint64_t[]){50000000000, 4000000000}[seed / 36 % 2];
    options->change_ns = (uint64_t[]){100, 1500, 20000}[seed / 5 % 3] * NS_PER_MS;
    options->demand_most = options->total / (1 + seed / 7 % 5) / 10 * 11;
}

/* In the end everything must come to rest, and all run that fit together. */
static const char *come_to_rest(struct model *model)
{
    const char *failure = model_settle(model, false, 300000 * NS_PER_MS);

    if (failure == NULL)
        failure = model_must_be_quiet(model, 60000 * NS_PER_MS);
    model_make_fit(model);
    if (failure == NULL)
        failure = model_settle(model, true, 300000 * NS_PER_MS);
    if (failure == NULL)
        failure = model_must_be_quiet(model, 60000 * NS_PER_MS);
    if (failure == NULL && !model_all_run(model))
        failure = "all fit, but not all run";
    return failure;
}

/* Each seed is another mix of programs. */
static struct model *run_one(struct model_options options, uint64_t seed)
{
    struct model *model;
    const char *failure;

    options.seed = seed;
    options.clients = 1 + (uint32_t)(seed * 7 % 12);
    options.devices = 1 + (uint32_t)(seed % 2);
    options.change_ns = (uint64_t[]){200, 1500, 20000}[seed / 5 % 3] * NS_PER_MS;
    options.demand_most = options.total / (1 + seed % 5) / 10 * 11;
    if (options.mixed)
        mix_options(&options, seed);
    model = model_new(&options);
    assert_non_null(model);
    failure = model_run(model, 15000);
    if (failure == NULL && options.mixed) /* all of them, as they are */
        failure = model_settle(model, true, 60000 * NS_PER_MS);
    if (failure == NULL)
        failure = come_to_rest(model);
    if (failure != NULL)
        fail_msg("seed %llu: %s", (unsigned long long)seed, failure);
    return model;
}

static void run_many(const struct model_options *options, uint64_t share)
{
    const uint64_t events = from_environment("GPUSHARE_TEST_EVENTS", 4000000) * share / 100;
    const uint64_t seed = from_environment("GPUSHARE_TEST_SEED", 1);
    uint64_t worst_wait = 0, worst_part = 0, worst_rate = 0, targets = 0, turns = 0, done = 0;

    for (uint64_t i = 0; done < events; i++) {
        struct model *model = run_one(*options, seed * 1000 + i);

        worst_wait = sched_max(worst_wait, model_figures(model)->wait_worst_ns);
        worst_part = sched_max(worst_part, model_figures(model)->wait_part);
        worst_rate = sched_max(worst_rate, model_figures(model)->rate_part);
        targets += model_figures(model)->targets;
        turns += model_figures(model)->turns;
        done += model_figures(model)->events;
        model_free(model);
    }
    print_message("%llu events, %llu targets, %llu turns; longest wait %.1f s, %.1f %% of the "
                  "bound; most turns a second %.1f %%\n",
                  (unsigned long long)done, (unsigned long long)targets,
                  (unsigned long long)turns, (double)worst_wait / 1e9, (double)worst_part / 10,
                  (double)worst_rate / 10);
}

static const struct model_options plain = {
    .total = 16 * GIB,
    .quantum_ns = LOCKD_AUTO,
    .bandwidth = 50000000000,
    .grows = true,
};

static void random_orderly_programs(void **state)
{
    (void)state;
    run_many(&plain, 40);
}

static void random_measured_device(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.measured = true;
    options.quantum_ns = 500 * NS_PER_MS;
    run_many(&options, 15);
}

static void random_kills_pauses_restarts(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.kills = options.pauses = options.restarts = true;
    options.quantum_ns = 700 * NS_PER_MS;
    run_many(&options, 25);
}

static void random_stuck_programs(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.stuck = options.kills = true;
    run_many(&options, 10);
}

static void random_less_memory_than_said(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.hidden = 2 * GIB;
    run_many(&options, 10);
}

static void random_memory_that_cannot_leave(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.keeps = options.kills = true;
    options.quantum_ns = 500 * NS_PER_MS;
    run_many(&options, 10);
}

/* Programs on some of three devices, gangs of them, short bursts. */
static void run_mixed(enum gs_policy policy, bool kills, uint64_t share)
{
    struct model_options options = plain;

    options.mixed = true;
    options.policy = policy;
    options.kills = options.pauses = options.restarts = kills;
    run_many(&options, share);
}

static void random_mixed_fair(void **state)
{
    (void)state;
    run_mixed(GS_POLICY_FAIR, false, 20);
    run_mixed(GS_POLICY_FAIR, true, 20);
}

/* Background programs among them, which never keep the others waiting. */
static void random_mixed_classes(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.mixed = options.classes = true;
    run_many(&options, 6);
    options.kills = options.pauses = options.restarts = true;
    run_many(&options, 6);
    options.stuck = true;
    run_many(&options, 6);
}

static void random_mixed_rr(void **state)
{
    (void)state;
    run_mixed(GS_POLICY_RR, false, 8);
    run_mixed(GS_POLICY_RR, true, 8);
}

static void random_mixed_priority(void **state)
{
    (void)state;
    run_mixed(GS_POLICY_PRIORITY, false, 8);
    run_mixed(GS_POLICY_PRIORITY, true, 8);
}

static void random_mixed_fifo(void **state)
{
    (void)state;
    run_mixed(GS_POLICY_FIFO, false, 8);
    run_mixed(GS_POLICY_FIFO, true, 8);
}

/* With fair, a program on two devices that ran on one of them before it ever waited there had
 * credit for ever. An interactive program that could not pay had to wait for a batch program,
 * until that ran beside the others, and then took its room. A target that gave more, and less
 * again before it was sent, hid the budget of the target before it. The time in which the
 * others were held off ended too soon in the scheduler's account: with the last interactive
 * holder's burst, where another one ran on, or with what a burst is without what comes
 * meanwhile. An interactive one ended the turn of a stuck gang, which freed nothing, so that
 * the gang was served again at once. */
static void random_seeds_that_failed_before(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.kills = options.pauses = options.restarts = true;
    options.quantum_ns = 700 * NS_PER_MS;
    model_free(run_one(options, 300055));
    options = plain;
    model_free(run_one(options, 10030));
    model_free(run_one(options, 3605));
    model_free(run_one(options, 2305));
    model_free(run_one(options, 4345));
    options.hidden = 2 * GIB;
    model_free(run_one(options, 2005));
    options.hidden = 0;
    options.stuck = options.kills = true;
    model_free(run_one(options, 1125));
    model_free(run_one(options, 10011));
}

/* With a quantum shorter than a switch, the program that came to run first used up the turns of
 * its gang; a gang gave way to programs that had nothing to do, or were less important by then;
 * spare bytes were kept from a program that grew. With fair, a burst that never ended stayed
 * interactive since it did not count itself among those that wait; a gang that had used up the
 * account of interactive programs let another one pass, and ended its turn at once, again and
 * again. An interactive program whose turn had been ended before its time was passed by all
 * others that were interactive; or it stayed behind the place of a party that had had its turn
 * long ago. A new daemon's interactive programs had saved up all the time since the machine's
 * start. Where only background programs waited, behind others, the end of a turn of theirs was
 * always due. */
static void random_mixed_seeds_that_failed_before(void **state)
{
    struct model_options options = plain;

    (void)state;
    options.mixed = true;
    options.policy = GS_POLICY_RR;
    model_free(run_one(options, 100066));
    options.policy = GS_POLICY_PRIORITY;
    model_free(run_one(options, 100315));
    options.policy = GS_POLICY_FAIR;
    model_free(run_one(options, 100067));
    model_free(run_one(options, 1019));
    model_free(run_one(options, 1471));
    model_free(run_one(options, 1474));
    model_free(run_one(options, 1612));
    model_free(run_one(options, 1899));
    model_free(run_one(options, 2014));
    options.classes = true;
    model_free(run_one(options, 9017));
    options.classes = false;
    options.kills = options.pauses = options.restarts = true;
    model_free(run_one(options, 1047));
    model_free(run_one(options, 5009));
    model_free(run_one(options, 1263));
    model_free(run_one(options, 1755));
    model_free(run_one(options, 1803));
    options.policy = GS_POLICY_PRIORITY;
    model_free(run_one(options, 500125));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_orderly_programs),
        cmocka_unit_test(random_measured_device),
        cmocka_unit_test(random_kills_pauses_restarts),
        cmocka_unit_test(random_stuck_programs),
        cmocka_unit_test(random_less_memory_than_said),
        cmocka_unit_test(random_memory_that_cannot_leave),
        cmocka_unit_test(random_mixed_fair),
        cmocka_unit_test(random_mixed_classes),
        cmocka_unit_test(random_mixed_rr),
        cmocka_unit_test(random_mixed_priority),
        cmocka_unit_test(random_mixed_fifo),
        cmocka_unit_test(random_seeds_that_failed_before),
        cmocka_unit_test(random_mixed_seeds_that_failed_before),
    };

    cmocka_set_test_filter(getenv("GPUSHARE_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
