/* SPDX-License-Identifier: Apache-2.0
 *
 * api.c: the functions of gpushare.h, which programs call. No state. Arguments come from the
 * program: each is checked here, or where it is looked up.
 */
#define GPUSHARE_INSIDE
#include "runtime/client/gpushare.h"
#include "runtime/client/pressure.h"
#include "runtime/client/wish.h"
#include "runtime/range/discard.h"

_Static_assert((int)GPUSHARE_CLASS_AUTO == GS_CLASS_AUTO, "one numbering");
_Static_assert((int)GPUSHARE_CLASS_INTERACTIVE == GS_CLASS_INTERACTIVE, "one numbering");
_Static_assert((int)GPUSHARE_CLASS_BATCH == GS_CLASS_BATCH, "one numbering");
_Static_assert((int)GPUSHARE_CLASS_BACKGROUND == GS_CLASS_BACKGROUND, "one numbering");

/* GPUSHARE_DISABLE=1, or another copy of this library is the one that works. */
static bool is_off(void)
{
    return gs_runtime.config.disabled;
}

int64_t gpushare_1_discard(const void *address, size_t bytes)
{
    return is_off() ? -ENOSYS : gs_discard_mark((uintptr_t)address, bytes);
}

int64_t gpushare_1_keep(const void *address, size_t bytes)
{
    return is_off() ? -ENOSYS : gs_discard_keep((uintptr_t)address, bytes);
}

int gpushare_1_idle(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (is_off())
        return -ENOSYS;
    gs_wish_idle();
    return 0;
}

int gpushare_1_set_class(int class_number)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (is_off())
        return -ENOSYS;
    if (class_number < 0 || class_number >= GS_CLASS_COUNT)
        return -EINVAL;
    gs_wish_class((uint32_t)class_number);
    return 0;
}

static int wish_suspended(bool suspended)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (is_off())
        return -ENOSYS;
    gs_wish_suspend(suspended);
    return 0;
}

int gpushare_1_suspend(void)
{
    return wish_suspended(true);
}

int gpushare_1_resume(void)
{
    return wish_suspended(false);
}

int gpushare_1_on_pressure(gpushare_callback *callback, void *argument)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    GS_KEEP_ERRNO;

    return is_off() ? -ENOSYS : gs_pressure_set(callback, argument);
}
