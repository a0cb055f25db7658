/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kin.c: which programs become one gang.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockd/programs/kin.h"
#include "tests/lockd/check.h"
#include "lockd/sched/constants.h"

#include <string.h>

#define MANY 33 /* one more than a set may have that falls apart */

struct family {
    struct sched *sched;
    struct kin kin;
    struct kin_program *program[MANY];
    struct lockd_identity identity[MANY];
    struct sched_client *client[MANY];
};

static int family_setup(void **state)
{
    static struct family family;
    const struct sched_settings settings = {
        .quantum_ns = LOCKD_AUTO, .idle_ns = LOCKD_AUTO, .reserve = LOCKD_AUTO};

    memset(&family, 0, sizeof family);
    family.sched = sched_new(&settings, 0);
    assert_non_null(family.sched);
    kin_init(&family.kin, NULL, NULL);
    *state = &family;
    return 0;
}

static int family_teardown(void **state)
{
    struct family *family = *state;

    kin_deinit(&family->kin);
    sched_free(family->sched);
    return 0;
}

static void add_program(struct family *family, int who, uint32_t user, bool named)
{
    family->identity[who] =
        (struct lockd_identity){.uid = user, .pid = 1, .user_ns = 1, .pid_ns = 2};
    family->client[who] = sched_client_add(family->sched, family);
    family->program[who] =
        kin_came(&family->kin, family->client[who], family, &family->identity[who], named);
    assert_non_null(family->program[who]);
}

static void use_device(struct family *family, int who, uint8_t device)
{
    const struct gs_wire_state state = {.uuid = {device},
                                        .device_total = 10 * GIB,
                                        .device_free = UINT64_MAX,
                                        .demand = GIB,
                                        .flags = GS_STATE_WANT};

    assert_int_equal(sched_state(family->client[who], &state, 3000000000u), 0);
    assert_null(sched_check(family->sched));
}

static void learn_key(struct family *family, int who, uint64_t key, uint32_t kind)
{
    kin_learn(&family->kin, family->program[who], key, kind, 0, 3000000000u);
    assert_null(sched_check(family->sched));
}

static bool are_one(const struct family *family, int a, int b)
{
    return kin_set_of(family->program[a]) != 0 &&
           kin_set_of(family->program[a]) == kin_set_of(family->program[b]);
}

static void learn_same_key_is_one_gang(void **state)
{
    struct family *family = *state;

    for (int i = 0; i < 4; i++)
        add_program(family, i, 1, false);
    learn_key(family, 0, 5, GS_KIN_MASTER);
    learn_key(family, 1, 5, GS_KIN_MASTER);
    learn_key(family, 2, 5, GS_KIN_SLURM); /* another kind */
    learn_key(family, 3, 6, GS_KIN_MASTER);
    assert_true(are_one(family, 0, 1));
    assert_false(are_one(family, 0, 2));
    assert_false(are_one(family, 0, 3));
}

static void learn_while_running_joins_sets(void **state)
{
    struct family *family = *state;

    for (int i = 0; i < 4; i++) {
        add_program(family, i, 1, false);
        use_device(family, i, (uint8_t)(1 + i % 2));
    }
    learn_key(family, 0, 5, GS_KIN_NCCL);
    learn_key(family, 1, 5, GS_KIN_NCCL);
    learn_key(family, 2, 6, GS_KIN_NCCL);
    learn_key(family, 3, 6, GS_KIN_NCCL);
    assert_false(are_one(family, 0, 2));
    learn_key(family, 3, 5, GS_KIN_NCCL);
    for (int i = 1; i < 4; i++)
        assert_true(are_one(family, 0, i));
    kin_gone(&family->kin, family->program[0]);
    sched_client_gone(family->client[0], 3000000000u);
    assert_true(are_one(family, 1, 2));
    assert_null(sched_check(family->sched));
}

/* A shell's row of programs; a Jupyter server's kernels. */
static void learn_hints_are_no_gang(void **state)
{
    struct family *family = *state;

    for (int i = 0; i < 4; i++) {
        add_program(family, i, 1, false);
        learn_key(family, i, 5, GS_KIN_PARENT);
        learn_key(family, i, 6, GS_KIN_SESSION);
        learn_key(family, i, 7, GS_KIN_SHARED);
        use_device(family, i, (uint8_t)(1 + i));
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(kin_set_of(family->program[i]), 0);
}

static void learn_other_identity_stays_out(void **state)
{
    struct family *family = *state;

    add_program(family, 0, 1, false);
    add_program(family, 1, 2, false);
    add_program(family, 2, 1, true); /* names its group */
    for (int i = 0; i < 3; i++)
        learn_key(family, i, 5, GS_KIN_MASTER);
    kin_join(&family->kin, family->program[0], family->program[1], GS_KIN_MEMORY, 3000000000u);
    kin_join(&family->kin, family->program[0], family->program[2], GS_KIN_MEMORY, 3000000000u);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kin_set_of(family->program[i]), 0);
}

static void learn_more_keys_than_are_kept_is_harmless(void **state)
{
    struct family *family = *state;

    add_program(family, 0, 1, false);
    add_program(family, 1, 1, false);
    for (uint64_t key = 0; key < 1000; key++)
        learn_key(family, 0, key, GS_KIN_PARENT);
    assert_int_equal(family->program[0]->count, GS_KIN_MOST);
}

static void unlearn_key(struct family *family, int who, uint64_t key, uint32_t kind)
{
    kin_unlearn(&family->kin, family->program[who], key, kind, 3000000000u);
    assert_null(sched_check(family->sched));
}

static void unlearn_last_common_key_ends_the_gang(void **state)
{
    struct family *family = *state;

    for (int i = 0; i < 4; i++) {
        add_program(family, i, 1, false);
        use_device(family, i, (uint8_t)(1 + i % 2));
    }
    for (int i = 0; i < 4; i++)
        learn_key(family, i, 5, GS_KIN_MEMORY);
    learn_key(family, 0, 6, GS_KIN_NCCL);
    learn_key(family, 1, 6, GS_KIN_NCCL);
    learn_key(family, 2, 7, GS_KIN_MEMORY);
    learn_key(family, 3, 7, GS_KIN_MEMORY);
    unlearn_key(family, 0, 5, GS_KIN_MEMORY); /* 1 is bound to both */
    for (int i = 1; i < 4; i++)
        assert_true(are_one(family, 0, i));
    unlearn_key(family, 1, 5, GS_KIN_MEMORY);
    assert_true(are_one(family, 0, 1));
    assert_true(are_one(family, 2, 3));
    assert_false(are_one(family, 0, 2));
    assert_int_equal(family->program[0]->why, GS_KIN_NCCL);
    unlearn_key(family, 3, 7, GS_KIN_MEMORY);
    assert_true(are_one(family, 2, 3)); /* by key 5 */
    unlearn_key(family, 3, 5, GS_KIN_MEMORY);
    assert_int_equal(kin_set_of(family->program[2]), 0);
    assert_int_equal(kin_set_of(family->program[3]), 0);
    assert_int_equal(family->client[3]->kin, 0);
    learn_key(family, 3, 5, GS_KIN_MEMORY);
    assert_true(are_one(family, 2, 3));
}

static void unlearn_what_was_not_said_is_harmless(void **state)
{
    struct family *family = *state;

    add_program(family, 0, 1, false);
    add_program(family, 1, 1, false);
    unlearn_key(family, 0, 5, GS_KIN_MEMORY);
    learn_key(family, 0, 5, GS_KIN_MEMORY);
    learn_key(family, 1, 5, GS_KIN_MEMORY);
    unlearn_key(family, 0, 5, GS_KIN_NCCL);
    unlearn_key(family, 0, 6, GS_KIN_MEMORY);
    assert_true(are_one(family, 0, 1));
}

/* A user with very many programs must not keep the daemon busy with them. */
static void unlearn_in_a_large_set_divides_nothing(void **state)
{
    struct family *family = *state;

    for (int i = 0; i < MANY; i++) {
        add_program(family, i, 1, false);
        learn_key(family, i, 5, GS_KIN_MEMORY);
    }
    unlearn_key(family, 0, 5, GS_KIN_MEMORY);
    assert_true(are_one(family, 0, 1));
}

#define scene(name) cmocka_unit_test_setup_teardown(name, family_setup, family_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scene(learn_same_key_is_one_gang),
        scene(learn_while_running_joins_sets),
        scene(learn_hints_are_no_gang),
        scene(learn_other_identity_stays_out),
        scene(learn_more_keys_than_are_kept_is_harmless),
        scene(unlearn_last_common_key_ends_the_gang),
        scene(unlearn_what_was_not_said_is_harmless),
        scene(unlearn_in_a_large_set_divides_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
