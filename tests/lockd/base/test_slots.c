/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slots.c: whose entry makes room in a full table.
 */
#include "lockd/programs/track.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT 8

struct entry {
    struct lockd_stamp stamp;
    char text[5];
};

static size_t choose_slot(const struct lockd_stamp stamps[COUNT], uint32_t owner)
{
    struct entry entries[COUNT];

    for (size_t i = 0; i < COUNT; i++)
        entries[i] = (struct entry){.stamp = stamps[i]};
    return lockd_slots_choose(entries, COUNT, sizeof entries[0], owner);
}

static void choose_free_slot_is_taken(void **state)
{
    (void)state;
    assert_int_equal(choose_slot((struct lockd_stamp[COUNT]){{0}}, 7), 0);
    /* also by a user who has all others */
    assert_int_equal(
        choose_slot((struct lockd_stamp[COUNT]){{5, 7}, {6, 7}, {7, 7}, {8, 7}, {9, 7}}, 7), 5);
}

static void choose_user_with_the_most_replaces_its_oldest(void **state)
{
    const struct lockd_stamp full[COUNT] = {{1, 8}, {9, 7}, {4, 7}, {6, 7},
                                            {2, 8}, {3, 9}, {5, 9}, {7, 8}};

    (void)state;
    assert_int_equal(choose_slot(full, 7), 2);
    assert_int_equal(choose_slot(full, 8), 0);
}

static void choose_other_user_replaces_the_oldest_of_those_with_the_most(void **state)
{
    const struct lockd_stamp full[COUNT] = {{3, 8}, {9, 7}, {4, 7}, {6, 7},
                                            {2, 8}, {1, 9}, {5, 9}, {7, 8}};

    (void)state;
    assert_int_equal(choose_slot(full, 9),
                     5); /* it has two, and would have three as the others */
    assert_int_equal(choose_slot(full, 1), 4); /* it has none */
}

static void choose_other_user_spares_users_with_fewer(void **state)
{
    const struct lockd_stamp full[COUNT] = {{3, 8}, {9, 7}, {6, 7}, {4, 7},
                                            {2, 8}, {1, 9}, {5, 7}, {7, 8}};

    (void)state;
    assert_int_equal(choose_slot(full, 9), 3); /* the oldest of the user with four */
    assert_int_equal(choose_slot(full, 1), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choose_free_slot_is_taken),
        cmocka_unit_test(choose_user_with_the_most_replaces_its_oldest),
        cmocka_unit_test(choose_other_user_replaces_the_oldest_of_those_with_the_most),
        cmocka_unit_test(choose_other_user_spares_users_with_fewer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
