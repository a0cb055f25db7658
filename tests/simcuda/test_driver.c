/* SPDX-License-Identifier: Apache-2.0
 *
 * test_driver.c: runs the test groups of the simulated driver (test_basic.c and the others).
 */
#include "tests/simcuda/testkit.h"

int main(void)
{
    int failed = kit_run_basic();

    failed += kit_run_memory();
    failed += kit_run_vmm();
    failed += kit_run_stream();
    failed += kit_run_capture();
    failed += kit_run_module();
    failed += kit_run_process();
    failed += kit_run_shared();
    failed += kit_run_shared_many();
    return failed != 0;
}
