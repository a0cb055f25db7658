/* SPDX-License-Identifier: Apache-2.0
 *
 * trampolines_x86_64.S: every exported name of the stub: a jump through its slot, which the first call fills. dlsym and dlvsym
 * are tail jumps to libc's own, which finds the caller by its return address.
 */
    .macro TRAMPOLINE name
    .globl \name, __wrap_\name
    .type \name, @function
    .type __wrap_\name, @function
    .p2align 4
\name:
__wrap_\name:
    endbr64
    movq    gs_stub_slots + 8 * count(%rip), %r11
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

    .hidden gs_libc_symbols_init, gs_libc_dlsym, gs_libc_dlvsym, gs_stub_resolve, gs_stub_slots
    .text
    .type resolve, @function
    .p2align 4
resolve: /* the arguments of the driver's functions are integers, pointers, and a few floats */
    .cfi_startproc
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    pushq   %rcx
    pushq   %r8
    pushq   %r9
    subq    $72, %rsp
    .cfi_adjust_cfa_offset 120
    movsd   %xmm0, (%rsp)
    movsd   %xmm1, 8(%rsp)
    movsd   %xmm2, 16(%rsp)
    movsd   %xmm3, 24(%rsp)
    movsd   %xmm4, 32(%rsp)
    movsd   %xmm5, 40(%rsp)
    movsd   %xmm6, 48(%rsp)
    movsd   %xmm7, 56(%rsp)
    movl    %r11d, %edi
    call    gs_stub_resolve
    movq    %rax, %r11
    movsd   (%rsp), %xmm0
    movsd   8(%rsp), %xmm1
    movsd   16(%rsp), %xmm2
    movsd   24(%rsp), %xmm3
    movsd   32(%rsp), %xmm4
    movsd   40(%rsp), %xmm5
    movsd   48(%rsp), %xmm6
    movsd   56(%rsp), %xmm7
    addq    $72, %rsp
    popq    %r9
    popq    %r8
    popq    %rcx
    popq    %rdx
    popq    %rsi
    popq    %rdi
    .cfi_adjust_cfa_offset -120
    jmp     *%r11
    .cfi_endproc
    .size resolve, . - resolve

    .set count, 0
#define GS_STUB(name) TRAMPOLINE name
#define GS_STUB_OURS(name)
#include "names.h"
    DOOR dlsym, gs_libc_dlsym
    DOOR dlvsym, gs_libc_dlvsym

    .bss
    .globl gs_stub_slots
    .type gs_stub_slots, @object
    .p2align 3
gs_stub_slots:
    .zero 8 * count
    .size gs_stub_slots, . - gs_stub_slots

    .section .note.GNU-stack, "", @progbits
