/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.h: points where the test build of gpushare-patch can be killed, to show that this is safe
 * at every moment; and where it damages the new file, to show that this is noticed.
 */
#pragma once

#ifdef GS_PATCH_FAULT
#include <stdint.h>
#include <unistd.h>

extern int elf_fault_step;  /* die at this call; 0: never. --fault-step of the test build */
extern int elf_fault_calls; /* calls so far */
extern long elf_fault_byte; /* offset of the byte that is damaged; -1: none. --fault-byte */

static inline void elf_fault(void)
{
    if (++elf_fault_calls == elf_fault_step)
        _exit(99); /* as kill -9: nothing is flushed, nothing cleaned up */
}

/* Changes one byte of the new file after it was written. */
static inline void elf_fault_damage(int fd)
{
    uint8_t byte;

    if (elf_fault_byte < 0 || pread(fd, &byte, 1, elf_fault_byte) != 1)
        return;
    byte ^= 1;
    if (pwrite(fd, &byte, 1, elf_fault_byte) != 1)
        _exit(98);
}
#else
static inline void elf_fault_damage(int fd)
{
    (void)fd;
}

static inline void elf_fault(void)
{
}
#endif
