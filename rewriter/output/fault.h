/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.h: points where the test build of gpushare-patch can be made to die, to show that no
 * moment is a bad one.
 */
#ifndef REWRITER_OUTPUT_FAULT_H
#define REWRITER_OUTPUT_FAULT_H

#ifdef GS_PATCH_FAULT
#include <unistd.h>

extern int
    elf_fault_step; /* die at this call; 0: never. Set by --fault-step of the test build */
extern int elf_fault_calls; /* calls so far */

static inline void elf_fault(void)
{
    if (++elf_fault_calls == elf_fault_step)
        _exit(99); /* as kill -9: nothing is flushed, nothing cleaned up */
}
#else
static inline void elf_fault(void)
{
}
#endif

#endif
