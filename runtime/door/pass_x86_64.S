/* SPDX-License-Identifier: Apache-2.0
 *
 * pass_x86_64.S: the functions of the table that gpushare passes (GS_PASS), as jumps to the driver's own.
 *
 * A slot first leads to a stub that has gs_door_resolve() look the function up, with all arguments kept, as the
 * loader's lazy binding does. Afterwards it leads to the driver.
 */
    .set    row, 0
    .macro PASS name
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    jmp     *9f(%rip)
    .cfi_endproc
    .size   \name, . - \name
8:  endbr64
    pushq   $row
    jmp     resolve
    .pushsection .data.rel.local, "aw"
9:  .quad   8b
    .popsection
    .set    row, row + 1
    .endm

    .pushsection .data.rel.local, "aw"
    .p2align 3
    .globl  gs_door_slots
    .hidden gs_door_slots
gs_door_slots:
    .popsection

    .text
    .p2align 4
    .type   resolve, @function
resolve:                            /* on the stack: the row, then the caller's return address */
    .cfi_startproc
    .cfi_def_cfa_offset 16
    pushq   %rbp
    .cfi_def_cfa_offset 24
    .cfi_offset %rbp, -24
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq   %rdi
    pushq   %rsi
    pushq   %rdx
    pushq   %rcx
    pushq   %r8
    pushq   %r9
    pushq   %rax
    subq    $136, %rsp              /* 128 for eight registers */
    andq    $-16, %rsp
    movups  %xmm0, (%rsp)
    movups  %xmm1, 16(%rsp)
    movups  %xmm2, 32(%rsp)
    movups  %xmm3, 48(%rsp)
    movups  %xmm4, 64(%rsp)
    movups  %xmm5, 80(%rsp)
    movups  %xmm6, 96(%rsp)
    movups  %xmm7, 112(%rsp)
    movq    8(%rbp), %rdi
    call    gs_door_resolve
    movq    %rax, %r11
    movups  (%rsp), %xmm0
    movups  16(%rsp), %xmm1
    movups  32(%rsp), %xmm2
    movups  48(%rsp), %xmm3
    movups  64(%rsp), %xmm4
    movups  80(%rsp), %xmm5
    movups  96(%rsp), %xmm6
    movups  112(%rsp), %xmm7
    leaq    -56(%rbp), %rsp
    popq    %rax
    popq    %r9
    popq    %r8
    popq    %rcx
    popq    %rdx
    popq    %rsi
    popq    %rdi
    popq    %rbp
    .cfi_def_cfa %rsp, 16
    addq    $8, %rsp
    .cfi_def_cfa_offset 8
    jmp     *%r11
    .cfi_endproc
    .size   resolve, . - resolve
    .hidden gs_door_resolve

#define GS_PASS(symbol, ...) PASS symbol
#include "wrap/driver_api.def"

    .section .note.GNU-stack, "", @progbits
