/* SPDX-License-Identifier: Apache-2.0
 *
 * trampolines_aarch64.S: see trampolines_x86_64.S.
 */
#include "runtime/base/resolve_aarch64.S"

    .macro TRAMPOLINE name
    .globl \name, __wrap_\name
    .type \name, %function
    .type __wrap_\name, %function
    .p2align 4
\name:
__wrap_\name:
    hint    #34                     /* bti c */
    adrp    x16, slots + 8 * count
    add     x16, x16, :lo12:(slots + 8 * count)
    ldr     x16, [x16]
    cbz     x16, 1f
    br      x16
1:  mov     x17, #count
    b       resolve
    .size \name, . - \name
    .size __wrap_\name, . - __wrap_\name
    .set count, count + 1
    .endm

    .macro DOOR name, next
    .globl \name, __wrap_\name
    .type \name, %function
    .type __wrap_\name, %function
    .p2align 4
\name:
__wrap_\name:
    hint    #34
    adrp    x16, \next
    ldr     x16, [x16, :lo12:\next]
    cbz     x16, 1f
    br      x16
1:  stp     x29, x30, [sp, #-48]!
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    bl      gs_libc_symbols_init
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    ldp     x29, x30, [sp], #48
    adrp    x16, \next
    ldr     x16, [x16, :lo12:\next]
    br      x16
    .size \name, . - \name
    .size __wrap_\name, . - __wrap_\name
    .endm

    .hidden gs_libc_symbols_init, gs_libc_dlsym, gs_libc_dlvsym
    .text
    GS_RESOLVE gs_stub_resolve, slots

    .set count, 0
#define GS_STUB(name) TRAMPOLINE name
#define GS_STUB_OURS(name)
#include "names.h"
    DOOR dlsym, gs_libc_dlsym
    DOOR dlvsym, gs_libc_dlvsym

    .bss
    .type slots, %object
    .p2align 3
slots:
    .zero 8 * count
    .size slots, . - slots

    .section .note.GNU-stack, "", %progbits
