/* SPDX-License-Identifier: Apache-2.0
 *
 * test_denied.c: programs of one user that say what cannot be, beside those of another user: the
 * card, or the other user's programs, contradict them.
 */
#include "tests/lockd/harness.h"

/* Says so, whatever is there. */
static void says_lies(struct harness *h, int who, uint32_t flags)
{
    struct harness_client *c = &h->client[who];

    c->state.device_total = h->total;
    c->state.device_free = 0;
    c->state.flags = flags;
    c->state.demand = c->state.resident = MIB;
    c->state.pinned = 9 * GIB;
    c->state.short_bytes = (flags & GS_STATE_SHORT) != 0 ? 10 * GIB : 0;
    c->deaf = false;
    harness_report(h, c);
    c->deaf = true; /* asked, it would say the truth */
    harness_take(h);
}

/* 0 does what it was told, and then measures: nobody else has any of the room. */
static void obeys_and_measures(struct harness *h, uint64_t room)
{
    const struct gs_wire_state *state = &h->client[0].state;

    h->free_bytes = UINT64_MAX;
    obey_target(h, 0);
    obey_target(h, 0);
    h->free_bytes = room - state->resident;
    /* a program waits for its memory in the midst of a move */
    say_state(h, 0, state->flags | (has_run(h, 0) && !is_running(h, 0) ? GS_STATE_MOVING : 0),
              state->demand, state->resident);
}

/* 8 and 9 are of one user and say that nothing is free, before 0 of another one comes, while it
 * works, or when it has something else. */
static void lies_of_several_programs_of_one_user_bound_no_other(void **state)
{
    for (int before = 0; before < 2; before++) {
        struct harness *h = *state;
        bool named;
        void *owner;

        for (int who = 8; who < 10; who++)
            is_of_user(h, who, 7);
        is_of_user(h, 0, 1);
        h->free_bytes = 9 * GIB;
        for (int who = 8; before && who < 10; who++)
            says_lies(h, who, 0);
        say_state(h, 0, W, 8 * GIB, 0);
        assert_true(h->client[0].target.capacity > 8 * GIB);
        for (int i = 0; i < 100; i++) {
            obeys_and_measures(h, 9 * GIB);
            for (int who = 8; who < 10; who++)
                says_lies(h, who, i % 3 != 0 ? 0 : R | GS_STATE_SHORT);
            /* a capacity that one user had alone rises within half a second */
            assert_true((before && i < 6) || (is_running(h, 0) && has_run(h, 0) &&
                                              h->client[0].target.capacity > 8 * GIB));
            pass_time(h, 100 * MS);
        }
        named = is_named(h, &owner);
        assert_true(named || before);
        assert_true(!named || owner == &h->client[8] || owner == &h->client[9]);
        end_client(h, 0);
        end_client(h, 8);
        end_client(h, 9);
    }
}

/* 1 came first, and 8 of another user said the same of the device. */
static void leaves_figure_that_two_said(struct harness *h)
{
    is_of_user(h, 1, 1);
    h->free_bytes = 9 * GIB;
    say_state(h, 1, 0, 0, 0);
    for (int i = 0; i < 2; i++)
        says_total(h, 8, h->total);
    assert_true(device_of(h)->measure.backed);
    end_client(h, 1);
}

/* 8 was there first and says that the device is small, or that nothing of it is free. 0 of another user
 * has said nothing of free memory yet, and can have what it needs. */
static void lies_before_a_newcomer_refuse_it_no_memory(void **state)
{
    static const uint64_t totals[] = {1, 4 * GIB, 10 * GIB, 80 * GIB};

    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        for (int kind = 0; kind < 4; kind++) {
            struct harness *h = *state;
            const uint64_t before = kind == 0 ? UINT64_MAX : kind == 1 ? 0 : totals[i];

            is_of_user(h, 8, 7);
            is_of_user(h, 0, 1);
            if (kind == 3)
                leaves_figure_that_two_said(h);
            h->client[8].deaf = true; /* asked, it would say the truth */
            h->free_bytes = before;
            says_total(h, 8, totals[i]);
            h->free_bytes = UINT64_MAX;
            say_state(h, 0, W, 8 * GIB, 0);
            assert_true(h->client[0].target.capacity > 8 * GIB);
            h->free_bytes = before;
            says_total(h, 8, kind == 2 ? 1 : totals[i]);
            h->free_bytes = UINT64_MAX;
            pass_time(h, 200 * MS);
            say_state(h, 0, W, 8 * GIB, 0);
            assert_true(h->client[0].target.capacity > 8 * GIB);
            h->free_bytes = 9 * GIB;
            say_state(h, 0, W, 8 * GIB, 0);
            assert_true(h->client[0].target.capacity > 8 * GIB);
            pass_time(h,
                      1200 * MS); /* the budget of a program that is silent has ended by then */
            say_state(h, 0, W, 8 * GIB, 0);
            assert_true(has_run(h, 0) && h->client[0].target.budget >= 8 * GIB);
            end_client(h, 0);
            end_client(h, 8);
        }
    }
}

/* Something else takes memory: two users see it. */
static void external_of_two_users_that_agree_counts(void **state)
{
    struct harness *h = *state;

    is_of_user(h, 0, 1);
    is_of_user(h, 1, 2);
    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 1, 0, 0, 0);
    h->free_bytes = 8 * GIB;
    say_state(h, 0, 0, 0, 0);
    pass_time(h, 2 * SILENT);
    assert_true(device_of(h)->measure.external == 2 * GIB);
}

/* The card shows nothing of the processes of user 7 (2 to 8), and of 0's what it says. */
static uint64_t shows(const void *context, const void *owner)
{
    const struct harness *h = context;
    const struct harness_client *c = owner;

    return c == &h->client[0] || h->bears_out ? c->state.resident : 0;
}

/* asked_at: when the card was asked */
static void card_answers(struct harness *h, uint64_t free_bytes, uint64_t asked_at)
{
    const struct sched_card card = {.total = h->total,
                                    .free = free_bytes,
                                    .asked_at = asked_at,
                                    .shown = shows,
                                    .context = h};

    sched_card(h->sched, &card, h->now);
    harness_take(h);
}

static void card_says(struct harness *h, uint64_t free_bytes)
{
    pass_time(h, 1000 * MS);
    card_answers(h, free_bytes, h->now);
}

/* 8 got memory in its turn, and says for ever that it has it. */
static void lies_of_memory_that_the_card_does_not_show_count_nothing(void **state)
{
    struct harness *h = *state;
    void *owner;

    is_of_user(h, 8, 7);
    is_of_user(h, 0, 1);
    run_with(h, 8, 9 * GIB);
    say_state(h, 8, 0, 9 * GIB, 9 * GIB);
    say_state(h, 0, W, 6 * GIB, 0);
    assert_true(sched_card_pause(h->sched, h->now) < 1000 * MS); /* it has not answered yet */
    card_says(h, 10 * GIB);
    say_state(h, 8, 0, 9 * GIB, 9 * GIB);
    card_says(h, 10 * GIB);
    assert_false(is_named(h, &owner)); /* its report may be late */
    card_says(h, 10 * GIB);
    assert_true(is_named(h, &owner) && owner == &h->client[8]);
    assert_true(has_run(h, 0) && h->client[0].target.budget >= 6 * GIB);
    run_with(h, 0, 6 * GIB);
    for (int i = 0; i < 10; i++) {
        say_state(h, 8, 0, 9 * GIB, 9 * GIB);
        card_says(h, 4 * GIB);
        assert_true(is_running(h, 0) && h->client[0].target.budget >= 6 * GIB);
        assert_true(device_of(h)->measure.external == 0);
    }
    assert_false(is_named(h, &owner)); /* once is enough */
}

static uint64_t shows_of_8;

static uint64_t shows_beside(const void *context, const void *owner)
{
    const struct harness *h = context;

    return owner == &h->client[8] ? shows_of_8 : shows(context, owner);
}

/* 8 has 4 GiB that it counts, and the driver brings in as much of what it does not count, and removes it again.
 * What the card shows of the process beside the counted is no stranger's, whatever 8 says, and no more than that. */
static void uncounted_memory_is_what_the_card_shows_beside_the_counted(void **state)
{
    struct harness *h = *state;
    const struct sched_card card = {
        .total = h->total, .free = 2 * GIB, .shown = shows_beside, .context = h};

    is_of_user(h, 8, 7);
    is_of_user(h, 0, 1);
    run_with(h, 8, 4 * GIB);
    h->free_bytes = UINT64_MAX;
    say_state(h, 0, 0, 0, 0);
    h->client[8].state.loose = 8 * GIB;
    say_state(h, 8, R, 4 * GIB, 4 * GIB);
    for (uint64_t strangers = 0; strangers <= 4 * GIB; strangers += 4 * GIB) {
        shows_of_8 = 8 * GIB - strangers;
        for (int i = 0; i < 2; i++) {
            pass_time(h, 1000 * MS);
            sched_card(h->sched, &card, h->now);
            harness_take(h);
        }
        assert_int_equal(device_of(h)->measure.external, strangers);
    }
}

/* When the other user's program has left, nobody is asked any more: what the program says counts. */
static void a_denied_program_that_is_alone_is_believed(void **state)
{
    struct harness *h = *state;

    is_of_user(h, 8, 7);
    is_of_user(h, 0, 1);
    run_with(h, 8, 9 * GIB);
    say_state(h, 0, W, 6 * GIB, 0);
    for (int i = 0; i < 3; i++) {
        say_state(h, 8, 0, 9 * GIB, 9 * GIB);
        card_says(h, 10 * GIB);
    }
    assert_true(device_of(h)->books.sum.resident == 0);
    end_client(h, 0);
    say_state(h, 8, 0, 9 * GIB, 9 * GIB);
    assert_true(device_of(h)->books.sum.resident == 9 * GIB);
}

static uint64_t shows_two(const void *context, const void *owner)
{
    const struct harness *h = context;
    const struct harness_client *c = owner;

    return c == &h->client[0] || c == &h->client[4] ? c->state.resident : 0;
}

/* An honest and interactive program of its group does not bring it forward again. */
static void a_denied_program_goes_last_in_honest_company(void **state)
{
    struct harness *h = *state;
    const struct sched_card card = {
        .total = h->total, .free = 10 * GIB, .shown = shows_two, .context = h};

    is_of_user(h, 0, 1);
    for (int who = 4; who <= 8; who += 4) {
        const struct gs_wire_hello hello = {
            .weight = GS_WEIGHT_DEFAULT, .class = GS_CLASS_INTERACTIVE, .group = "pair"};

        h->client[who].client = sched_client_add(h->sched, &h->client[who]);
        sched_describe(h->client[who].client, &hello, 7);
    }
    run_with(h, 8, 8 * GIB);
    run_with(h, 4, GIB / 2);
    say_state(h, 0, W, 6 * GIB, 0);
    assert_true(sched_gang_class(h->client[8].client->gang) == GS_CLASS_INTERACTIVE);
    for (int i = 0; i < 4; i++) {
        say_state(h, 8, 0, 8 * GIB, 8 * GIB);
        say_state(h, 4, 0, GIB / 2, GIB / 2);
        pass_time(h, 1000 * MS);
        sched_card(h->sched, &card, h->now);
        harness_take(h);
    }
    assert_true(h->client[8].client->last != 0 && h->client[4].client->last == 0);
    assert_true(sched_gang_class(h->client[8].client->gang) == GS_CLASS_BACKGROUND);
}

/* Each claim is below what may be a rounding, all together are not. */
static void many_small_lies_are_found(void **state)
{
    struct harness *h = *state;
    void *owner;

    is_of_user(h, 0, 1);
    run_with(h, 0, GIB);
    for (int who = 2; who <= 8; who += 2) {
        is_of_user(h, who, 7);
        run_with(h, who, GIB / 4);
    }
    for (int i = 0; i < 3; i++) {
        for (int who = 2; who <= 8; who += 2)
            say_state(h, who, R, GIB / 4, GIB / 4);
        say_state(h, 0, R, GIB, GIB);
        card_says(h, 9 * GIB);
    }
    assert_true(device_of(h)->books.sum.resident <= GIB);
    assert_true(is_named(h, &owner) && owner != &h->client[0]);
}

/* The programs' words on free memory, and on the size of the device, do not count beside it. */
static void lies_of_free_memory_do_not_count_beside_the_card(void **state)
{
    struct harness *h = *state;
    void *owner;

    is_of_user(h, 8, 7);
    is_of_user(h, 0, 1);
    h->free_bytes = 9 * GIB;
    run_with(h, 0, GIB);
    for (int i = 0; i < 10; i++) {
        says_lies(h, 8, R | GS_STATE_SHORT);
        h->client[8].state.device_total = 1ull << 45;
        h->client[8].state.device_free = 0;
        harness_report(h, &h->client[8]);
        harness_take(h);
        card_says(h, 7 * GIB);
        assert_true(i < 2 || device_of(h)->measure.external ==
                                 2 * GIB); /* it is: an answer, and another */
    }
    assert_true(device_of(h)->measure.total == h->total);
    assert_true(device_of(h)->space.short_bytes == 0);
    assert_true(is_named(h, &owner) && owner == &h->client[8]);
    assert_false(is_named(h, &owner));
}

/* What the card shows of a process later bears it out: it is believed again at once. */
static void a_program_that_the_card_bears_out_is_believed(void **state)
{
    struct harness *h = *state;

    is_of_user(h, 8, 7);
    is_of_user(h, 0, 1);
    run_with(h, 0, 6 * GIB);
    say_state(h, 0, 0, 6 * GIB, 6 * GIB);
    say_state(h, 8, W, 9 * GIB, 0);
    say_state(h, 0, 0, 6 * GIB, 0);
    obey_target(h, 8);
    for (int i = 0; i < 3; i++)
        card_says(h, 10 * GIB);
    assert_true(device_of(h)->books.sum.resident == 0);
    assert_true(h->client[8].client->last != 0);
    say_state(h, 0, 0, 6 * GIB, 0);
    h->bears_out = true;
    card_says(h, GIB);
    assert_true(device_of(h)->books.sum.resident == 9 * GIB);
    assert_true(h->client[8].client->last == 0);
}

/* 8 and 9 of user 7 are on the device, and the card contradicts 8: 9 goes last with it, also when it
 * comes to a second device, where nothing is known of it. */
static void a_program_that_goes_last_on_one_device_does_so_on_all(void **state)
{
    struct harness *h = *state;

    is_of_user(h, 8, 7);
    is_of_user(h, 9, 7);
    is_of_user(h, 0, 1);
    run_with(h, 8, 9 * GIB);
    say_state(h, 9, 0, MIB, 0);
    say_state(h, 0, W, 6 * GIB, 0);
    for (int i = 0; i < 3; i++)
        card_says(h, 10 * GIB);
    assert_true(h->client[8].client->last != 0 && h->client[9].client->last != 0);
    h->client[9].state.uuid[0] = 1;
    say_state(h, 9, 0, MIB, 0);
    assert_true(h->client[9].client->last != 0);
    end_client(h, 9);
    end_client(h, 8);
    assert_int_equal(h->sched->background, 0);
}

/* More is free than there is, says a program of user 7: the contexts of others need their reserve. */
static void lies_of_too_much_free_memory_take_no_reserve(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    is_of_user(h, 0, 1);
    is_of_user(h, 8, 7);
    h->free_bytes = 9 * GIB;
    say_state(h, 0, 0, 0, 0);
    before = sched_device_reserve(device_of(h));
    h->free_bytes = 1ull << 45;
    say_state(h, 8, 0, 0, 0);
    assert_true(before != 0 && sched_device_reserve(device_of(h)) == before);
}

/* The victim 0 and a program of another user, where 6 GiB are free. */
static void begin_questions(struct harness *h)
{
    is_of_user(h, 0, 1);
    is_of_user(h, 8, 7);
    for (int i = 0; i < 4; i++) {
        h->free_bytes = i == 0 ? 10 * GIB : 6 * GIB;
        say_state(h, 0, 0, 0, 0);
        say_state(h, 8, 0, 0, 0);
        card_says(h, h->free_bytes);
    }
    pass_time(h, 2 * SILENT);
    card_says(h, 6 * GIB);
    assert_int_equal(device_of(h)->measure.external, 4 * GIB);
}

/* asks whether its capacity holds; true: it is answered at once */
static bool asks(struct harness *h, int who)
{
    h->client[who].state.asked++;
    say_state(h, who, 0, 0, 0);
    return h->client[who].target.answered == h->client[who].state.asked;
}

/* 8 asks, and has no figure. */
static void asks_without_figure(struct harness *h)
{
    const uint64_t free_bytes = h->free_bytes;

    h->free_bytes = UINT64_MAX;
    asks(h, 8);
    h->free_bytes = free_bytes;
}

/* A program that asks before it refuses memory waits for the card only if its own figure says that there is more. */
static void question_waits_for_the_card_if_there_seems_to_be_more(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    begin_questions(h);
    assert_true(asks(h, 0));
    assert_true(sched_card_pause(h->sched, h->now) >= 1000 * MS);

    before = h->now;
    pass_time(h, 10 * MS);
    h->free_bytes = 10 * GIB;
    assert_false(asks(h, 0));
    assert_true(sched_card_pause(h->sched, h->now) < 1000 * MS);
    pass_time(h, 500 * MS);
    card_answers(h, 6 * GIB, before); /* however late it comes */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(h->client[0].target.answered, h->client[0].state.asked - 1);
        card_says(h, 10 * GIB);
    }
    assert_int_equal(h->client[0].target.answered, h->client[0].state.asked);
    assert_in_range(h->client[0].target.capacity, 9 * GIB, 10 * GIB);
}

/* Questions of one program hold up no other's. */
static void question_of_another_user_holds_up_nobody(void **state)
{
    struct harness *h = *state;

    begin_questions(h);
    for (int i = 0; i < 10; i++) {
        asks_without_figure(h);
        assert_true(asks(h, 0));
        pass_time(h, 200 * MS);
        card_answers(h, 6 * GIB, h->now);
    }
}

/* Each question has its own time: what the card was asked before it is no answer to it. */
static void question_is_answered_by_what_was_measured_after_it(void **state)
{
    struct harness *h = *state;
    uint64_t between;

    begin_questions(h);
    asks_without_figure(h);
    pass_time(h, 100 * MS);
    between = h->now;
    pass_time(h, 100 * MS);
    h->free_bytes = 10 * GIB;
    assert_false(asks(h, 0));
    card_answers(h, 6 * GIB, between);
    assert_int_equal(h->client[8].target.answered, h->client[8].state.asked);
    assert_int_equal(h->client[0].target.answered, h->client[0].state.asked - 1);
    assert_true(sched_card_pause(h->sched, h->now) < 1000 * MS);
    for (int i = 0; i < 2; i++)
        card_says(h, 10 * GIB);
    assert_int_equal(h->client[0].target.answered, h->client[0].state.asked);
    assert_in_range(h->client[0].target.capacity, 9 * GIB, 10 * GIB);
}

/* A question beside an open one is heard with the echo of the answer, so that a program that asks
 * all the time is answered, too. */
static void question_beside_an_open_one_comes_after_it(void **state)
{
    struct harness *h = *state;
    uint64_t first;

    begin_questions(h);
    pass_time(h, 1 * MS);
    h->free_bytes = 10 * GIB;
    assert_false(asks(h, 0));
    first = h->client[0].state.asked;
    for (int i = 0; i < 20 && h->client[0].target.answered < first; i++) {
        pass_time(h, 100 * MS);
        card_answers(h, 10 * GIB, h->now);
        asks(h, 0);
    }
    assert_true(h->client[0].target.answered >= first);
    for (int i = 0; i < 3; i++) {
        card_says(h, 10 * GIB);
        say_state(h, 0, 0, 0, 0); /* the echo */
    }
    assert_int_equal(h->client[0].target.answered, h->client[0].state.asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(question_waits_for_the_card_if_there_seems_to_be_more),
        scenario(question_of_another_user_holds_up_nobody),
        scenario(question_is_answered_by_what_was_measured_after_it),
        scenario(question_beside_an_open_one_comes_after_it),
        scenario(lies_of_several_programs_of_one_user_bound_no_other),
        scenario(lies_before_a_newcomer_refuse_it_no_memory),
        scenario(external_of_two_users_that_agree_counts),
        scenario(lies_of_memory_that_the_card_does_not_show_count_nothing),
        scenario(uncounted_memory_is_what_the_card_shows_beside_the_counted),
        scenario(a_denied_program_that_is_alone_is_believed),
        scenario(a_denied_program_goes_last_in_honest_company),
        scenario(many_small_lies_are_found),
        scenario(a_program_that_the_card_bears_out_is_believed),
        scenario(a_program_that_goes_last_on_one_device_does_so_on_all),
        scenario(lies_of_too_much_free_memory_take_no_reserve),
        scenario(lies_of_free_memory_do_not_count_beside_the_card),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
