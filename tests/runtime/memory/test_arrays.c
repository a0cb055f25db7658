/* SPDX-License-Identifier: Apache-2.0
 *
 * test_arrays.c: the bytes of arrays by their shapes, and their sum (arrays.c), with one device.
 * One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#include <cmocka.h>

#include "runtime/base/device.h"
#include "runtime/base/worker.h"
#include "runtime/memory/arrays.h"

pthread_mutex_t gs_memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gs_device card;

struct gs_device *gs_device_current(void)
{
    return &card;
}

void gs_worker_wake(void)
{
}

static void gs_arrays_bytes_of_shapes(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR_v2 flat = {
        .Width = 100, .Height = 10, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    const CUDA_ARRAY3D_DESCRIPTOR_v2 line = {
        .Width = 100, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1};
    const CUDA_ARRAY3D_DESCRIPTOR_v2 cube = {.Width = 8,
                                             .Height = 8,
                                             .Depth = 8,
                                             .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                             .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR_v2 layers = cube;

    (void)state;
    assert_int_equal(gs_arrays_bytes(&flat, 1), 16000);
    assert_int_equal(gs_arrays_bytes(&line, 1), 200);
    assert_int_equal(gs_arrays_bytes(&cube, 1), 512);
    assert_int_equal(gs_arrays_bytes(&cube, 4), 512 + 64 + 8 + 1);
    layers.Flags = CUDA_ARRAY3D_LAYERED;
    assert_int_equal(gs_arrays_bytes(&layers, 2), 512 + 128);
}

static void gs_arrays_made_and_ended_sum_is_that_of_the_living(void **state)
{
    const int first = 1, second = 2;

    (void)state;
    gs_arrays_made(&first, 1000);
    gs_arrays_made(&second, 300);
    assert_int_equal(atomic_load(&card.arrays), 1300);
    gs_arrays_made(&first,
                   50); /* the handle is given again: that array ended with its context */
    assert_int_equal(atomic_load(&card.arrays), 350);
    gs_arrays_ended(&first);
    gs_arrays_ended(&first);
    gs_arrays_ended(&second);
    assert_int_equal(atomic_load(&card.arrays), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gs_arrays_bytes_of_shapes),
        cmocka_unit_test(gs_arrays_made_and_ended_sum_is_that_of_the_living),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
