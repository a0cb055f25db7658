/* SPDX-License-Identifier: Apache-2.0
 *
 * test_driver.c: which function of the driver a look-up means, and what the runtime says
 * without a driver.
 */
#include "simcudart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define assert_slot(name, version, flags, symbol)                                              \
    assert_int_equal(simcudart_slot_of(name, version, flags), SIMCUDART_SLOT_##symbol)

static void slot_of_version_between_abis_gives_older(void **state)
{
    (void)state;
    assert_slot("cuCtxGetDevice", 2000, 0, cuCtxGetDevice);
    assert_slot("cuCtxGetDevice", 12999, 0, cuCtxGetDevice);
    assert_slot("cuCtxGetDevice", 13000, 0, cuCtxGetDevice_v2);
    assert_slot("cuGetProcAddress", 11030, 0, cuGetProcAddress);
    assert_slot("cuGetProcAddress", 12000, 0, cuGetProcAddress_v2);
    assert_slot("cuMemAlloc", 2000, 0, cuMemAlloc);
    assert_slot("cuMemAlloc", 3020, 0, cuMemAlloc_v2);
    assert_slot("cuMemAlloc", 99999, 0, cuMemAlloc_v2);
}

static void slot_of_per_thread_flag_prefers_variant(void **state)
{
    (void)state;
    assert_slot("cuMemcpyHtoD", 7000, 2, cuMemcpyHtoD_v2_ptds);
    assert_slot("cuMemcpyHtoD", 7000, 0, cuMemcpyHtoD_v2);
    assert_slot("cuStreamBeginCapture", 10000, 2, cuStreamBeginCapture_ptsz);
    assert_slot("cuStreamBeginCapture", 10010, 2, cuStreamBeginCapture_v2_ptsz);
    assert_slot("cuMemAlloc", 12000, 2, cuMemAlloc_v2);
}

static void slot_of_name_that_starts_others_gives_itself(void **state)
{
    (void)state;
    assert_slot("cuMemcpy", 7000, 2, cuMemcpy_ptds);
    assert_slot("cuMemcpy", 4000, 0, cuMemcpy);
    assert_slot("cuMemsetD8", 3020, 0, cuMemsetD8_v2);
}

static void slot_of_unknown_gives_none(void **state)
{
    (void)state;
    assert_int_equal(simcudart_slot_of("", 0, 0), -1);
    assert_int_equal(simcudart_slot_of("cu", 13000, 0), -1);
    assert_int_equal(simcudart_slot_of("cuMemAlloc_v2", 13000, 0), -1);
    assert_int_equal(simcudart_slot_of("cuMemsetD", 13000, 0), -1);
    assert_int_equal(simcudart_slot_of("zzz", 13000, 0), -1);
    assert_int_equal(simcudart_slot_of("cuLaunchKernel", 1000, 0), -1);
}

static void calls_without_driver_say_so(void **state)
{
    int value = 5;
    void *pointer = NULL;

    (void)state;
    assert_int_equal(cudaGetDeviceCount(&value), cudaErrorInsufficientDriver);
    assert_int_equal(value, 0);
    assert_int_equal(cudaMalloc(&pointer, 1), cudaErrorInsufficientDriver);
    assert_int_equal(cudaGetLastError(), cudaErrorInsufficientDriver);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    value = 5;
    assert_int_equal(cudaDriverGetVersion(&value), cudaSuccess);
    assert_int_equal(value, 0);
    assert_string_equal(cudaGetErrorName(cudaErrorInsufficientDriver),
                        "cudaErrorInsufficientDriver");
    assert_string_equal(cudaGetErrorString(cudaErrorLaunchFailure), "cudaErrorLaunchFailure");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slot_of_version_between_abis_gives_older),
        cmocka_unit_test(slot_of_per_thread_flag_prefers_variant),
        cmocka_unit_test(slot_of_name_that_starts_others_gives_itself),
        cmocka_unit_test(slot_of_unknown_gives_none),
        cmocka_unit_test(calls_without_driver_say_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
