/* SPDX-License-Identifier: Apache-2.0
 *
 * loaded.c: is called by each object that the program loads, before the object's own code runs:
 * crti.o, which linkers put into every library, calls __gmon_start__ in its _init if there is such
 * a function (glibc sysdeps/x86_64/crti.S; it is meant for profilers).
 *
 * So an object whose calls go past gpushare is seen before it makes any. If memory of the program
 * has been moved out, the load returns when it is back. (An object without _init is seen by the
 * client thread, base/past.h.) No state; any thread, under the loader's lock.
 */
#include "runtime/base/past.h"
#include "runtime/calls/unknown.h"

__attribute__((visibility("default"))) void __gmon_start__(void);

void __gmon_start__(void)
{
    if (gs_runtime.config.disabled || gs_device_at(0) == NULL)
        return;
    gs_past_look();
    if (atomic_load_explicit(&gs_runtime.partial, memory_order_acquire))
        gs_unknown_await_memory();
}
