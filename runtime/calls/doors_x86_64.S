/* SPDX-License-Identifier: Apache-2.0
 *
 * doors_x86_64.S: dlsym and dlvsym as other objects see them.
 *
 * A name that does not begin with "cu" goes on to the next dlsym, as a rule libc's (others.h), by a tail jump: glibc finds the
 * caller (for RTLD_NEXT, RTLD_DEFAULT and RUNPATH) by its return address, so nothing may stand in between. Others are shown to
 * gs_door_dlsym or gs_door_dlvsym first; those either decide (second return register not 0) or leave it to the next one, with
 * the original arguments and the original return address.
 */
    .macro DOOR name, wrapped, next, decide, choose
    .globl \name, \wrapped
    .type \name, @function
    .type \wrapped, @function
    .p2align 4
\name:
\wrapped:
    .cfi_startproc
    endbr64
    testq   %rsi, %rsi
    jz      2f
    cmpb    $'c', (%rsi)
    jne     2f
    cmpb    $'u', 1(%rsi)
    jne     2f
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), %rcx          /* the caller */
    call    \decide
    movq    %rdx, %rcx
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rcx, %rcx
    jz      2f
    ret
2:  movq    \next(%rip), %rax
    testq   %rax, %rax
    jz      3f
    jmp     *%rax
3:  /* the first call */
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    call    \choose
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    jmp     *%rax
    .cfi_endproc
    .size \name, . - \name
    .size \wrapped, . - \wrapped
    .endm

    .hidden gs_door_dlsym, gs_door_dlvsym, gs_next_dlsym, gs_next_dlvsym, gs_others_dlsym, gs_others_dlvsym
    .text
    DOOR dlsym,  __wrap_dlsym,  gs_next_dlsym,  gs_door_dlsym,  gs_others_dlsym
    DOOR dlvsym, __wrap_dlvsym, gs_next_dlvsym, gs_door_dlvsym, gs_others_dlvsym

    .section .note.GNU-stack, "", @progbits
