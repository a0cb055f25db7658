/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vain.c: turns that do not come to run, and what is no such turn: memory that comes slowly, a
 * program that is slow to begin. Whose time that is, and how long others wait.
 */
#include "tests/lockd/harness.h"

#include "lockd/sched/bursts.h"
#include "lockd/sched/quantum.h"

#define VICTIM 0
#define LIARS  10 /* the first of them */

static void is_honest(struct harness *h, int who)
{
    if (h->client[who].state.demand == 0)
        say_state(h, who, W, 6 * GIB, 0);
    obey_target(h, who);
}

/* Each of a program's turns in vain is followed by twice as long a wait, beside its own user's. */
static void turns_in_vain_come_ever_more_rarely(void **state)
{
    enum { STEPS = 7000 };
    struct harness *h = *state;
    int ran = 0;

    is_of_user(h, VICTIM, 7);
    is_of_user(h, LIARS, 7);
    for (int i = 0; i < STEPS; i++) {
        say_state(h, LIARS, W, 9 * GIB, 0);
        is_honest(h, VICTIM);
        pass_time(h, 100 * MS);
        ran += is_running(h, VICTIM);
    }
    assert_true(ran > STEPS * 8 / 10);
}

/* Needs so long without a byte at the beginning of a turn, each time or until it has run; runs then. */
static void is_slow(struct harness *h, int who, uint64_t ns, bool each)
{
    if (!has_run(h, who))
        h->since[who] = h->now;
    if (h->now - h->since[who] < ns && (each || !h->ran[who]))
        say_state(h, who, W, 6 * GIB, 0);
    else
        obey_target(h, who);
    h->ran[who] |= is_running(h, who);
}

/* 8 s at the beginning of each turn: it runs in the first, and what its turns take beyond that is its
 * own user's time. */
static void slow_program_runs_and_costs_its_own_user(void **state)
{
    enum { STEPS = 6000 };
    struct harness *h = *state;
    int ran[2] = {0, 0};

    is_of_user(h, VICTIM, 1);
    is_of_user(h, LIARS, 7);
    for (int i = 0; i < STEPS; i++) {
        is_slow(h, LIARS, 8000 * MS, true);
        is_honest(h, VICTIM);
        pass_time(h, 100 * MS);
        ran[0] += is_running(h, VICTIM);
        ran[1] += is_running(h, LIARS);
        assert_true(i < 90 || ran[1] != 0);
    }
    assert_in_range(ran[0], STEPS * 45 / 100, STEPS * 55 / 100);
    assert_true(ran[1] > STEPS / 5);
}

/* Eight programs need 8 s once each: one after the other runs, and between them the other user's. */
static void slow_programs_of_a_user_all_run(void **state)
{
    struct harness *h = *state;
    const uint64_t begun = h->now;
    unsigned have = 0;

    is_of_user(h, VICTIM, 1);
    for (int who = LIARS; who < LIARS + 8; who++)
        is_of_user(h, who, 7);
    while (have < 8) {
        have = 0;
        for (int who = LIARS; who < LIARS + 8; who++) {
            is_slow(h, who, 8000 * MS, false);
            have += h->ran[who];
        }
        is_honest(h, VICTIM);
        pass_time(h, 100 * MS);
        assert_true(h->now - begun < 9000 * MS + have * 35000ull * MS);
    }
}

/* Grows by 100 MB/s from 1 to 6 GiB, in pieces that it uses at once, or only when it has all. */
static void grows(struct harness *h, int who, bool uses)
{
    const struct harness_client *c = &h->client[who];
    const uint64_t demand = sched_max(c->state.demand, GIB),
                   may = has_run(h, who) ? c->target.budget : 0;

    if (may < demand)
        say_state(h, who, W, demand, may);
    else
        say_state(h, who, uses || demand >= 6 * GIB ? R : W,
                  sched_min(demand + 10000000, 6 * GIB), demand);
}

static void program_that_loads_piece_by_piece_runs(void **state)
{
    enum { STEPS = 4000 };

    for (int uses = 0; uses < 2; uses++) {
        struct harness *h = *state;
        int ran[2] = {0, 0}, full = 0;

        is_of_user(h, VICTIM, 1);
        is_of_user(h, LIARS, 7);
        for (int i = 0; i < STEPS; i++) {
            grows(h, LIARS, uses != 0);
            is_honest(h, VICTIM);
            pass_time(h, 100 * MS);
            ran[0] += is_running(h, VICTIM);
            ran[1] += is_running(h, LIARS);
            full = full == 0 && is_running(h, LIARS) && h->client[LIARS].state.demand == 6 * GIB
                       ? i
                       : full;
        }
        assert_true(ran[0] > STEPS * 4 / 10 && ran[1] > STEPS * 2 / 10);
        assert_in_range(full, 1, STEPS / 2);
        end_client(h, VICTIM);
        end_client(h, LIARS);
    }
}

/* 42 of 80 GiB come in over PCIe 3 after as much has left: neither program loses a turn. */
static void a_slow_bus_is_no_lack_of_progress(void **state)
{
    enum { STEP = 10, STEPS = 30000 };
    const uint64_t size = 42 * GIB, step = 60 * MIB; /* 6 GB/s */
    struct harness *h = *state;
    int ran[2] = {0, 0};

    h->total = 80 * GIB;
    for (int who = 0; who < 2; who++) {
        is_of_user(h, who, 1 + (uint32_t)who);
        say_state(h, who, W, size, 0);
    }
    for (int i = 0; i < STEPS; i++) {
        for (int who = 0; who < 2; who++) {
            struct harness_client *c = &h->client[who];
            const uint64_t has = c->state.resident, may = sched_min(c->target.budget, size);

            if (has_run(h, who) && has == size)
                say_state(h, who, R, size, size);
            else if (has_run(h, who))
                say_state(h, who, W | (has < may ? GS_STATE_MOVING : 0), size,
                          sched_max(has, sched_min(has + step, may)));
            else
                say_state(h, who, W | (has > may ? GS_STATE_MOVING : 0), size,
                          sched_min(has, sched_max(sched_less(has, step), may)));
            ran[who] += is_running(h, who);
            assert_int_equal(sched_member_find(c->client, c->state.uuid)->party->turn.skipped,
                             0);
        }
        pass_time(h, STEP * MS);
    }
    assert_true(ran[0] > STEPS / 4 && ran[1] > STEPS / 4);
}

/* 30 of 40 GiB come in at 150 MB/s, for they were spilled to a disk; those of the other user at
 * once. No turn is lost, and the first user's share of the time goes into that. */
static void memory_may_come_from_a_disk(void **state)
{
    enum { STEP = 10, STEPS = 60000 };
    const uint64_t size = 30 * GIB, step = 1500000;
    struct harness *h = *state;
    int ran[2] = {0, 0};

    h->total = 40 * GIB;
    for (int who = 0; who < 2; who++) {
        is_of_user(h, who, 1 + (uint32_t)who);
        say_state(h, who, W, size, 0);
    }
    for (int i = 0; i < STEPS; i++) {
        const struct harness_client *c = &h->client[0];
        const uint64_t has = c->state.resident, may = sched_min(c->target.budget, size);

        obey_target(h, 1);
        if (has_run(h, 0) && has < size)
            say_state(h, 0, W | (has < may ? GS_STATE_MOVING : 0), size,
                      sched_max(has, sched_min(has + step, may)));
        else
            obey_target(h, 0);
        for (int who = 0; who < 2; who++)
            ran[who] += is_running(h, who);
        assert_int_equal(sched_member_find(c->client, c->state.uuid)->party->turn.skipped, 0);
        pass_time(h, STEP * MS);
    }
    assert_true(ran[0] > STEPS / 80 && ran[1] > STEPS / 3);
}
/* A turn in which nothing runs is charged, and makes its program no older: it goes first as before. */
static void a_turn_in_vain_makes_nobody_older(void **state)
{
    struct harness *h = *state;
    const struct sched_member *member;

    is_of_user(h, VICTIM, 1);
    is_of_user(h, LIARS, 7);
    run_with(h, VICTIM, 6 * GIB);
    say_state(h, LIARS, W, 9 * GIB, 0);
    for (int i = 0; i < 300; i++) {
        obey_target(h, VICTIM);
        say_state(h, LIARS, W, 9 * GIB, 0);
        pass_time(h, 100 * MS);
    }
    member = lockd_entry(h->client[LIARS].client->members.next, struct sched_member, of_client);
    assert_true(member->party->turn.skipped != 0);
    assert_int_equal(sched_party_age(member->party, h->now), 0);
}

/* Two programs of a user come by turns, also while all have to wait until others had as much: the turns
 * of another user's programs are in vain. */
static void programs_of_a_user_come_by_turns_beside_turns_in_vain(void **state)
{
    enum { STEPS = 20000, OWN = 2 };
    struct harness *h = *state;

    for (int liars = 1; liars <= 10; liars += 9) {
        int waits[2] = {0, 0}, ran[2] = {0, 0};

        for (int who = 0; who < OWN + liars; who++) {
            is_of_user(h, who, who < OWN ? 1 : 7);
            say_state(h, who, W, 6 * GIB, 0);
        }
        for (int i = 0; i < STEPS; i++) {
            for (int who = OWN; who < OWN + liars; who++)
                say_state(h, who, W, 9 * GIB, 0);
            for (int who = 0; who < OWN; who++) {
                obey_target(h, who);
                waits[who] = is_running(h, who) ? 0 : waits[who] + 1;
                ran[who] += is_running(h, who);
                assert_in_range(waits[who], 0, 600); /* a minute */
            }
            pass_time(h, 100 * MS);
        }
        for (int who = 0; who < OWN; who++)
            assert_true(ran[who] > STEPS * 3 / 10);
        for (int who = 0; who < OWN + liars; who++)
            end_client(h, who);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(turns_in_vain_come_ever_more_rarely),
        scenario(slow_program_runs_and_costs_its_own_user),
        scenario(slow_programs_of_a_user_all_run),
        scenario(program_that_loads_piece_by_piece_runs),
        scenario(a_slow_bus_is_no_lack_of_progress),
        scenario(memory_may_come_from_a_disk),
        scenario(a_turn_in_vain_makes_nobody_older),
        scenario(programs_of_a_user_come_by_turns_beside_turns_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
