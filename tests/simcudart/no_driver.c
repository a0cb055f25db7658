/* SPDX-License-Identifier: Apache-2.0
 *
 * no_driver.c: a libcuda.so.1 without cuGetProcAddress_v2: to a runtime the same as no driver
 * at all, on any machine.
 */
#include <stdlib.h>

int cuInit(unsigned int flags);

__attribute__((visibility("default"))) int cuInit(unsigned int flags)
{
    (void)flags;
    abort(); /* nobody may come this far */
}
