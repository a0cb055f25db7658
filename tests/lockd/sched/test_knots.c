/* SPDX-License-Identifier: Apache-2.0
 *
 * test_knots.c: two jobs of two ranks that have formed and fit together need more memory at one
 * moment: client 0 (of the first job) on the first device, client 3 (of the second) on the
 * second device. Clients 1 and 2 are in a collective that ends only when these have come to
 * run. tests/lockd/programs/test_trial.c has random jobs of that kind.
 */
#include "tests/lockd/harness.h"

#define CLIENTS 4

static bool is_told_beyond(const struct harness *h, int who)
{
    return (h->client[who].target.flags & GS_TARGET_BEYOND) != 0;
}

static void all_obey(struct harness *h)
{
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < CLIENTS; i++)
            if (h->client[i].client != NULL)
                obey_target(h, i);
    }
}

static void come_alone(struct harness *h, int who)
{
    const struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};
    struct harness_client *c = &h->client[who];

    c->client = sched_client_add(h->sched, c);
    sched_describe(c->client, &hello, 1);
    c->state.uuid[0] = (uint8_t)(who % 2);
}

static void join_job(struct harness *h, int who)
{
    sched_kin(h->client[who].client, 1 + (uint64_t)who / 2, h->now);
    sched_rank(h->client[who].client, 2, h->now);
}

/* All of them run, with 4 GiB each. */
static void begin_jobs(struct harness *h, bool evidence)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (evidence) {
            come_alone(h, i);
            join_job(h, i);
        } else {
            joins_group(h, i, i < 2 ? "one" : "two");
        }
        say_state(h, i, W, 4 * GIB, 0);
    }
    for (int second = 0; second < 30; second++) {
        all_obey(h);
        pass_time(h, 1000 * MS);
    }
    for (int i = 0; i < CLIENTS; i++)
        assert_true(is_running(h, i));
}

/* client 1 waits for client 0 in a kernel, 2 for 3 */
static int awaited_by(int who)
{
    return who == 1 ? 0 : who == 2 ? 3 : -1;
}

/* The clients go on for so many ms; a client that waits in a kernel neither stops nor ends
 * before the client that it waits for runs. Returns whether a client was told to put memory
 * beyond the card. */
static bool play(struct harness *h, int milliseconds, bool *waits, bool goes_beyond)
{
    bool told = false;

    for (int ms = 0; ms < milliseconds; ms += 10) {
        for (int i = 0; i < CLIENTS; i++) {
            struct harness_client *c = &h->client[i];
            const int awaited = awaited_by(i);

            if (c->client == NULL)
                continue;
            if (awaited >= 0 && (h->client[awaited].client == NULL || is_running(h, awaited)))
                waits[i] = false;
            if (is_told_beyond(h, i) && goes_beyond && c->state.resident < c->state.demand) {
                c->state.over += c->state.demand - c->state.resident;
                c->state.demand = c->state.resident;
            }
            if (!is_told_beyond(h, i) && !is_running(h, i)) {
                c->state.demand += c->state.over;
                c->state.over = 0;
            }
            told = told || is_told_beyond(h, i);
            if (waits[i])
                say_state(h, i, has_run(h, i) ? R : R | GS_STATE_STUCK, c->state.demand,
                          c->state.resident);
            else
                obey_target(h, i);
        }
        pass_time(h, 10 * MS);
    }
    return told;
}

static void grow_both(struct harness *h, bool *waits)
{
    waits[1] = waits[2] = true;
    h->client[0].state.demand = h->client[3].state.demand = 7 * GIB;
    say_state(h, 0, W, 7 * GIB, 4 * GIB);
    say_state(h, 3, W, 7 * GIB, 4 * GIB);
}

static void check_they_part(struct harness *h)
{
    bool waits[CLIENTS] = {false};

    grow_both(h, waits);
    assert_false(play(h, 2000, waits, true)); /* memory may be on its way */
    assert_true(play(h, 4000, waits, true));
    assert_false(is_told_beyond(h, 1) || is_told_beyond(h, 2));
    play(h, 20000, waits, true);
    for (int i = 0; i < CLIENTS; i++)
        assert_false(waits[i]);
    play(h, 60000, waits, true);
    for (int i = 0; i < CLIENTS; i++) { /* and it comes back when the turn is over */
        assert_false(is_told_beyond(h, i));
        assert_int_equal(h->client[i].state.over, 0);
    }
}

static void knots_formed_jobs_grow_at_once_both_go_on(void **state)
{
    begin_jobs(*state, true);
    check_they_part(*state);
}

static void knots_groups_grow_at_once_both_go_on(void **state)
{
    begin_jobs(*state, false);
    check_they_part(*state);
}

/* The other job can stop: it makes room. */
static void knots_one_job_grows_nothing_goes_beyond(void **state)
{
    struct harness *h = *state;
    bool waits[CLIENTS] = {false};

    begin_jobs(h, true);
    waits[1] = true;
    say_state(h, 0, W, 7 * GIB, 4 * GIB);
    assert_false(play(h, 20000, waits, true));
    assert_false(waits[1]);
}

static void knots_the_other_job_ends_the_memory_comes(void **state)
{
    struct harness *h = *state;
    bool waits[CLIENTS] = {false};

    begin_jobs(h, true);
    grow_both(h, waits);
    assert_true(play(h, 6000, waits, false)); /* an old library, say */
    end_client(h, 0);
    end_client(h, 1);
    play(h, 2000, waits, false);
    assert_false(waits[2]);
    assert_false(is_told_beyond(h, 3));
    assert_true(is_running(h, 3));
    assert_true(h->client[3].target.budget >= 7 * GIB);
}

/* The kernels of clients 1 and 2 run, and wait for the others, before anybody knows of a job. */
static void knots_jobs_are_known_too_late_both_go_on(void **state)
{
    static const int order[CLIENTS] = {1, 2, 0, 3};
    struct harness *h = *state;
    bool waits[CLIENTS] = {false, true, true, false};

    for (int i = 0; i < CLIENTS; i++) {
        come_alone(h, order[i]);
        say_state(h, order[i], W, 7 * GIB, 0);
        for (int round = 0; round < 4 && i < 2; round++) {
            obey_target(h, order[i]);
            pass_time(h, 10 * MS);
        }
    }
    assert_true(is_running(h, 1) && is_running(h, 2));
    for (int i = 0; i < CLIENTS; i++)
        join_job(h, i);
    play(h, 40000, waits, true);
    for (int i = 0; i < CLIENTS; i++)
        assert_false(waits[i]);
    play(h, 120000, waits, true);
    for (int i = 0; i < CLIENTS; i++) {
        assert_false(is_told_beyond(h, i));
        assert_int_equal(h->client[i].state.over, 0);
    }
}

/* Another group is there, which keeps neither memory nor its turn. */
static void knots_a_group_without_memory_changes_nothing(void **state)
{
    struct harness *h = *state;

    begin_jobs(h, true);
    for (int i = CLIENTS; i < CLIENTS + 2; i++) {
        joins_group(h, i, "idle");
        say_state(h, i, W, 0, 0);
    }
    for (int i = CLIENTS; i < CLIENTS + 2; i++)
        obey_target(h, i);
    check_they_part(h);
}

/* Client 1 says, while client 0 of its group runs for ever, that it needs all of the device
 * whenever it has a turn. */
static void pretend(struct harness *h, bool begun)
{
    const struct harness_client *c = &h->client[1];
    const uint64_t demand = has_run(h, 1) ? 9 * GIB : GIB / 4;
    uint64_t resident = sched_min(c->target.budget, demand);

    say_state(h, 0,
              !begun          ? W
              : has_run(h, 0) ? R
                              : R | GS_STATE_STUCK,
              GIB / 4, begun ? GIB / 4 : 0);
    if (!has_run(h, 1))
        resident = sched_min(resident, c->state.resident);
    say_state(h, 1, W, demand, resident);
}

/* A group on two devices, of which one runs, and the other one only says what it needs. */
static void knots_a_group_that_pretends_starves_nobody(void **state)
{
    struct harness *h = *state;
    unsigned ran = 0;
    bool begun = false;

    joins_group(h, 0, "pretends");
    joins_group(h, 1, "pretends");
    say_state(h, 0, W, GIB / 4, 0);
    say_state(h, 1, W, GIB / 4, 0);
    for (int who = 3; who < 6; who += 2) {
        h->client[who].state.uuid[0] = 1;
        say_state(h, who, W, 4 * GIB, 0);
    }
    for (unsigned i = 0; i < 15000; i++) {
        for (int who = 3; who < 6; who += 2) {
            obey_target(h, who);
            obey_target(h, who);
        }
        begun = begun || (has_run(h, 0) && h->client[0].target.budget >= GIB / 4);
        pretend(h, begun);
        pass_time(h, 20 * MS);
        ran += is_running(h, 3);
    }
    assert_in_range(ran, 15000 / 3, 15000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(knots_formed_jobs_grow_at_once_both_go_on),
        scenario(knots_groups_grow_at_once_both_go_on),
        scenario(knots_one_job_grows_nothing_goes_beyond),
        scenario(knots_the_other_job_ends_the_memory_comes),
        scenario(knots_jobs_are_known_too_late_both_go_on),
        scenario(knots_a_group_without_memory_changes_nothing),
        scenario(knots_a_group_that_pretends_starves_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
