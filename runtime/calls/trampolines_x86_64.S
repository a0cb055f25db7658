/* SPDX-License-Identifier: Apache-2.0
 *
 * trampolines_x86_64.S: every exported name of the stub: a jump through its slot, which the first call fills. dlsym and dlvsym
 * are tail jumps to libc's own, which finds the caller by its return address.
 */
#include "runtime/base/resolve_x86_64.S"

    .macro TRAMPOLINE name
    .globl \name, __wrap_\name
    .type \name, @function
    .type __wrap_\name, @function
    .p2align 4
\name:
__wrap_\name:
    endbr64
    movq    slots + 8 * count(%rip), %r11
    testq   %r11, %r11
    jz      1f
    jmp     *%r11
1:  movl    $count, %r11d
    jmp     resolve
    .size \name, . - \name
    .size __wrap_\name, . - __wrap_\name
    .set count, count + 1
    .endm

    .macro DOOR name, next
    .globl \name, __wrap_\name
    .type \name, @function
    .type __wrap_\name, @function
    .p2align 4
\name:
__wrap_\name:
    endbr64
    movq    \next(%rip), %rax
    testq   %rax, %rax
    jz      1f
    jmp     *%rax
1:  /* somebody's constructor came before ours */
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    call    gs_libc_symbols_init
    popq    %rdx
    popq    %rsi
    popq    %rdi
    movq    \next(%rip), %rax
    jmp     *%rax
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
    .type slots, @object
    .p2align 3
slots:
    .zero 8 * count
    .size slots, . - slots

    .section .note.GNU-stack, "", @progbits
