/* SPDX-License-Identifier: Apache-2.0
 *
 * test_spans.c: parts of a range that have a value (spans.c), by themselves and against a model
 * of every address. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/range/spans.h"
#include "tests/runtime/random.h"

#define ADDRESSES 40
#define NONE      99 /* in the model */

static void gs_spans_agree_only_where_all_has_the_same_value(void **state)
{
    const int32_t one = 1, two = 2;
    struct gs_spans spans = {0};
    int32_t value = 0;

    (void)state;
    assert_false(gs_spans_agree(&spans, 0, 10, &value));
    assert_true(gs_spans_set(&spans, 0, 10, &one));
    assert_true(gs_spans_set(&spans, 10, 20, &one));
    assert_int_equal(spans.count, 1); /* neighbours become one */
    assert_true(gs_spans_agree(&spans, 5, 20, &value));
    assert_int_equal(value, 1);
    assert_true(gs_spans_set(&spans, 8, 12, &two));
    assert_int_equal(spans.count, 3);
    assert_false(gs_spans_agree(&spans, 5, 20, &value));
    assert_true(gs_spans_agree(&spans, 8, 12, &value));
    assert_int_equal(value, 2);
    assert_true(gs_spans_set(&spans, 0, 20, NULL));
    assert_int_equal(spans.count, 0);
    gs_spans_clear(&spans);
}

/* what gs_spans_first() says of [from, to), against the model */
static void compare_first(const struct gs_spans *spans, const int *model, uint64_t from,
                          uint64_t to)
{
    struct gs_span found;
    uint64_t at = from;

    while (at < to && model[at] == NONE)
        at++;
    assert_int_equal(gs_spans_first(spans, from, to, &found), at < to);
    if (at == to)
        return;
    assert_int_equal(found.from, at);
    assert_int_equal(found.value, model[at]);
    while (at < to && model[at] == found.value)
        at++;
    assert_int_equal(found.to, at);
}

static void gs_spans_set_random_parts_are_as_in_a_model(void **state)
{
    struct gs_spans spans = {0};
    uint64_t random = 7;
    int model[ADDRESSES];

    (void)state;
    for (unsigned i = 0; i < ADDRESSES; i++)
        model[i] = NONE;
    for (unsigned step = 0; step < 20000; step++) {
        const uint64_t from = random_below(&random, ADDRESSES),
                       to = from + 1 + random_below(&random, ADDRESSES - from);
        const int32_t value = (int32_t)random_below(&random, 4);

        assert_true(gs_spans_set(&spans, from, to, value == 3 ? NULL : &value));
        for (uint64_t at = from; at < to; at++)
            model[at] = value == 3 ? NONE : value;
        for (uint64_t at = 0; at < ADDRESSES; at++) {
            compare_first(&spans, model, at, ADDRESSES);
            compare_first(&spans, model, at, at);
        }
        compare_first(&spans, model, from, to);
    }
    gs_spans_clear(&spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gs_spans_agree_only_where_all_has_the_same_value),
        cmocka_unit_test(gs_spans_set_random_parts_are_as_in_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
