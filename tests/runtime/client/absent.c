/* SPDX-License-Identifier: Apache-2.0
 *
 * absent.c: a program that uses gpushare.h and is linked with nothing of it. Prints 1 if the
 * functions are there, else 0, and what one of them says. Ends with 0.
 */
#include "runtime/client/gpushare.h"

#include <stdio.h>

static void ignore_call(void *argument)
{
    (void)argument;
}

int main(void)
{
    static char here;
    const int64_t discarded = gpushare_discard(&here, 1);

    if (!gpushare_is_there() &&
        (discarded != -ENOSYS || gpushare_keep(&here, 1) != -ENOSYS ||
         gpushare_idle() != -ENOSYS || gpushare_set_class(GPUSHARE_CLASS_BATCH) != -ENOSYS ||
         gpushare_suspend() != -ENOSYS || gpushare_resume() != -ENOSYS ||
         gpushare_on_pressure(ignore_call, NULL) != -ENOSYS))
        return 1;
    printf("%d %lld\n", gpushare_is_there(), (long long)discarded);
    return 0;
}
